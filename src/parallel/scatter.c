#include "src/parallel/scatter.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/arena.h"
#include "src/parallel/tree.h"
#include "src/parallel/walk.h"

#define NO_BLOCK (-1)
#define BUFFERS (2 * WALK_PLACES - WALK_LAYER) /* two of a layer's blocks */
#define BF16_BYTES 2

/* Where the sums stand: complete subtrees, and after them a slot that has only
 * some of its leaves. */
struct sums {
    struct tree tree;
    int64_t leaf; /* the next one */
};

/* A block on its way to its owners. */
struct flight {
    int block; /* NO_BLOCK: none */
    int64_t round;
    struct comm_request *request;
    struct sums sums; /* before its turn */
};

struct scatter {
    struct comm *comm;
    const struct kernels *kernels;
    const struct kernel_ctx *ctx;
    const struct params *params;
    const struct owner *owner;
    struct scatter_options options;
    struct arena arena;
    int64_t total;                /* leaves of a batch */
    int64_t span;                 /* elements of a piece in one round */
    int depth;                    /* of the stack */
    float *stack[TREE_DEPTH_MAX]; /* [own] */
    float *buffer[BUFFERS];
    float *receive; /* [ranks][span] */
    char *wire_out; /* [ranks][span] bf16 */
    char *wire_in;
    struct sums sums; /* before this turn */
    int turn;
    bool *opened; /* [blocks] in this turn */
    struct flight flight;
};

static int64_t leaf_end(const struct scatter *scatter, int64_t begin)
{
    int64_t end = begin + scatter->owner->ranks;
    return end < scatter->total ? end : scatter->total;
}

/* Places of the stack that are taken. */
static int depth_of(const struct scatter *scatter, const struct sums *sums)
{
    return sums->tree.depth + (sums->leaf % scatter->options.leaves > 0);
}

/* The leaf is at place `depth` of the tree now, or was added to what is there;
 * may end its slot. Places that become one are to be added by the caller:
 * true while there are such. */
static void add_leaf(const struct scatter *scatter, struct sums *sums)
{
    int64_t leaf = sums->leaf++;
    if (sums->leaf % scatter->options.leaves == 0)
        tree_push(&sums->tree, 0, (int)(leaf / scatter->options.leaves));
}

static void pass_turn(const struct scatter *scatter, struct sums *sums)
{
    int64_t end = leaf_end(scatter, sums->leaf);
    while (sums->leaf < end) {
        add_leaf(scatter, sums);
        while (sums->tree.depth > 0 &&
               tree_settle(&sums->tree, scatter->options.slots))
            continue;
    }
}

static int deepest(const struct scatter *scatter)
{
    struct sums sums = { .leaf = 0 };
    int depth = 0;
    while (sums.leaf < scatter->total) {
        pass_turn(scatter, &sums);
        if (depth_of(scatter, &sums) > depth)
            depth = depth_of(scatter, &sums);
    }
    return depth;
}

/* --- memory -----------------------------------------------------------------
 */

/* Layers take turns in two. */
static float *buffer_of(const struct scatter *scatter, int block)
{
    const struct params *params = scatter->params;
    int place = walk_place(params, block);
    bool odd = place >= WALK_LAYER && params_layer(params, block) % 2 == 1;
    return scatter->buffer[odd ? WALK_PLACES + place - WALK_LAYER : place];
}

