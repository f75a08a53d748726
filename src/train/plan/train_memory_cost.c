/* Estimates what a way to run a configuration costs. The costs are assumptions for
 * an order, not measurements. */
#include <assert.h>
#include <math.h>

#include "src/model/model.h"
#include "src/train/plan/train_exchange.h"
#include "src/train/plan/train_memory.h"
#include "src/train/plan/trainer_backend.h"

/* Assumed: 400 TFLOP/s and 40 GB/s to other nodes of a GPU, 0.5 TFLOP/s and 2
 * GB/s of a rank on processors; ten times that within a node. */
#define FLOPS_PER_BYTE_DEVICE 1e4
#define FLOPS_PER_BYTE_HOST 250.0
#define NEAR 0.1

/* Prices of changes that cost something else than time. */
#define PRICE_HALF 0.01     /* a microbatch of half the size */
#define PRICE_BY_BLOCK 0.02 /* zero2, zero3: leaves are added one by one */
#define PRICE_PACKED 0.4
#define PRICE_WAITING 0.5

bool train_memory_again(const struct train_settings *settings, double *missing)
{
    struct model_memory memory;
    bool known = train_settings_memory(settings, &memory) == ERR_OK;
    int64_t layers = settings->model.n_layers;
    int64_t again = 0;
    for (int64_t i = 0; i < layers && known; i++)
        again += (memory.recompute[i] & RECOMPUTE_BLOCK) != 0;
    *missing = (double)(layers - again) / (double)layers;
    return again == layers;
}

/* Both fabrics are busy at a time on a device, whose messages are one group; on
 * processors one waits for the other. */
static double travel(const struct train_settings *s,
                     const struct train_memory_place *place,
                     const struct params *params,
                     const struct train_memory_way *way, double *weighed)
{
    struct train_exchange list[TRAIN_EXCHANGES];
    int node = place->node_ranks > 0 ? place->node_ranks : way->ranks;
    double sent = 0.0;
    *weighed = 0.0;
    train_exchanges(s, place, params, way, list);
    for (int i = 0; i < TRAIN_EXCHANGES; i++) {
        if (list[i].times == 0.0)
            continue;
        struct train_exchange_sent once = train_exchange_sent(&list[i], node);
        double near = once.near * NEAR;
        sent += list[i].times * (once.near + once.far);
        *weighed += list[i].times * (place->kernels->memory->device
                                         ? fmax(near, once.far)
                                         : near + once.far);
    }
    return sent;
}

void train_memory_cost(const struct train_settings *s,
                       const struct train_memory_place *place,
                       const struct params *params,
                       struct train_memory_way *way)
{
    double missing = 0.0;
    bool device = place->kernels->memory->device;
    double samples = s->train.global_batch > 0
                         ? (double)s->train.global_batch / (double)way->ranks
                         : (double)s->train.microbatch;
    double flops =
        samples * model_flops_per_sequence(&s->model, params, s->data.seq_len);
    double weighed = 0.0;
    way->sent = travel(s, place, params, way, &weighed);
    (void)train_memory_again(s, &missing);
    way->computed = way->again ? missing / 3.0 : 0.0;
    way->cost = way->computed +
                weighed *
                    (device ? FLOPS_PER_BYTE_DEVICE : FLOPS_PER_BYTE_HOST) /
                    flops +
                (way->strategy >= REPLICA_ZERO2 ? PRICE_BY_BLOCK : 0.0) +
                (way->packed ? PRICE_PACKED : 0.0) +
                (way->waiting ? PRICE_WAITING : 0.0) +
                PRICE_HALF *
                    log2((double)s->train.microbatch / (double)way->microbatch);
}
