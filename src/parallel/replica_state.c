/* The state of a replica: how it begins, how the optimizer updates it, which
 * items a checkpoint has, and how ranks share the weights. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/parallel/replica_impl.h"

/* The host makes so many fresh weights at once for a device. */
#define INIT_ELEMENTS ((int64_t)1 << 20)

static bool is_ddp(const struct replica *replica)
{
    return replica->options.strategy == REPLICA_DDP;
}

/* Where what the optimizer keeps of this rank's piece of a block lies, in the
 * arena of each. */
static int64_t piece_at(const struct replica *replica, int block)
{
    const struct owner_block *b = &replica->owner->blocks[block];
    return is_ddp(replica) ? b->begin : b->at;
}

/* The fp32 weights of the piece, which the optimizer updates. */
static float *master_piece(const struct replica *replica, int block)
{
    if (replica->master == NULL)
        return replica_piece(replica, block);
    return replica->master + piece_at(replica, block);
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

/* Lists one kind of checkpoint items; data is that of this rank's pieces, NULL
 * while it is planned. */
static void list_kind(struct replica *replica, const char *prefix, float *data)
{
    const struct params *params = replica->params;
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        int block = replica->owner->block_count > 1 ? param->block : 0;
        float *piece = NULL;
        if (replica->arena.base != NULL)
            piece = data != NULL ? data + piece_at(replica, block)
                                 : replica_piece(replica, block);
        item_set(&replica->items[replica->item_count++], param,
                 &replica->owner->blocks[block], prefix, piece);
    }
}

enum err replica_list_items(struct replica *replica)
{
    const struct optimizer_ops *optimizer = replica->options.optimizer;
    int moments = optimizer_moments(optimizer);
    size_t count = (size_t)replica->params->count * (size_t)(1 + moments);
    replica->items = calloc(count, sizeof replica->items[0]);
    replica->began = calloc(count, sizeof replica->began[0]);
    if (replica->items == NULL || replica->began == NULL)
        return err_set(ERR_MEMORY, "replica: out of memory");
    replica->item_count = 0;
    list_kind(replica, "", replica->master);
    for (int i = 0; i < moments; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "optimizer/%s/", optimizer->moments[i]);
        list_kind(replica, prefix, replica->moments[i]);
    }
    return ERR_OK;
}

const struct ckpt_item *replica_items(const struct replica *replica, int *count)
{
    *count = replica->item_count;
    return replica->items;
}

void replica_set_began(struct replica *replica, int item, int64_t steps)
{
    assert(item >= 0 && item < replica->item_count && steps >= 0);
    replica->began[item] = steps;
}

int64_t replica_began(const struct replica *replica, int item)
{
    assert(item >= 0 && item < replica->item_count);
    return replica->began[item];
}

static enum err start_share(struct replica *replica, int block,
                            struct comm_tensors_request **request)
{
    const struct owner_block *b = &replica->owner->blocks[block];
    *request = NULL;
    if (b->degree == replica->owner->ranks)
        return ERR_OK;
    return owner_start_gather(replica->owner, replica->tensors, block,
                              OWNER_REPLICA_GROUP, replica->options.dtype,
                              replica_shard(replica, block), b->shard_begin,
                              request);
}

/* Starts to send a block's new weights to all who have the same shard. */
static enum err share_weights(struct replica *replica)
{
    struct comm_tensors_request *requests[2] = { NULL };
    int count = replica->owner->block_count;
    if (replica->shared != NULL)
        return shared_weights_exchange(replica->shared);
    if (!replica_by_block(&replica->options))
        return reduce_gather(replica->tensors, replica->params->elements,
                             replica->owner->cut, replica->options.dtype,
                             replica->weights);
    if (replica->gather != NULL)
        gather_forget(replica->gather);
    for (int b = 0; b <= count; b++) {
        if (b < count)
            TRY(start_share(replica, b, &requests[b % 2]));
        if (b > 0 && requests[(b - 1) % 2] != NULL)
            TRY(comm_tensors_wait(requests[(b - 1) % 2], 0.0));
    }
    return ERR_OK;
}

static enum err round_weights(const struct replica *replica, int64_t elements,
                              const float *master, void *weights)
{
    if (master == weights || elements == 0)
        return ERR_OK;
    return replica->kernels->convert(replica->ctx, elements, DTYPE_F32, master,
                                     replica->options.dtype, weights);
}

/* The masters of all pieces have changed: their weights go to those who keep
 * them. */
