/* The state of a replica: how it begins, which items a checkpoint has, and how
 * ranks share the weights. How optimizers update it is in replica_update.c.
 *
 * Masters are what is true: the fp32 weights, of which those at work are
 * roundings. Everything that changes weights (a first value, a load, an update)
 * changes masters and then publishes: they are rounded, and sent to those who
 * keep them. A checkpoint has tensors by name with the interval that this rank
 * owns, so it does not depend on strategy or ranks, and is read by any. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "src/base/new.h"
#include "src/parallel/replica_impl.h"

/* The host makes so many fresh weights at once for a device. */
#define INIT_ELEMENTS ((int64_t)1 << 20)

int64_t replica_own_at(const struct replica *replica, int block)
{
    const struct owner_block *b = &replica->owner->blocks[block];
    return replica_is_ddp(replica) ? b->begin : b->at;
}

float *replica_own_master(const struct replica *replica, int block)
{
    if (replica->master == NULL)
        return replica_partition(replica, block);
    return replica->master + replica_own_at(replica, block);
}

float *replica_all_masters(const struct replica *replica)
{
    assert(replica_is_ddp(replica));
    return replica->master != NULL ? replica->master
                                   : (float *)(void *)replica->weights;
}

float *replica_master_at(const struct replica *replica, int block,
                         int64_t element)
{
    if (replica_is_ddp(replica))
        return replica_all_masters(replica) + element;
    return replica_own_master(replica, block) +
           (element - replica->owner->blocks[block].begin);
}

static int64_t within(int64_t element, const struct param *param)
{
    int64_t at = element - param->offset;
    return at < 0 ? 0 : at > param->numel ? param->numel : at;
}

/* An item of the tensor's shape, of which this rank has a part: *first is the
 * element of the flat space that its data is to begin with, -1: nothing. */
static struct ckpt_item *add_item(struct replica *replica, const char *prefix,
                                  const struct param *param, int64_t *first)
{
    int block = owner_block_at(replica->owner, param->offset);
    const struct owner_block *b = &replica->owner->blocks[block];
    struct ckpt_item *item = &replica->items[replica->item_count++];
    item->part.begin = within(b->begin, param);
    item->part.end = within(b->end, param);
    item->dtype = DTYPE_F32;
    item->dims = param->dims;
    item->shape[0] = param->shape[0];
    item->shape[1] = param->shape[1];
    snprintf(item->name, sizeof item->name, "%s%s", prefix, param->name);
    *first = item->part.begin < item->part.end
                 ? param->offset + item->part.begin
                 : -1;
    return item;
}

/* Weights, or what is kept of this number beside them. */
static void list_plain(struct replica *replica, const char *prefix, int kept)
{
    for (int p = 0; p < replica->params->count; p++) {
        const struct param *param = &replica->params->list[p];
        int block = owner_block_at(replica->owner, param->offset);
        int64_t first, begin = replica->owner->blocks[block].begin;
        struct ckpt_item *item = add_item(replica, prefix, param, &first);
        if (first < 0 || replica->arena.base == NULL)
            continue;
        item->data = kept < 0
                         ? replica_master_at(replica, block, first)
                         : replica->kept[kept] +
                               replica_own_at(replica, block) + (first - begin);
    }
}

/* Data is NULL while it is planned. */
static void list_moments(struct replica *replica, int moment)
{
    const struct spans_input spans = replica_spans_input(replica);
    for (int p = 0; p < replica->params->count; p++) {
        const struct param *param = &replica->params->list[p];
        const struct optimizer_ops *optimizer = spans_optimizer(&spans, param);
        char prefix[64];
        int64_t first;
        if (moment >= optimizer_moments(optimizer))
            continue;
        snprintf(prefix, sizeof prefix, "optimizer/%s/",
                 optimizer->moments[moment]);
        replica->kept_items[moment * replica->params->count + p] =
            replica->item_count;
        struct ckpt_item *item = add_item(replica, prefix, param, &first);
        if (first < 0 || replica->arena.base == NULL)
            continue;
        const struct span *span = spans_at(replica->spans, first);
        item->data = replica->moments[moment] + span->moment_at[moment] +
                     (first - span->begin);
    }
}

