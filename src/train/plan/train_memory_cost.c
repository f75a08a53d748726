/* Estimates what a way to run a configuration costs. The costs are assumptions for
 * an order, not measurements. */
#include <assert.h>
#include <math.h>

#include "src/model/model.h"
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

/* How much a byte counts that goes to `group` neighbouring ranks: whole to
 * other nodes, less within the node. */
static double weigh(const struct train_memory_place *place, double group)
{
    double node =
        (double)(place->node_ranks > 0 ? place->node_ranks : place->ranks);
    assert(node >= 1.0);
    if (group <= 1.0)
        return 0.0;
    double near = fmin(node, group) - 1.0;
    return (near * NEAR + (group - 1.0 - near)) / (group - 1.0);
}

/* Bytes that a rank sends in a step; *weighed: with those on its node as so
 * much less. Of n ranks each sends (n - 1)/n of a tensor when it is summed into
 * partitions, and as much when the partitions are gathered: ddp and zero1 do so once
 * with the gradient (twice where slots do not divide by the ranks) and once with what
 * was updated, zero2 with the gradient of every leaf. zero3 besides gathers the
 * weights of each leaf twice, forward and backward, within its degree.
 * src/parallel/DESIGN.md has the sums. */
static double sent(const struct train_settings *s,
                   const struct train_memory_place *place,
                   const struct params *params,
                   const struct train_memory_way *way, double *weighed)
{
    double ranks = (double)way->ranks;
    double slots = (double)s->parallel.slots;
    double batch = fmax(slots, (double)s->train.global_batch);
    double p = (double)params->elements;
    double weight = (double)dtype_bytes(trainer_backend_dtype(s));
    bool bf16 = s->parallel.reduce_precision == REDUCE_BF16;
    double share = (ranks - 1.0) / ranks;
    double degree = (double)way->shard_degree;
    assert(way->ranks > 0 && way->microbatch > 0 && slots > 0.0);
    double leaves = ceil(batch / (double)way->microbatch / ranks) *
                    (double)s->parallel.sequence_chunks;
    bool whole = fmod(slots, ranks) == 0.0 ||
                 s->parallel.determinism != DETERMINISM_ELASTIC;
    double gradient = p * (bf16 ? 2.0 : 4.0) * share;
    double all = weigh(place, ranks);
    double bytes = 0.0;
    switch (way->strategy) {
    case REPLICA_DDP:
    case REPLICA_ZERO1:
        bytes =
            gradient * (whole ? 1.0 : 2.0) +
            p * share * (way->strategy == REPLICA_DDP ? sizeof(float) : weight);
        *weighed = bytes * all;
        return bytes;
    case REPLICA_ZERO2:
        bytes = leaves * gradient + p * weight * share;
        *weighed = bytes * all;
        return bytes;
    case REPLICA_ZERO3:
    case REPLICA_AUTO: /* of settings, never of a way */
        break;
    }
    double gathered = leaves * 2.0 * p * weight * (degree - 1.0) / degree;
    double rest = leaves * gradient +
                  p * weight / degree * (ranks / degree - 1.0) / ranks * degree;
    *weighed = gathered * weigh(place, degree) + rest * all;
    return gathered + rest;
}

void train_memory_cost(const struct train_settings *s,
                       const struct train_memory_place *place,
                       const struct params *params,
                       struct train_memory_way *way)
{
    double weighed = 0.0;
    double missing = 0.0;
    bool device = place->kernels->memory->device;
    double samples = s->train.global_batch > 0
                         ? (double)s->train.global_batch / (double)way->ranks
                         : (double)s->train.microbatch;
    double flops =
        samples * model_flops_per_sequence(&s->model, params, s->data.seq_len);
    way->sent = sent(s, place, params, way, &weighed);
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
