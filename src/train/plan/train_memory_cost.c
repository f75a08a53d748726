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

/* Bytes of which some count less. */
struct travel {
    double sent, weighed;
};

/* Adds what each of `group` ranks, `node` of them on a node, sends where a tensor's parts,
 * one of each, are summed or brought together: (n - 1)/n of it. By nodes that is done
 * within a node first, and one rank of each sends a part to other nodes. */
static void add_tensor(struct travel *travel, double bytes, double group,
                       double node, bool by_nodes)
{
    node = fmin(fmax(node, 1.0), group);
    double far = by_nodes ? (group / node - 1.0) / group : 1.0 - node / group;
    double all = (group - 1.0) / group;
    travel->sent += bytes * all;
    travel->weighed += bytes * (far + (all - far) * NEAR);
}

/* What a rank sends in a step. ddp and zero1 sum the gradient once (twice where slots
 * do not divide by the ranks) and gather what was updated; zero2 sums it for every
 * leaf. zero3 besides gathers the weights of each leaf twice, forward and backward,
 * within its degree, and its groups may sum leaves by themselves and what is theirs once.
 * src/parallel/DESIGN.md has the sums. */
static struct travel travels(const struct train_settings *s,
                             const struct train_memory_place *place,
                             const struct params *params,
                             const struct train_memory_way *way)
{
    struct travel travel = { 0.0, 0.0 };
    double ranks = (double)way->ranks;
    double node = (double)(place->node_ranks > 0 ? place->node_ranks : ranks);
    double slots = (double)s->parallel.slots;
    double batch = fmax(slots, (double)s->train.global_batch);
    double p = (double)params->elements;
    double weights = p * (double)dtype_bytes(trainer_backend_dtype(s));
    bool bf16 = s->parallel.reduce_precision == REDUCE_BF16;
    double gradient = p * (bf16 ? 2.0 : 4.0);
    bool zero3 = way->strategy == REPLICA_ZERO3;
    double degree = zero3 ? (double)way->shard_degree : 1.0;
    double groups = ranks / degree;
    bool once = zero3 && way->once && groups > 1.0;
    /* who goes by nodes: src/parallel/DESIGN.md */
    bool blocks = way->strategy >= REPLICA_ZERO2;
    bool alike =
        place->uneven == 0 && (blocks || !place->kernels->memory->device);
    bool adds = alike && !bf16 &&
                (!blocks || s->parallel.determinism == DETERMINISM_ELASTIC);
    assert(way->ranks > 0 && way->microbatch > 0 && slots > 0.0);
    double leaves = ceil(batch / (double)way->microbatch / ranks) *
                    (double)s->parallel.sequence_chunks;
    bool whole = fmod(slots, ranks) == 0.0 ||
                 s->parallel.determinism != DETERMINISM_ELASTIC;
    if (way->strategy < REPLICA_ZERO2)
        leaves = whole ? 1.0 : 2.0;
    if (way->strategy == REPLICA_DDP)
        weights = p * sizeof(float);
    if (zero3)
        add_tensor(&travel, leaves * 2.0 * weights, degree, node,
                   alike && groups == 1.0);
    add_tensor(&travel, leaves * gradient, once ? degree : ranks, node, adds);
    if (once)
        add_tensor(&travel, gradient / degree, groups, node / degree, adds);
    add_tensor(&travel, weights / degree, groups, node / degree,
               alike && degree == 1.0);
    return travel;
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
    struct travel travel = travels(s, place, params, way);
    way->sent = travel.sent;
    (void)train_memory_again(s, &missing);
    way->computed = way->again ? missing / 3.0 : 0.0;
    way->cost = way->computed +
                travel.weighed *
                    (device ? FLOPS_PER_BYTE_DEVICE : FLOPS_PER_BYTE_HOST) /
                    flops +
                (way->strategy >= REPLICA_ZERO2 ? PRICE_BY_BLOCK : 0.0) +
                (way->packed ? PRICE_PACKED : 0.0) +
                (way->waiting ? PRICE_WAITING : 0.0) +
                PRICE_HALF *
                    log2((double)s->train.microbatch / (double)way->microbatch);
}
