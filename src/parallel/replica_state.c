/* The state of a replica: how it begins, changes, is saved and is shared. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/parallel/replica_impl.h"

#define REPLICA_KINDS 3 /* weights and two moments */

static bool is_ddp(const struct replica *replica)
{
    return replica->options.strategy == REPLICA_DDP;
}

/* Where the moments of this rank's piece lie in the arena of one moment. */
static int64_t moments_at(const struct replica *replica, int block)
{
    const struct owner_block *b = &replica->owner->blocks[block];
    return is_ddp(replica) ? b->begin : b->at;
}

static void item_set(struct ckpt_item *item, const struct param *param,
                     const struct owner_block *b, const char *prefix,
                     float *piece)
{
    int64_t first = b->begin - param->offset;
    int64_t last = b->end - param->offset;
    item->part.begin = first < 0              ? 0
                       : first > param->numel ? param->numel
                                              : first;
    item->part.end = last < 0 ? 0 : last > param->numel ? param->numel : last;
    item->dtype = DTYPE_F32;
    item->dims = param->dims;
    item->shape[0] = param->shape[0];
    item->shape[1] = param->shape[1];
    snprintf(item->name, sizeof item->name, "%s%s", prefix, param->name);
    if (piece != NULL && item->part.begin < item->part.end)
        item->data = piece + (param->offset + item->part.begin - b->begin);
}

enum err replica_list_items(struct replica *replica)
{
    const struct params *params = replica->params;
    bool planned = replica->weights == NULL;
    replica->item_count = params->count * REPLICA_KINDS;
    replica->items =
        calloc((size_t)replica->item_count, sizeof replica->items[0]);
    if (replica->items == NULL)
        return err_set(ERR_MEMORY, "replica: out of memory");
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        int block = replica->owner->block_count > 1 ? param->block : 0;
        const struct owner_block *b = &replica->owner->blocks[block];
        int64_t at = moments_at(replica, block);
        item_set(&replica->items[p], param, b, "",
                 replica_piece(replica, block));
        item_set(&replica->items[params->count + p], param, b,
                 "optimizer/exp_avg/", planned ? NULL : replica->exp_avg + at);
        item_set(&replica->items[2 * params->count + p], param, b,
                 "optimizer/exp_avg_sq/",
                 planned ? NULL : replica->exp_avg_sq + at);
    }
    return ERR_OK;
}

const struct ckpt_item *replica_items(const struct replica *replica, int *count)
{
    *count = replica->item_count;
    return replica->items;
}

static enum err start_share(struct replica *replica, int block,
                            struct comm_request **request)
{
    const struct owner_block *b = &replica->owner->blocks[block];
    *request = NULL;
    if (b->degree == replica->owner->ranks)
        return ERR_OK;
    return owner_start_gather(
        replica->owner, replica->comm, block, OWNER_REPLICA_GROUP,
        replica_piece(replica, block), replica_shard(replica, block),
        b->shard_begin, request);
}

/* Weights go to all who have the same shard. */
static enum err share_weights(struct replica *replica)
{
    enum err rc = ERR_OK;
    struct comm_request *requests[2] = { NULL };
    int count = replica->owner->block_count;
    if (replica->shared != NULL)
        return weights_exchange(replica->shared);
    if (!replica_by_block(&replica->options))
        return reduce_gather(replica->comm, replica->params->elements,
                             replica->weights);
    if (replica->gather != NULL)
        gather_forget(replica->gather);
    for (int b = 0; b <= count; b++) {
        if (b < count)
            TRY(start_share(replica, b, &requests[b % 2]));
        if (b > 0 && requests[(b - 1) % 2] != NULL)
            TRY(comm_wait(requests[(b - 1) % 2], 0.0));
    }
out:
    return rc;
}

enum err replica_loaded(struct replica *replica)
{
    enum err rc = ERR_OK;
    TRY(share_weights(replica));
    if (!is_ddp(replica))
        return ERR_OK;
    TRY(reduce_gather(replica->comm, replica->params->elements,
                      replica->exp_avg));
    TRY(reduce_gather(replica->comm, replica->params->elements,
                      replica->exp_avg_sq));
out:
    return rc;
}

enum err replica_init(struct replica *replica, uint64_t seed)
{
    for (int i = 0; i < replica->owner->block_count; i++) {
        const struct owner_block *b = &replica->owner->blocks[i];
        size_t bytes = (size_t)(b->end - b->begin) * sizeof(float);
        int64_t at = moments_at(replica, i);
        params_init(replica->params, seed, b->begin, b->end,
                    replica_piece(replica, i));
        memset(replica->exp_avg + at, 0, bytes);
        memset(replica->exp_avg_sq + at, 0, bytes);
    }
    return replica_loaded(replica);
}

enum err replica_gradient_norm(struct replica *replica, double *norm)
{
    enum err rc = ERR_OK;
    const struct owner *owner = replica->owner;
    double sum = 0.0;
    assert(replica->gradient != NULL || owner->own == 0);
    if (owner->own > 0)
        TRY(replica->kernels->chunk_sum_squares(
            replica->ctx, DTYPE_F32, owner->own, replica->gradient,
            replica->chunk_sums + owner_chunks_at(owner, owner->rank)));
    TRY(owner_chunk_sum(owner, replica->comm, replica->chunk_sums, &sum));
    *norm = sqrt(sum);
out:
    return rc;
}

/* Every rank has the whole total, and updates everything. */
static enum err update_ddp(struct replica *replica, const struct adamw *step)
{
    const float *total = replica->gradient - replica->owner->blocks[0].begin;
    return replica->kernels->adamw(replica->ctx, DTYPE_F32,
                                   replica->params->elements, step,
                                   replica->weights, total, replica->exp_avg,
                                   replica->exp_avg_sq);
}

enum err replica_update(struct replica *replica, const struct adamw *step)
{
    enum err rc = ERR_OK;
    if (is_ddp(replica))
        return update_ddp(replica, step);
    for (int i = 0; i < replica->owner->block_count; i++) {
        const struct owner_block *b = &replica->owner->blocks[i];
        if (b->end > b->begin)
            TRY(replica->kernels->adamw(
                replica->ctx, DTYPE_F32, b->end - b->begin, step,
                replica_piece(replica, i), replica->gradient + b->at,
                replica->exp_avg + b->at, replica->exp_avg_sq + b->at));
    }
    TRY(share_weights(replica));
out:
    return rc;
}
