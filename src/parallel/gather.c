/* Gathers whole blocks of sharded weights into a few buffers, ahead of their
 * use, and keeps each until another block needs its buffer. Gradients go the
 * other way in scatter.c; the order of blocks comes from access_trace.c. */
#include "src/parallel/gather.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/arena.h"

#define NO_BLOCK (-1)
/* Gathers in flight at once: a communicator has requests for 64 collectives,
 * and gradients travel meanwhile. */
#define IN_FLIGHT_MAX 32

struct room {
    char *data;
    int block; /* whose weights it has, or is getting */
    int users;
    struct comm_tensors_request *request; /* NULL: they are here */
    int64_t wanted;                       /* when it was of use last */
};

struct gather {
    struct gather_place at;
    int prefetch;
    enum dtype dtype;
    const char *shard;
    struct arena arena;
    /* two of the ends, then for each kind of a layer's blocks `depth` */
    struct room *rooms;
    int room_count, depth, kinds;
    int in_flight;
    int64_t clock;
};

/* Rooms of each kind of a layer's blocks. */
static int rooms_deep(const struct params *params, int prefetch)
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

/* Lays the rooms out in the arena; with rooms NULL it only counts them. */
static void gather_layout(const struct params *params, int depth, int kinds,
                          enum dtype dtype, struct room *rooms,
                          struct arena *arena)
{
    int room = 0;
    for (int place = 0; place < TRACE_LAYER + kinds; place++) {
        size_t bytes = (size_t)access_trace_place_elements(params, place) *
                       dtype_bytes(dtype);
        int count = place < TRACE_LAYER ? 1 : depth;
        for (int i = 0; i < count; i++, room++) {
            char *data = arena_take(arena, bytes);
            if (rooms != NULL)
                rooms[room] = (struct room){ .data = data, .block = NO_BLOCK };
        }
    }
}

size_t gather_plan(const struct params *params, const struct owner *owner,
                   int prefetch, enum dtype dtype)
{
    struct arena plan = { 0 };
    gather_layout(params, rooms_deep(params, prefetch),
                  gathered_kinds(params, owner), dtype, NULL, &plan);
    return plan.used;
}

enum err gather_create(const struct gather_place *place, int prefetch,
                       enum dtype dtype, const void *shard, struct gather **out)
{
    enum err rc = ERR_OK;
    const struct params *params = place->params;
    struct gather *gather = calloc(1, sizeof *gather);
    if (gather == NULL)
        return err_set(ERR_MEMORY, "weights: out of memory");
    *gather = (struct gather){
        .at = *place, .prefetch = prefetch, .dtype = dtype, .shard = shard
    };
    gather->depth = rooms_deep(params, prefetch);
    gather->kinds = gathered_kinds(params, place->owner);
    gather->room_count = TRACE_LAYER + gather->depth * gather->kinds;
    gather->rooms = calloc((size_t)gather->room_count, sizeof gather->rooms[0]);
    if (gather->rooms == NULL)
        rc = err_set(ERR_MEMORY, "weights: out of memory");
    else
        rc = place->memory->tensors_create(
            gather_plan(params, place->owner, prefetch, dtype), &gather->arena);
    if (rc != ERR_OK) {
        gather_destroy(gather);
        return rc;
    }
    gather_layout(params, gather->depth, gather->kinds, dtype, gather->rooms,
                  &gather->arena);
    *out = gather;
    return ERR_OK;
}

void gather_destroy(struct gather *gather)
{
    if (gather == NULL)
        return;
    gather->at.memory->tensors_destroy(&gather->arena);
    free(gather->rooms);
    free(gather);
}

/* The rooms that a block may be in are [*first, *end). */
static void rooms_for(const struct gather *gather, int block, int *first,
                      int *end)
{
    int place = access_trace_place(gather->at.params, block);
    int depth = place < TRACE_LAYER ? 1 : gather->depth;
    *first = place < TRACE_LAYER ? place
                                 : TRACE_LAYER + (place - TRACE_LAYER) * depth;
    *end = *first + depth;
}

static struct room *find_room(struct gather *gather, int block)
{
    int first, end;
    rooms_for(gather, block, &first, &end);
    for (int i = first; i < end; i++)
        if (gather->rooms[i].block == block)
            return &gather->rooms[i];
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

/* Start to gather into the free room that was of use longest ago; NULL: all are
 * in use. */
static enum err fetch(struct gather *gather, int block, struct room **out)
{
    struct room *room = NULL;
    int first, end;
    rooms_for(gather, block, &first, &end);
    for (int i = first; i < end; i++) {
        struct room *other = &gather->rooms[i];
        if (other->users == 0 && other->request == NULL &&
            (room == NULL || other->wanted < room->wanted))
            room = other;
    }
    *out = room;
    if (room == NULL)
        return ERR_OK;
    room->block = NO_BLOCK;
    TRY(copy_own(gather, block, room->data));
    TRY(owner_start_gather(gather->at.owner, gather->at.tensors, block,
                           OWNER_SHARD_GROUP, gather->dtype, room->data,
                           gather->at.owner->blocks[block].offset,
                           &room->request));
    room->block = block;
    gather->in_flight++;
    return ERR_OK;
}

/* The blocks that the trace gathers next, as far as there are rooms and
 * requests for them. What arrives meanwhile is moved on. */
static enum err fetch_ahead(struct gather *gather)
{
    const struct trace_call *call;
    int left = gather->prefetch * gather->kinds;
    for (int i = 0; left > 0; i++) {
        call = access_trace_look(gather->at.trace, i);
        if (call == NULL)
            break;
        if (call->kind != TRACE_GATHER ||
            gather->at.owner->blocks[call->block].apart)
            continue;
        left--;
        struct room *room = find_room(gather, call->block);
        if (room == NULL && gather->in_flight < IN_FLIGHT_MAX)
            TRY(fetch(gather, call->block, &room));
        if (room == NULL)
            break;
        room->wanted = ++gather->clock;
        if (room->request != NULL)
            comm_tensors_test(room->request);
    }
    return ERR_OK;
}

enum err gather_block(struct gather *gather, int block, const void **weights)
{
    enum err rc = ERR_OK;
    struct room *room = find_room(gather, block);
    if (room == NULL)
        TRY(fetch(gather, block, &room));
    assert(room != NULL);
    room->users++;
    room->wanted = ++gather->clock;
    TRY(fetch_ahead(gather));
    if (room->request != NULL) {
        struct comm_tensors_request *request = room->request;
        room->request = NULL;
        gather->in_flight--;
        rc = comm_tensors_wait(request, 0.0);
        if (rc != ERR_OK)
            room->block = NO_BLOCK;
    }
    *weights = room->data;
    return rc;
}

void gather_release(struct gather *gather, int block)
{
    struct room *room = find_room(gather, block);
    assert(room != NULL && room->users > 0);
    room->users--;
}

void gather_forget(struct gather *gather)
{
    for (int i = 0; i < gather->room_count; i++) {
        assert(gather->rooms[i].users == 0 && gather->rooms[i].request == NULL);
        gather->rooms[i].block = NO_BLOCK;
    }
}