static void scatter_layout(struct scatter *scatter, struct arena *arena,
                           struct scatter_bytes *bytes)
{
    const struct params *params = scatter->params;
    const struct owner *owner = scatter->owner;
    int last = params->block_count - 1;
    scatter->span = 0;
    for (int b = 1; b < last; b++)
        if (owner_longest(owner, b) > scatter->span)
            scatter->span = owner_longest(owner, b);
    for (int i = 0; i < BUFFERS; i++) {
        int place = i < WALK_PLACES ? i : i - WALK_PLACES + WALK_LAYER;
        int64_t elements = walk_place_elements(params, place);
        if (i >= WALK_PLACES && params_layer(params, last) < 2)
            elements = 0;
        scatter->buffer[i] =
            arena_take(arena, (size_t)elements * sizeof(float));
    }
    bytes->gradients = arena->used;
    for (int i = 0; i < scatter->depth; i++)
        scatter->stack[i] =
            arena_take(arena, (size_t)owner->own * sizeof(float));
    bytes->partial_sums = arena->used - bytes->gradients;
    size_t places = owner->ranks > 1 ? (size_t)owner->ranks : 0;
    size_t wire =
        scatter->options.bf16 ? places * (size_t)scatter->span * BF16_BYTES : 0;
    scatter->receive =
        arena_take(arena, places * (size_t)scatter->span * sizeof(float));
    scatter->wire_out = arena_take(arena, wire);
    scatter->wire_in = arena_take(arena, wire);
    scatter->opened = arena_take(arena, (size_t)params->block_count *
                                            sizeof scatter->opened[0]);
    bytes->total = arena->used;
    bytes->exchange = bytes->total - bytes->gradients - bytes->partial_sums;
}

static void scatter_open(struct scatter *scatter, const struct params *params,
                         const struct owner *owner,
                         const struct scatter_options *options)
{
    *scatter =
        (struct scatter){ .params = params,
                          .owner = owner,
                          .options = *options,
                          .total = (int64_t)options->slots * options->leaves,
                          .flight.block = NO_BLOCK };
    scatter->depth = deepest(scatter);
}

void scatter_plan(const struct params *params, const struct owner *owner,
                  const struct scatter_options *options,
                  struct scatter_bytes *out)
{
    struct arena plan = { 0 };
    struct scatter scatter;
    scatter_open(&scatter, params, owner, options);
    scatter_layout(&scatter, &plan, out);
}

enum err scatter_create(struct comm *comm, const struct kernels *kernels,
                        const struct kernel_ctx *ctx,
                        const struct params *params, const struct owner *owner,
                        const struct scatter_options *options,
                        struct scatter **out)
{
    enum err rc = ERR_OK;
    struct scatter_bytes bytes;
    struct scatter *scatter = malloc(sizeof *scatter);
    if (scatter == NULL)
        return err_set(ERR_MEMORY, "gradients: out of memory");
    scatter_open(scatter, params, owner, options);
    scatter->comm = comm;
    scatter->kernels = kernels;
    scatter->ctx = ctx;
    scatter_plan(params, owner, options, &bytes);
    TRY(arena_create(bytes.total, &scatter->arena));
    scatter_layout(scatter, &scatter->arena, &bytes);
    *out = scatter;
    scatter = NULL;
out:
    scatter_destroy(scatter);
    return rc;
}

void scatter_destroy(struct scatter *scatter)
{
    if (scatter == NULL)
        return;
    arena_destroy(&scatter->arena);
    free(scatter);
}

/* --- dealing ----------------------------------------------------------------
 */

int scatter_turns(const struct scatter *scatter)
{
    int ranks = scatter->owner->ranks;
    return (int)((scatter->total + ranks - 1) / ranks);
}

int scatter_leaf(const struct scatter *scatter, int turn)
{
    int64_t leaf = (int64_t)turn * scatter->owner->ranks + scatter->owner->rank;
    return leaf < scatter->total ? (int)leaf : -1;
}

void scatter_begin(struct scatter *scatter)
{
    scatter->sums = (struct sums){ .leaf = 0 };
    scatter->turn = -1;
    assert(scatter->flight.block == NO_BLOCK);
}

void scatter_turn(struct scatter *scatter, int turn)
{
    assert(turn == scatter->turn + 1);
    if (turn > 0)
        pass_turn(scatter, &scatter->sums);
    scatter->turn = turn;
    assert(scatter->sums.leaf == (int64_t)turn * scatter->owner->ranks);
    memset(scatter->opened, 0,
           (size_t)scatter->params->block_count * sizeof scatter->opened[0]);
}

/* --- adding -----------------------------------------------------------------
 */