/* Each is whole on the rank that has the tensor's first element. */
static void list_states(struct replica *replica, int state)
{
    const struct spans_input spans = replica_spans_input(replica);
    for (int p = 0; p < replica->params->count; p++) {
        const struct param *param = &replica->params->list[p];
        const struct optimizer_ops *optimizer = spans_optimizer(&spans, param);
        const struct owner_block *b = &replica->owner->blocks[0];
        int64_t shape[2] = { 1, 1 };
        if (state >= optimizer_states(optimizer))
            continue;
        int dims = optimizer->state_shape(replica->params, param, state, shape);
        if (dims == 0)
            continue;
        replica->kept_items[(UPDATE_MOMENTS + state) * replica->params->count +
                            p] = replica->item_count;
        struct ckpt_item *item = &replica->items[replica->item_count++];
        item->dtype = DTYPE_F32;
        item->dims = dims;
        item->shape[0] = shape[0];
        item->shape[1] = shape[1];
        snprintf(item->name, sizeof item->name, "optimizer/%s/%s",
                 optimizer->states[state], param->name);
        if (param->offset < b->begin || param->offset >= b->end)
            continue;
        item->part.end = shape[0] * (dims > 1 ? shape[1] : 1);
        if (replica->arena.base != NULL)
            item->data =
                replica->states +
                spans_at(replica->spans, param->offset)->state_at[state];
    }
}

