#include "src/parallel/replica.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/arena.h"
#include "src/parallel/shard.h"
#include "src/parallel/weights.h"

#define REPLICA_KINDS 3 /* weights and two moments */

struct replica {
    struct comm *comm;
    const struct kernels *kernels;
    const struct kernel_ctx *ctx;
    const struct params *params;
    struct param_access access;
    struct reduce *reduce;
    struct arena arena;
    int slots;
    int64_t begin, end; /* own interval */
    struct weights *shared;
    float *weights;       /* [elements], shared's */
    float *exp_avg;       /* [end - begin] */
    float *exp_avg_sq;    /* [end - begin] */
    double *chunk_sums;   /* [elements / KERNEL_CHUNK] */
    float *slot_gradient; /* [elements], lent by reduce; NULL outside a slot */
    float *gradient;      /* [end - begin], lent by reduce */
    struct ckpt_item *items;
    int item_count;
};

static enum err access_gather(void *arg, int block, const float **weights)
{
    struct replica *replica = arg;
    *weights = replica->weights + replica->params->blocks[block].offset;
    return ERR_OK;
}

static enum err access_release(void *arg, int block)
{
    (void)arg;
    (void)block;
    return ERR_OK;
}

static enum err access_gradient(void *arg, int block, float **gradient)
{
    struct replica *replica = arg;
    assert(replica->slot_gradient != NULL);
    *gradient = replica->slot_gradient + replica->params->blocks[block].offset;
    return ERR_OK;
}

static void replica_layout(struct replica *replica, struct arena *arena,
                           struct replica_bytes *bytes)
{
    size_t own = (size_t)(replica->end - replica->begin) * sizeof(float);
    size_t chunks = (size_t)(replica->params->elements / KERNEL_CHUNK);
    bytes->weights = (size_t)replica->params->elements * sizeof(float);
    replica->exp_avg = arena_take(arena, own);
    replica->exp_avg_sq = arena_take(arena, own);
    bytes->moments = arena->used;
    replica->chunk_sums = arena_take(arena, chunks * sizeof(double));
    bytes->sums = arena->used - bytes->moments;
}

static void item_set(struct ckpt_item *item, const struct replica *replica,
                     const struct param *param, const char *prefix,
                     float *base, int64_t base_begin)
{
    int64_t first = replica->begin - param->offset;
    int64_t last = replica->end - param->offset;
    item->part.begin = first < 0 ? 0 : first > param->numel ? param->numel : first;
    item->part.end = last < 0 ? 0 : last > param->numel ? param->numel : last;
    item->dtype = DTYPE_F32;
    item->dims = param->dims;
    item->shape[0] = param->shape[0];
    item->shape[1] = param->shape[1];
    snprintf(item->name, sizeof item->name, "%s%s", prefix, param->name);
    if (base != NULL && item->part.begin < item->part.end)
        item->data = base + (param->offset + item->part.begin - base_begin);
}

static void replica_list_items(struct replica *replica)
{
    const struct params *params = replica->params;
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        item_set(&replica->items[p], replica, param, "", replica->weights, 0);
        item_set(&replica->items[params->count + p], replica, param,
                 "optimizer/exp_avg/", replica->exp_avg, replica->begin);
        item_set(&replica->items[2 * params->count + p], replica, param,
                 "optimizer/exp_avg_sq/", replica->exp_avg_sq, replica->begin);
    }
}

/* The interval of `rank`, without memory for it. */
static enum err replica_open(const struct params *params, int rank, int ranks,
                             int slots, struct replica **out)
{
    struct replica *replica = calloc(1, sizeof *replica);
    if (replica == NULL)
        return err_set(ERR_MEMORY, "replica: out of memory");
    replica->params = params;
    replica->slots = slots;
    replica->begin = shard_begin(params->elements, rank, ranks);
    replica->end = shard_begin(params->elements, rank + 1, ranks);
    replica->item_count = params->count * REPLICA_KINDS;
    replica->items =
        calloc((size_t)replica->item_count, sizeof replica->items[0]);
    if (replica->items == NULL) {
        replica_destroy(replica);
        return err_set(ERR_MEMORY, "replica: out of memory");
    }
    *out = replica;
    return ERR_OK;
}