/* Elements of the rank's piece that travel in this round. */
static int64_t round_elements(const struct scatter *scatter, int block,
                              int rank, int64_t round)
{
    const struct owner *owner = scatter->owner;
    int place = owner_place(owner, rank);
    int64_t left = owner_begin(owner, block, place + 1) -
                   owner_begin(owner, block, place) - round * scatter->span;
    left = left < 0 ? 0 : left;
    return left < scatter->span ? left : scatter->span;
}

/* The piece of this round from a rank. */
static float *piece_from(const struct scatter *scatter, int rank)
{
    const struct flight *flight = &scatter->flight;
    const struct owner_block *b = &scatter->owner->blocks[flight->block];
    if (rank == scatter->owner->rank)
        return buffer_of(scatter, flight->block) + (b->begin - b->offset) +
               flight->round * scatter->span;
    return scatter->receive + (int64_t)rank * scatter->span;
}

static enum err add(const struct scatter *scatter, int64_t count,
                    const float *from, float *to)
{
    return scatter->kernels->accumulate(scatter->ctx, DTYPE_F32, count, from,
                                        to);
}

/* All pieces of the round are here. What of them stays goes to the stack. */
static enum err add_round(struct scatter *scatter, int64_t count)
{
    enum err rc = ERR_OK;
    const struct flight *flight = &scatter->flight;
    const struct owner_block *b = &scatter->owner->blocks[flight->block];
    int64_t at = b->at + flight->round * scatter->span;
    struct sums sums = flight->sums;
    float *values[TREE_DEPTH_MAX];
    int64_t end = leaf_end(scatter, sums.leaf);
    int depth = depth_of(scatter, &sums);
    for (int i = 0; i < depth; i++)
        values[i] = scatter->stack[i] + at;
    for (int rank = 0; sums.leaf < end; rank++) {
        float *piece = piece_from(scatter, rank);
        if (sums.leaf % scatter->options.leaves == 0)
            values[sums.tree.depth] = piece;
        else
            TRY(add(scatter, count, piece, values[sums.tree.depth]));
        add_leaf(scatter, &sums);
        if (sums.leaf % scatter->options.leaves != 0)
            continue;
        while (tree_settle(&sums.tree, scatter->options.slots))
            TRY(add(scatter, count, values[sums.tree.depth],
                    values[sums.tree.depth - 1]));
    }
    depth = depth_of(scatter, &sums);
    for (int i = 0; i < depth; i++)
        if (values[i] != scatter->stack[i] + at)
            memcpy(scatter->stack[i] + at, values[i],
                   (size_t)count * sizeof(float));
out:
    return rc;
}

/* --- travelling --------------------------------------------------------------
 */

/* Rank's piece of this round is at the wire's place for it. */
static enum err pack_piece(const struct scatter *scatter, int rank,
                           const float *piece, int64_t count)
{
    size_t place = (size_t)rank * (size_t)scatter->span * BF16_BYTES;
    return scatter->kernels->pack(scatter->ctx, PACKING_BF16, 1, count, piece,
                                  scatter->wire_out + place);
}

static enum err start_round(struct scatter *scatter)
{
    enum err rc = ERR_OK;
    const struct owner *owner = scatter->owner;
    struct flight *flight = &scatter->flight;
    const struct owner_block *b = &owner->blocks[flight->block];
    size_t *send_bytes = comm_sizes(scatter->comm, 0);
    size_t *send_offsets = comm_sizes(scatter->comm, 1);
    size_t *recv_bytes = comm_sizes(scatter->comm, 2);
    size_t *recv_offsets = comm_sizes(scatter->comm, 3);
    bool bf16 = scatter->options.bf16;
    size_t item = bf16 ? BF16_BYTES : sizeof(float);
    int64_t active = leaf_end(scatter, flight->sums.leaf) - flight->sums.leaf;
    const float *gradient = buffer_of(scatter, flight->block);
    int64_t own =
        round_elements(scatter, flight->block, owner->rank, flight->round);
    for (int r = 0; r < owner->ranks; r++) {
        bool other = r != owner->rank;
        int64_t count =
            round_elements(scatter, flight->block, r, flight->round);
        int64_t begin =
            owner_begin(owner, flight->block, owner_place(owner, r)) -
            b->offset + flight->round * scatter->span;
        send_bytes[r] = 0;
        send_offsets[r] = 0;
        if (other && owner->rank < active && count > 0) {
            send_bytes[r] = (size_t)count * item;
            send_offsets[r] = (size_t)(bf16 ? r * scatter->span : begin) * item;
            if (bf16)
                TRY(pack_piece(scatter, r, gradient + begin, count));
        }
        recv_bytes[r] = other && r < active ? (size_t)own * item : 0;
        recv_offsets[r] = (size_t)(r * scatter->span) * item;
    }
    TRY(comm_start_all_to_all(
        scatter->comm, bf16 ? (const void *)scatter->wire_out : gradient,
        send_bytes, send_offsets,
        bf16 ? (void *)scatter->wire_in : scatter->receive, recv_bytes,
        recv_offsets, &flight->request));
out:
    return rc;
}