enum err replica_list_items(struct replica *replica)
{
    char prefix[64];
    size_t kinds = 1 + UPDATE_MOMENTS + OPTIMIZER_STATES + REPLICA_KEPT;
    size_t count = (size_t)replica->params->count * kinds;
    TRY(new_zeroed(&replica->items, count));
    TRY(new_zeroed(&replica->began, count));
    TRY(new_zeroed(&replica->kept_items, count));
    for (size_t i = 0; i < count; i++)
        replica->kept_items[i] = -1;
    replica->item_count = 0;
    list_plain(replica, "", -1);
    for (int i = 0; i < UPDATE_MOMENTS; i++)
        list_moments(replica, i);
    for (int i = 0; i < OPTIMIZER_STATES; i++)
        list_states(replica, i);
    for (int i = 0; i < replica_kept_count(&replica->options); i++)
        if (replica->options.kept[i].saved) {
            snprintf(prefix, sizeof prefix, "algorithms/%s/",
                     replica->options.kept[i].name);
            list_plain(replica, prefix, i);
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

/* A block's new weights on their way to all who have the same shard. */
static enum err start_share(struct replica *replica, int block,
                            enum owner_group group,
                            struct comm_tensors_request **request)
{
    const struct owner_block *b = &replica->owner->blocks[block];
    *request = NULL;
    if (b->degree == replica->owner->ranks)
        return ERR_OK;
    return owner_start_gather(
        replica->owner, replica->tensors, block, group, replica->options.dtype,
        replica_shard(replica, block), b->shard_begin, request);
}

static enum err wait_share(struct comm_tensors_request **request)
{
    struct comm_tensors_request *started = *request;
    *request = NULL;
    return started != NULL ? comm_tensors_wait(started, 0.0) : ERR_OK;
}

/* Block by block; where it comes to the node first, the node's ranks exchange it while
 * the next one comes. */
static enum err share_block(struct replica *replica, int b,
                            struct comm_tensors_request *far[2],
                            struct comm_tensors_request *near[2])
{
    const struct owner *owner = replica->owner;
    int count = owner->block_count;
    if (b < count)
        TRY(start_share(replica, b,
                        owner_gather_begin(owner, b, OWNER_REPLICA_GROUP),
                        &far[b % 2]));
    if (b > 1)
        TRY(wait_share(&near[b % 2]));
    if (b == 0 || b > count)
        return ERR_OK;
    TRY(wait_share(&far[(b - 1) % 2]));
    if (owner_gather_begin(owner, b - 1, OWNER_REPLICA_GROUP) != OWNER_FAR)
        return ERR_OK;
    return start_share(replica, b - 1, OWNER_NODE, &near[(b - 1) % 2]);
}

static enum err share_blocks(struct replica *replica)
{
    struct comm_tensors_request *far[2] = { NULL }, *near[2] = { NULL };
    enum err rc = ERR_OK;
    for (int b = 0; b < replica->owner->block_count + 2 && rc == ERR_OK; b++) {
        comm_tensors_together(replica->tensors);
        rc = comm_tensors_together_end(replica->tensors,
                                       share_block(replica, b, far, near));
    }
    return rc;
}

static enum err share_weights(struct replica *replica)
{
    if (replica->shared != NULL)
        return shared_weights_exchange(replica->shared);
    if (replica->owner->block_count == 1)
        return reduce_gather(replica->tensors, replica->params->elements,
                             replica->owner->cut, replica->options.dtype,
                             replica->weights);
    if (replica->gather != NULL)
        gather_forget(replica->gather);
    return share_blocks(replica);
}

static enum err round_weights(const struct replica *replica, int64_t elements,
                              const float *master, void *weights)
{
    if (master == weights || elements == 0)
        return ERR_OK;
    return replica->kernels->convert(replica->ctx, elements, DTYPE_F32, master,
                                     replica->options.dtype, weights);
}

/* The masters of all partitions have changed: their weights go to those who keep
 * them. */
static enum err publish(struct replica *replica)
{
    for (int i = 0; i < replica->owner->block_count; i++) {
        const struct owner_block *b = &replica->owner->blocks[i];
        TRY(round_weights(replica, b->end - b->begin,
                          replica_own_master(replica, i),
                          replica_partition(replica, i)));
    }
    return share_weights(replica);
}

static enum err publish_ddp(struct replica *replica)
{
    return round_weights(replica, replica->params->elements,
                         replica_all_masters(replica), replica->weights);
}

enum err replica_publish(struct replica *replica)
{
    return replica_is_ddp(replica) ? publish_ddp(replica) : publish(replica);
}

enum err replica_loaded(struct replica *replica)
{
    int64_t elements = replica->params->elements;
    if (!replica_is_ddp(replica))
        return publish(replica);
    TRY(reduce_gather(replica->tensors, elements, replica->owner->cut,
                      DTYPE_F32, replica_all_masters(replica)));
    const struct spans *spans = replica->spans;
    for (int i = 0; i < UPDATE_MOMENTS; i++)
        if (spans->moments[i] > 0)
            TRY(reduce_gather(replica->tensors, spans->moments[i],
                              spans->moment_cut[i], DTYPE_F32,
                              replica->moments[i]));
    if (spans->states > 0)
        TRY(reduce_gather(replica->tensors, spans->states, spans->state_cut,
                          DTYPE_F32, replica->states));
    for (int i = 0; i < replica_kept_count(&replica->options); i++)
        if (replica->options.kept[i].saved)
            TRY(reduce_gather(replica->tensors, elements, replica->owner->cut,
                              DTYPE_F32, replica->kept[i]));
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

/* What optimizers keep begins as zeros. */
static enum err begin_kept(struct replica *replica)
{
    const struct kernels *kernels = replica->kernels;
    for (int m = 0; m < UPDATE_MOMENTS; m++)
        if (replica->spans->moments[m] > 0)
            TRY(kernels->zero(replica->ctx, DTYPE_F32,
                              replica->spans->moments[m], replica->moments[m]));
    if (replica->spans->states > 0)
        TRY(kernels->zero(replica->ctx, DTYPE_F32, replica->spans->states,
                          replica->states));
    int64_t elements = replica_is_ddp(replica) ? replica->params->elements
                                               : replica->owner->own;
    for (int i = 0; i < replica_kept_count(&replica->options); i++)
        TRY(kernels->zero(replica->ctx, DTYPE_F32, elements, replica->kept[i]));
    return ERR_OK;
}

/* The masters of this rank's partition of a block. */
static enum err begin_partition(struct replica *replica, uint64_t seed,
                                const struct replica_source *source, int block,
                                struct arena *host)
{
    const struct owner_block *b = &replica->owner->blocks[block];
    float *master = replica_own_master(replica, block);
    if (b->begin == b->end)
        return ERR_OK;
    return host->base != NULL
               ? upload_values(replica, seed, source, b, master, host)
               : make_values(replica, seed, source, b->begin, b->end, master);
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
        rc = begin_partition(replica, seed, source, i, &host);
    if (rc == ERR_OK)
        rc = begin_kept(replica);
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

/* Sums of squares of the summed gradient's chunks, which lie packed or not. */
static enum err sum_chunks(const struct replica *replica, double *sums)
{
    const struct owner *owner = replica->owner;
    bool packed = replica->scatter != NULL;
    for (int i = 0; i < (packed ? 1 : owner->block_count); i++) {
        const struct owner_block *b = &owner->blocks[i];
        int64_t n = packed ? owner->own : b->end - b->begin;
        if (n > 0)
            TRY(replica->kernels->chunk_sum_squares(
                replica->ctx, DTYPE_F32, n,
                replica_gradient_at(replica, i, b->begin),
                sums + b->at / KERNEL_CHUNK));
    }
    return ERR_OK;
}

/* Brings this rank's sums of squares into the host's memory. */
static enum err sum_squares(struct replica *replica)
{
    enum err rc = ERR_OK;
    const struct owner *owner = replica->owner;
    const struct kernels *kernels = replica->kernels;
    double *host = replica->chunk_sums;
    double *sums = replica->own_sums != NULL ? replica->own_sums : host;
    TRY_OUT(sum_chunks(replica, sums));
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

int64_t replica_kept_began(const struct replica *replica, int kind, int tensor)
{
    int item = replica->kept_items[kind * replica->params->count + tensor];
    return item >= 0 ? replica->began[item] : 0;
}