static enum err publish(struct replica *replica)
{
    for (int i = 0; i < replica->owner->block_count; i++) {
        const struct owner_block *b = &replica->owner->blocks[i];
        TRY(round_weights(replica, b->end - b->begin, master_piece(replica, i),
                          replica_piece(replica, i)));
    }
    return share_weights(replica);
}

/* All masters, which every rank has under ddp. */
static float *masters(const struct replica *replica)
{
    return replica->master != NULL ? replica->master
                                   : (float *)(void *)replica->weights;
}

static enum err publish_ddp(struct replica *replica)
{
    return round_weights(replica, replica->params->elements, masters(replica),
                         replica->weights);
}

enum err replica_loaded(struct replica *replica)
{
    int64_t elements = replica->params->elements;
    if (!is_ddp(replica))
        return publish(replica);
    TRY(reduce_gather(replica->tensors, elements, replica->owner->cut,
                      DTYPE_F32, masters(replica)));
    for (int i = 0; i < optimizer_moments(replica->options.optimizer); i++)
        TRY(reduce_gather(replica->tensors, elements, replica->owner->cut,
                          DTYPE_F32, replica->moments[i]));
    return publish_ddp(replica);
}

/* Elements [begin, end) of the flat space: fresh, and what is put over them. */
static enum err make_values(const struct replica *replica, uint64_t seed,
                            const struct replica_source *source, int64_t begin,
                            int64_t end, float *out)
{
    params_init(replica->params, seed, begin, end, out);
    return source != NULL
               ? source->fill(source->arg, replica->params, begin, end, out)
               : ERR_OK;
}

/* Makes them in the host's memory and uploads them part by part. */
static enum err upload_values(struct replica *replica, uint64_t seed,
                              const struct replica_source *source,
                              const struct owner_block *b, float *master,
                              struct arena *host)
{
    const struct kernel_memory *memory = replica->kernels->memory;
    void *stream = replica->ctx->stream;
    float *values = (float *)(void *)host->base;
    for (int64_t at = b->begin; at < b->end; at += INIT_ELEMENTS) {
        int64_t end = b->end - at < INIT_ELEMENTS ? b->end : at + INIT_ELEMENTS;
        TRY(make_values(replica, seed, source, at, end, values));
        TRY(memory->upload(stream, (size_t)(end - at) * sizeof(float), values,
                           master + (at - b->begin)));
        TRY(memory->wait(stream));
    }
    return ERR_OK;
}

/* The masters of this rank's piece of a block, and moments of zeros. */
static enum err begin_piece(struct replica *replica, uint64_t seed,
                            const struct replica_source *source, int block,
                            struct arena *host)
{
    const struct kernels *kernels = replica->kernels;
    const struct owner_block *b = &replica->owner->blocks[block];
    float *master = master_piece(replica, block);
    int64_t at = piece_at(replica, block);
    if (b->begin == b->end)
        return ERR_OK;
    if (host->base != NULL)
        TRY(upload_values(replica, seed, source, b, master, host));
    else
        TRY(make_values(replica, seed, source, b->begin, b->end, master));
    for (int m = 0; m < optimizer_moments(replica->options.optimizer); m++)
        TRY(kernels->zero(replica->ctx, DTYPE_F32, b->end - b->begin,
                          replica->moments[m] + at));
    return ERR_OK;
}

enum err replica_init(struct replica *replica, uint64_t seed,
                      const struct replica_source *source)
{
    enum err rc = ERR_OK;
    const struct kernel_memory *memory = replica->kernels->memory;
    struct arena host = { 0 };
    if (memory->device)
        rc = memory->host_create((size_t)INIT_ELEMENTS * sizeof(float), &host);
    for (int i = 0; i < replica->owner->block_count && rc == ERR_OK; i++)
        rc = begin_piece(replica, seed, source, i, &host);
    TRY_OUT(comm_agree(replica->comm, rc));
    TRY_OUT(replica_loaded(replica));
out:
    memory->host_destroy(&host);
    return rc;
}

enum err replica_init_frozen(struct replica *replica, uint64_t seed,
                             const struct replica_source *source)
{
    return replica->frozen != NULL ? frozen_fill(replica->frozen, seed, source)
                                   : ERR_OK;
}

enum err replica_settle(struct replica *replica)
{
    return comm_tensors_settle(replica->tensors, 0.0);
}

