/* Gathers whole blocks of sharded weights into a few buffers, ahead of their
 * use, and keeps each until another block needs its buffer.
 *
 * Under zero3 (ZeRO, Rajbhandari et al. 2020; FSDP) no rank has all weights,
 * and a model that waited for each block would compute half the time. But the
 * order of blocks is the same in every leaf, and access_trace.c has written it
 * down. So a block's gather begins `prefetch` blocks before its use, into
 * the buffer that was of use longest ago, and where backward follows forward
 * its last blocks are still there and come for nothing. Gradients go the other
 * way in scatter.c.
 *
 * On several nodes a block comes to each of them once (owner.h), and then goes round in
 * the node: beside the model where it is gathered two blocks ahead, else when it is
 * wanted. */
#include "src/parallel/gather.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/arena.h"
#include "src/base/new.h"

#define NO_BLOCK (-1)
/* Gathers in flight at once: a communicator has requests for 64 collectives,
 * and gradients travel meanwhile. */
#define IN_FLIGHT_MAX 32

struct buffer {
    char *data;
    int block; /* whose weights it has, or is getting */
    int users;
    struct comm_tensors_request *request; /* NULL: they are here */
    bool far;       /* between nodes, the node's ranks exchange after it */
    int64_t begun;  /* in which call */
    int64_t wanted; /* when it was of use last */
};

struct gather {
    struct gather_place at;
    int prefetch;
    enum dtype dtype;
    const char *shard;
    struct arena arena;
    /* two of the ends, then for each kind of a layer's blocks `depth` */
    struct buffer *buffers;
    int buffer_count, depth, kinds;
    int in_flight;
    int64_t clock, calls;
};

/* Buffers of each kind of a layer's blocks. */
static int buffer_depth(const struct params *params, int prefetch)
{
    int layers = params_layer(params, params->block_count - 1);
    return prefetch + 1 < layers ? prefetch + 1 : layers;
}

/* Blocks of a layer that are gathered: experts that are apart follow the
 * others. */
static int gathered_kinds(const struct params *params,
                          const struct owner *owner)
{
    int kinds = params->layer_blocks;
    int first = params_layer_block(params, 0);
    while (owner->blocks[first + kinds - 1].apart)
        kinds--;
    return kinds;
}

/* Lays the buffers out in the arena; with buffers NULL it only counts them. */
static void gather_layout(const struct params *params, int depth, int kinds,
                          enum dtype dtype, struct buffer *buffers,
                          struct arena *arena)
{
    int buffer = 0;
    for (int place = 0; place < TRACE_LAYER + kinds; place++) {
        size_t bytes = (size_t)access_trace_place_elements(params, place) *
                       dtype_bytes(dtype);
        int count = place < TRACE_LAYER ? 1 : depth;
        for (int i = 0; i < count; i++, buffer++) {
            char *data = arena_take(arena, bytes);
            if (buffers != NULL)
                buffers[buffer] =
                    (struct buffer){ .data = data, .block = NO_BLOCK };
        }
    }
}

size_t gather_plan(const struct params *params, const struct owner *owner,
                   int prefetch, enum dtype dtype)
{
    struct arena plan = { 0 };
    gather_layout(params, buffer_depth(params, prefetch),
                  gathered_kinds(params, owner), dtype, NULL, &plan);
    return plan.used;
}

enum err gather_create(const struct gather_place *place, int prefetch,
                       enum dtype dtype, const void *shard, struct gather **out)
{
    enum err rc = ERR_OK;
    const struct params *params = place->params;
    struct gather *gather = NULL;
    TRY(new_zeroed(&gather, 1));
    *gather = (struct gather){
        .at = *place, .prefetch = prefetch, .dtype = dtype, .shard = shard
    };
    gather->depth = buffer_depth(params, prefetch);
    gather->kinds = gathered_kinds(params, place->owner);
    gather->buffer_count = TRACE_LAYER + gather->depth * gather->kinds;
    TRY_OUT(new_zeroed(&gather->buffers, (size_t)gather->buffer_count));
    TRY_OUT(place->memory->tensors_create(
        gather_plan(params, place->owner, prefetch, dtype), &gather->arena));
    gather_layout(params, gather->depth, gather->kinds, dtype, gather->buffers,
                  &gather->arena);
out:
    return new_or_none(rc, gather, out, gather_destroy);
}

void gather_destroy(struct gather *gather)
{
    if (gather == NULL)
        return;
    gather->at.memory->tensors_destroy(&gather->arena);
    free(gather->buffers);
    free(gather);
}

/* The buffers that a block may be in are [*first, *end). */
static void buffers_for(const struct gather *gather, int block, int *first,
                        int *end)
{
    int place = access_trace_place(gather->at.params, block);
    int depth = place < TRACE_LAYER ? 1 : gather->depth;
    *first = place < TRACE_LAYER ? place
                                 : TRACE_LAYER + (place - TRACE_LAYER) * depth;
    *end = *first + depth;
}

static struct buffer *find_buffer(struct gather *gather, int block)
{
    int first, end;
    buffers_for(gather, block, &first, &end);
    for (int i = first; i < end; i++)
        if (gather->buffers[i].block == block)
            return &gather->buffers[i];
    return NULL;
}