static enum err unpack_round(const struct scatter *scatter, int64_t count)
{
    enum err rc = ERR_OK;
    int64_t leaf = scatter->flight.sums.leaf;
    int64_t active = leaf_end(scatter, leaf) - leaf;
    if (!scatter->options.bf16 || count == 0)
        return ERR_OK;
    for (int r = 0; r < active; r++) {
        size_t place = (size_t)r * (size_t)scatter->span;
        if (r != scatter->owner->rank)
            TRY(scatter->kernels->unpack(scatter->ctx, PACKING_BF16, 1, count,
                                         scatter->wire_in + place * BF16_BYTES,
                                         scatter->receive + place));
    }
out:
    return rc;
}

/* The block in flight, if there is one, arrives. */
static enum err land(struct scatter *scatter)
{
    enum err rc = ERR_OK;
    struct flight *flight = &scatter->flight;
    if (flight->block == NO_BLOCK)
        return ERR_OK;
    int64_t longest = owner_longest(scatter->owner, flight->block);
    for (;;) {
        struct comm_request *request = flight->request;
        int64_t count = round_elements(scatter, flight->block,
                                       scatter->owner->rank, flight->round);
        flight->request = NULL;
        TRY(comm_wait(request, 0.0));
        TRY(unpack_round(scatter, count));
        if (count > 0)
            TRY(add_round(scatter, count));
        flight->round++;
        if (flight->round * scatter->span >= longest)
            break;
        TRY(start_round(scatter));
    }
    flight->block = NO_BLOCK;
out:
    return rc;
}

enum err scatter_gradient(struct scatter *scatter, int block, float **gradient)
{
    enum err rc = ERR_OK;
    struct flight *flight = &scatter->flight;
    *gradient = buffer_of(scatter, block);
    if (flight->block != NO_BLOCK && !scatter->opened[block] &&
        buffer_of(scatter, flight->block) == *gradient)
        TRY(land(scatter));
    if (!scatter->opened[block] && scatter_leaf(scatter, scatter->turn) >= 0)
        TRY(scatter->kernels->zero(scatter->ctx, DTYPE_F32,
                                   scatter->params->blocks[block].elements,
                                   *gradient));
    scatter->opened[block] = true;
    if (flight->request != NULL)
        comm_test(flight->request);
out:
    return rc;
}

enum err scatter_done(struct scatter *scatter, int block)
{
    enum err rc = ERR_OK;
    struct flight *flight = &scatter->flight;
    assert(scatter->opened[block]);
    TRY(land(scatter));
    *flight = (struct flight){ .block = block, .sums = scatter->sums };
    TRY(start_round(scatter));
out:
    return rc;
}

enum err scatter_turn_end(struct scatter *scatter)
{
    return scatter->turn + 1 == scatter_turns(scatter) ? land(scatter) : ERR_OK;
}

float *scatter_total(const struct scatter *scatter)
{
    assert(scatter->turn + 1 == scatter_turns(scatter));
    assert(scatter->flight.block == NO_BLOCK);
    return scatter->stack[0];
}