/* Brings this rank's sums of squares into the host's memory. */
static enum err sum_squares(struct replica *replica)
{
    enum err rc = ERR_OK;
    const struct owner *owner = replica->owner;
    const struct kernels *kernels = replica->kernels;
    double *host = replica->chunk_sums + owner_chunks_at(owner, owner->rank);
    double *sums = replica->own_sums != NULL ? replica->own_sums : host;
    if (owner->own > 0)
        TRY_OUT(kernels->chunk_sum_squares(replica->ctx, DTYPE_F32, owner->own,
                                           replica->gradient, sums));
    if (owner->own > 0 && sums != host)
        TRY_OUT(kernels->memory->download(
            replica->ctx->stream,
            (size_t)(owner->own / KERNEL_CHUNK) * sizeof *sums, sums, host));
out:
    /* collective, also for a rank that has failed */
    if (rc != ERR_OK) {
        (void)replica_settle(replica);
        return rc;
    }
    return replica_settle(replica);
}

enum err replica_gradient_norm(struct replica *replica, double *norm)
{
    double sum = 0.0;
    assert(replica->gradient != NULL || replica->owner->own == 0);
    TRY(sum_squares(replica));
    TRY(owner_chunk_sum(replica->owner, replica->comm, replica->chunk_sums,
                        &sum));
    *norm = sqrt(sum);
    return ERR_OK;
}

/* When moment m of a tensor began. */
static int64_t began(const struct replica *replica, int moment, int param)
{
    return replica->began[(1 + moment) * replica->params->count + param];
}

/* Whether the moments of a tensor and of the next began together. */
static bool began_together(const struct replica *replica, int param)
{
    bool same = true;
    for (int i = 0; i < optimizer_moments(replica->options.optimizer); i++)
        same = same && began(replica, i, param) == began(replica, i, param + 1);
    return same;
}

/* Elements [from, to) of the piece, whose moments began with the tensor's. */
static enum err optimize_run(const struct replica *replica,
                             const struct optimizer_step *step,
                             const struct optimizer_piece *piece, int param,
                             int64_t from, int64_t to)
{
    const struct optimizer_ops *optimizer = replica->options.optimizer;
    struct optimizer_step own = *step;
    struct optimizer_piece run = *piece;
    run.begin += from;
    run.elements = to - from;
    run.weights += from;
    run.gradient += from;
    for (int i = 0; i < optimizer_moments(optimizer); i++) {
        run.moments[i] += from;
        own.began[i] = began(replica, i, param);
    }
    return optimizer->update(&own, replica->kernels, replica->ctx, &run);
}

/* Updates `elements` masters by their gradient: those from `begin` on in the
 * flat space, whose moments are at `at`. At once, but where moments of
 * neighbours began at different steps. */
static enum err optimize(const struct replica *replica,
                         const struct optimizer_step *step, int64_t begin,
                         int64_t elements, float *master, const float *gradient,
                         int64_t at)
{
    const struct params *params = replica->params;
    int64_t done = 0;
    struct optimizer_piece piece = { .params = params,
                                     .begin = begin,
                                     .elements = elements,
                                     .weights = master,
                                     .gradient = gradient };
    for (int i = 0; i < optimizer_moments(replica->options.optimizer); i++)
        piece.moments[i] = replica->moments[i] + at;
    for (int p = 0; p < params->count && done < elements; p++) {
        bool last = p + 1 == params->count;
        int64_t end = last ? elements : params->list[p + 1].offset - begin;
        if (end <= done || (end < elements && began_together(replica, p)))
            continue;
        end = end < elements ? end : elements;
        TRY(optimize_run(replica, step, &piece, p, done, end));
        done = end;
    }
    return ERR_OK;
}

/* Under ddp every rank has the whole total, and updates everything. */
static enum err update_ddp(struct replica *replica,
                           const struct optimizer_step *step)
{
    const float *total = replica->gradient - replica->owner->blocks[0].begin;
    TRY(optimize(replica, step, 0, replica->params->elements, masters(replica),
                 total, 0));
    return publish_ddp(replica);
}

enum err replica_update(struct replica *replica,
                        const struct optimizer_step *step)
{
    if (is_ddp(replica))
        return update_ddp(replica, step);
    for (int i = 0; i < replica->owner->block_count; i++) {
        const struct owner_block *b = &replica->owner->blocks[i];
        if (b->end > b->begin)
            TRY(optimize(replica, step, b->begin, b->end - b->begin,
                         master_piece(replica, i), replica->gradient + b->at,
                         b->at));
    }
    return publish(replica);
}