enum err replica_create(struct comm *comm, const struct kernels *kernels,
                        const struct kernel_ctx *ctx,
                        const struct params *params, int slots,
                        struct replica **out)
{
    enum err rc = ERR_OK;
    struct arena plan = { 0 };
    struct replica_bytes bytes;
    struct replica *replica = NULL;
    TRY(comm_agree(comm, replica_open(params, comm_rank(comm), comm_size(comm),
                                      slots, &replica)));
    replica->comm = comm;
    replica->kernels = kernels;
    replica->ctx = ctx;
    replica->access = (struct param_access){
        .arg = replica,
        .gather = access_gather,
        .release = access_release,
        .gradient = access_gradient,
        .gradient_done = access_release,
    };
    replica_layout(replica, &plan, &bytes);
    TRY(comm_agree(comm, arena_create(plan.used, &replica->arena)));
    replica_layout(replica, &replica->arena, &bytes);
    TRY(weights_create(comm, params->elements, &replica->shared));
    replica->weights = weights_data(replica->shared);
    TRY(reduce_create(comm, kernels, ctx, params->elements, slots,
                      &replica->reduce));
    replica_list_items(replica);
    *out = replica;
    replica = NULL;
out:
    replica_destroy(replica);
    return rc;
}

enum err replica_plan(const struct params *params, int ranks, int slots,
                      struct replica_bytes *out)
{
    enum err rc = ERR_OK;
    struct arena plan = { 0 };
    struct replica *replica = NULL;
    /* the last rank's interval is the longest (shard.h) */
    TRY(replica_open(params, ranks - 1, ranks, slots, &replica));
    replica_layout(replica, &plan, out);
    replica_list_items(replica);
    out->items = (size_t)replica->item_count * sizeof replica->items[0];
    out->staging = ckpt_saver_stage_bytes(replica->items, replica->item_count);
    reduce_plan(params->elements, REDUCE_ANY_RANK, ranks, slots, &out->reduce);
    out->total = plan.used + out->weights + out->items + out->reduce.total;
out:
    replica_destroy(replica);
    return rc;
}

void replica_destroy(struct replica *replica)
{
    if (replica == NULL)
        return;
    reduce_destroy(replica->reduce);
    weights_destroy(replica->shared);
    arena_destroy(&replica->arena);
    free(replica->items);
    free(replica);
}

enum err replica_init(struct replica *replica, uint64_t seed)
{
    size_t own = (size_t)(replica->end - replica->begin) * sizeof(float);
    params_init(replica->params, seed, replica->begin, replica->end,
                replica->weights + replica->begin);
    memset(replica->exp_avg, 0, own);
    memset(replica->exp_avg_sq, 0, own);
    return replica_loaded(replica);
}

const struct param_access *replica_access(struct replica *replica)
{
    return &replica->access;
}

void replica_begin_batch(struct replica *replica)
{
    replica->gradient = NULL;
    reduce_begin(replica->reduce);
}

enum err replica_begin_slot(struct replica *replica)
{
    return reduce_slot(replica->reduce, &replica->slot_gradient);
}

enum err replica_end_slot(struct replica *replica)
{
    replica->slot_gradient = NULL;
    return reduce_slot_done(replica->reduce);
}

enum err replica_finish_batch(struct replica *replica)
{
    return reduce_finish(replica->reduce, &replica->gradient);
}

enum err replica_gradient_norm(struct replica *replica, double *norm)
{
    enum err rc = ERR_OK;
    double sum = 0.0;
    int64_t own = replica->end - replica->begin;
    assert(replica->gradient != NULL || own == 0);
    if (own > 0)
        TRY(replica->kernels->chunk_sum_squares(
            replica->ctx, DTYPE_F32, own, replica->gradient,
            replica->chunk_sums + replica->begin / KERNEL_CHUNK));
    TRY(reduce_chunk_sums(replica->comm, replica->params->elements,
                          replica->chunk_sums, &sum));
    *norm = sqrt(sum);
out:
    return rc;
}

enum err replica_update(struct replica *replica, const struct adamw *step)
{
    enum err rc = ERR_OK;
    int64_t own = replica->end - replica->begin;
    if (own > 0)
        TRY(replica->kernels->adamw(replica->ctx, DTYPE_F32, own, step,
                                    replica->weights + replica->begin,
                                    replica->gradient, replica->exp_avg,
                                    replica->exp_avg_sq));
    TRY(replica_loaded(replica));
out:
    return rc;
}

const float *replica_weights(const struct replica *replica)
{
    return replica->weights;
}

const struct ckpt_item *replica_items(const struct replica *replica, int *count)
{
    *count = replica->item_count;
    return replica->items;
}

enum err replica_loaded(struct replica *replica)
{
    return weights_exchange(replica->shared);
}