/* Copies the rank's own shard to its place in the block. */
static enum err copy_own(const struct gather *gather, int block, char *data)
{
    const struct owner_block *b = &gather->at.owner->blocks[block];
    size_t item = dtype_bytes(gather->dtype);
    return gather->at.memory->copy(
        gather->at.ctx->stream, (size_t)(b->shard_end - b->shard_begin) * item,
        gather->shard + (size_t)b->shard_at * item,
        data + (size_t)(b->shard_begin - b->offset) * item);
}

static enum err start(struct gather *gather, struct buffer *buffer,
                      enum owner_group group)
{
    int64_t offset = gather->at.owner->blocks[buffer->block].offset;
    buffer->far = group == OWNER_FAR;
    return owner_start_gather(gather->at.owner, gather->at.tensors,
                              buffer->block, group, gather->dtype, buffer->data,
                              offset, &buffer->request);
}

/* Start to gather into the free buffer that was of use longest ago, and not
 * wanted since `before`; NULL: there is none. */
static enum err fetch(struct gather *gather, int block, int64_t before,
                      struct buffer **out)
{
    struct buffer *buffer = NULL;
    int first, end;
    buffers_for(gather, block, &first, &end);
    for (int i = first; i < end; i++) {
        struct buffer *other = &gather->buffers[i];
        if (other->users == 0 && other->request == NULL &&
            other->wanted <= before &&
            (buffer == NULL || other->wanted < buffer->wanted))
            buffer = other;
    }
    *out = buffer;
    if (buffer == NULL)
        return ERR_OK;
    buffer->block = NO_BLOCK;
    TRY(copy_own(gather, block, buffer->data));
    buffer->block = block;
    buffer->begun = gather->calls;
    enum err rc =
        start(gather, buffer,
              owner_gather_begin(gather->at.owner, block, OWNER_SHARD_GROUP));
    if (rc != ERR_OK)
        buffer->block = NO_BLOCK;
    gather->in_flight += rc == ERR_OK;
    return rc;
}

/* Waits for what is under way, and starts what follows it: false, nothing. */
static enum err go_on(struct gather *gather, struct buffer *buffer, bool *more)
{
    struct comm_tensors_request *request = buffer->request;
    bool far = buffer->far;
    buffer->request = NULL;
    *more = far;
    TRY(comm_tensors_wait(request, 0.0));
    return far ? start(gather, buffer, OWNER_NODE) : ERR_OK;
}

/* What was begun in an earlier call goes on within the node, while the model computes. */
static enum err go_on_ahead(struct gather *gather)
{
    bool more;
    for (int i = 0; i < gather->buffer_count; i++) {
        struct buffer *buffer = &gather->buffers[i];
        if (buffer->request != NULL && buffer->far &&
            buffer->begun < gather->calls)
            TRY(go_on(gather, buffer, &more));
    }
    return ERR_OK;
}

/* The blocks that the trace gathers next, as far as there are buffers and
 * requests for them: what is wanted sooner is not given up for what is wanted
 * later, where layers have more kinds of blocks than are gathered. What arrives
 * meanwhile is moved on. */
static enum err fetch_ahead(struct gather *gather)
{
    const struct trace_call *call;
    int64_t before = gather->clock;
    int left = gather->prefetch * gather->kinds;
    for (int i = 0; left > 0; i++) {
        call = access_trace_look(gather->at.trace, i);
        if (call == NULL)
            break;
        if (call->kind != TRACE_GATHER ||
            gather->at.owner->blocks[call->block].apart)
            continue;
        left--;
        struct buffer *buffer = find_buffer(gather, call->block);
        if (buffer == NULL && gather->in_flight < IN_FLIGHT_MAX)
            TRY(fetch(gather, call->block, before, &buffer));
        if (buffer == NULL)
            break;
        buffer->wanted = ++gather->clock;
        if (buffer->request != NULL)
            comm_tensors_test(buffer->request);
    }
    return ERR_OK;
}

static enum err finish_and_ahead(struct gather *gather, struct buffer *buffer)
{
    enum err rc = ERR_OK;
    TRY(fetch_ahead(gather));
    if (buffer->request != NULL) {
        bool more = true;
        gather->in_flight--;
        while (more && rc == ERR_OK)
            rc = go_on(gather, buffer, &more);
        if (rc != ERR_OK)
            buffer->block = NO_BLOCK;
    }
    return rc == ERR_OK ? go_on_ahead(gather) : rc;
}

/* What comes to the node of one block, and goes round in it of another, at once; what is
 * wanted now, before. */
enum err gather_block(struct gather *gather, int block, const void **weights)
{
    struct buffer *buffer = find_buffer(gather, block);
    gather->calls++;
    if (buffer == NULL)
        TRY(fetch(gather, block, gather->clock, &buffer));
    assert(buffer != NULL);
    buffer->users++;
    buffer->wanted = ++gather->clock;
    *weights = buffer->data;
    comm_tensors_together(gather->at.tensors);
    return comm_tensors_together_end(gather->at.tensors,
                                     finish_and_ahead(gather, buffer));
}

void gather_release(struct gather *gather, int block)
{
    struct buffer *buffer = find_buffer(gather, block);
    assert(buffer != NULL && buffer->users > 0);
    buffer->users--;
}

void gather_forget(struct gather *gather)
{
    for (int i = 0; i < gather->buffer_count; i++) {
        assert(gather->buffers[i].users == 0 &&
               gather->buffers[i].request == NULL);
        gather->buffers[i].block = NO_BLOCK;
    }
}
