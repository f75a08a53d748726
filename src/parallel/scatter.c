/* Keeps the sums of gradients under zero2 and zero3 on the owners of each
 * block: memory for a block's gradients, the stack of partial sums, and the
 * order of microsteps. The exchange of one block and its addition are in
 * scatter_exchange.c.
 *
 * Leaves are dealt in turn to the ranks, not in ranges as slots are
 * under ddp and zero1: so the N gradients that meet at an owner in a microstep
 * are neighbours in the order of sums, and it adds them to what there was and
 * forgets them. With ranges each rank would work at another place of the tree,
 * and the owner would have to keep a sum for each: together all gradients, which
 * is what these strategies are to save. Shard groups may have ranges, if there is room: a
 * rank's sums are then of its shard, which it has of the weights, too. */
#include "src/parallel/scatter_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/parallel/gradient_zero.h"

#define SPAN_UNIT 16 /* elements: partitions begin at multiples of 64 bytes */

/* Leaves of a full microstep of those that have a range together. */
static int64_t places_of(const struct scatter *scatter)
{
    return (int64_t)scatter->group * scatter->options.own_leaves;
}

int64_t scatter_leaf_end(const struct scatter *scatter, int64_t begin)
{
    int64_t end = begin + places_of(scatter);
    return end < scatter->range ? end : scatter->range;
}

int scatter_depth(const struct scatter *scatter, const struct sums *sums)
{
    return sums->tree.depth + (sums->leaf % scatter->options.leaves > 0);
}

void scatter_add_leaf(const struct scatter *scatter, struct sums *sums)
{
    int64_t leaf = sums->leaf++;
    if (sums->leaf % scatter->options.leaves == 0)
        tree_push(&sums->tree, 0, (int)(leaf / scatter->options.leaves));
}

static int range_slots(const struct scatter *scatter)
{
    return (int)(scatter->range / scatter->options.leaves);
}

static void pass_microstep(const struct scatter *scatter, struct sums *sums)
{
    int64_t end = scatter_leaf_end(scatter, sums->leaf);
    while (sums->leaf < end) {
        scatter_add_leaf(scatter, sums);
        while (sums->tree.depth > 0 &&
               tree_settle(&sums->tree, range_slots(scatter)))
            continue;
    }
}

/* Where a slot has more leaves than a microstep, a microstep ends within each
 * slot. */
static int deepest_of_slots(const struct scatter *scatter)
{
    struct tree tree = { 0 };
    int depth = 0;
    for (int slot = 0; slot < range_slots(scatter); slot++) {
        if (tree.depth + 1 > depth)
            depth = tree.depth + 1;
        tree_push(&tree, 0, slot);
        while (tree.depth > 0 && tree_settle(&tree, range_slots(scatter)))
            continue;
    }
    return depth;
}

static int deepest(const struct scatter *scatter)
{
    struct sums sums = { .leaf = 0 };
    int depth = 0;
    if (scatter->options.leaves > places_of(scatter))
        return deepest_of_slots(scatter);
    while (sums.leaf < scatter->range) {
        pass_microstep(scatter, &sums);
        if (scatter_depth(scatter, &sums) > depth)
            depth = scatter_depth(scatter, &sums);
    }
    return depth;
}

/* --- memory --- */

/* Layers take turns in two. */
float *scatter_buffer(const struct scatter *scatter, int block)
{
    const struct params *params = scatter->params;
    int place = access_trace_place(params, block);
    bool odd = place >= TRACE_LAYER && params_layer(params, block) % 2 == 1;
    return scatter->buffer[odd ? TRACE_PLACES + place - TRACE_LAYER : place];
}

/* What is received of a layer's block fits into one round, where a rank sends
 * one value: of those that travel together the longest. */
static int64_t span_of(const struct scatter *scatter, const struct levels *way)
{
    int own = scatter->options.own_leaves;
    int values = way != NULL && way->most < own ? way->most : own;
    int64_t unit = (int64_t)SPAN_UNIT * values;
    int64_t longest = 0;
    int last = scatter->params->block_count - 1;
    for (int b = 1; b < last; b++)
        if (scatter_levels_of(scatter, b) == way &&
            owner_longest(scatter->owner, b) > longest)
            longest = owner_longest(scatter->owner, b);
    /* no layer trains */
    for (int b = 0; b <= last && longest == 0; b += last)
        longest = owner_longest(scatter->owner, b);
    return (longest + unit - 1) / unit * SPAN_UNIT;
}

/* Blocks without levels: all, or those apart or not. What one rank has nobody sends. */
static void exchange_layout(struct scatter *scatter, bool apart,
                            struct arena *arena)
{
    size_t places = scatter->owner->ranks > 1 ? (size_t)places_of(scatter) : 0;
    size_t received = places * (size_t)scatter->span[apart];
    bool bf16 = scatter->options.bf16;
    size_t wire = bf16 ? received * BF16_BYTES : 0;
    scatter->receive = arena_take(arena, bf16 ? 0 : received * sizeof(float));
    scatter->wire_out = arena_take(arena, wire);
    scatter->wire_in = arena_take(arena, wire);
}

static void scatter_layout(struct scatter *scatter, struct arena *arena,
                           struct reduce_bytes *bytes)
{
    const struct params *params = scatter->params;
    const struct owner *owner = scatter->owner;
    int last = params->block_count - 1;
    for (int apart = 0; apart < 2; apart++)
        scatter->span[apart] = span_of(scatter, scatter->levels[apart]);
    for (int i = 0; i < BUFFERS; i++) {
        int place = i < TRACE_PLACES ? i : i - TRACE_PLACES + TRACE_LAYER;
        int64_t elements = access_trace_place_elements(params, place) *
                           scatter->options.own_leaves;
        if (i >= TRACE_PLACES && params_layer(params, last) < 2)
            elements = 0;
        scatter->buffer[i] =
            arena_take(arena, (size_t)elements * sizeof(float));
    }
    bytes->gradients = arena->used;
    int64_t sums = scatter_ranges(scatter) ? owner->shard : owner->own;
    for (int i = 0; i < scatter->depth; i++)
        scatter->stack[i] = arena_take(arena, (size_t)sums * sizeof(float));
    if (scatter_ranges(scatter))
        scatter->sum = arena_take(arena, (size_t)owner->own * sizeof(float));
    bytes->partial_sums = arena->used - bytes->gradients;
    for (int apart = 0; apart < 1 + (owner->expert_degree > 1); apart++)
        if (scatter->levels[apart] != NULL)
            scatter_levels_layout(scatter->levels[apart], arena);
        else if (apart == 0 || (scatter->levels[0] != NULL &&
                                owner->expert_degree < owner->ranks))
            exchange_layout(scatter, apart, arena);
    bytes->total = arena->used;
    bytes->exchange = bytes->total - bytes->gradients - bytes->partial_sums;
}

static void close_levels(struct scatter *scatter)
{
    for (int apart = 0; apart < 2; apart++) {
        scatter_levels_close(scatter->levels[apart]);
        scatter->levels[apart] = NULL;
    }
}

bool scatter_ranges(const struct scatter *scatter)
{
    return scatter->group < scatter->owner->ranks;
}

/* Groups have ranges where each is one whole subtree, of more than a microstep. */
static void set_range(struct scatter *scatter, int group)
{
    int64_t chain = scatter->options.leaves;
    scatter->group = scatter->owner->ranks;
    scatter->range = scatter->total;
    if (group == 0 || scatter->owner->expert_degree > 1)
        return;
    int64_t groups = scatter->owner->ranks / group;
    int64_t range = scatter->total / groups, slots = range / chain;
    if (scatter->total % groups != 0 || range % chain != 0 ||
        (slots & (slots - 1)) != 0 ||
        range <= (int64_t)group * scatter->options.own_leaves)
        return;
    scatter->group = group;
    scatter->range = range;
}

static enum err open_levels(struct scatter *scatter, int rank)
{
    set_range(scatter, scatter->options.group);
    TRY(scatter_levels_open(scatter, false, rank));
    if (scatter_ranges(scatter) && scatter->levels[0] == NULL) {
        set_range(scatter, 0);
        TRY(scatter_levels_open(scatter, false, rank));
    }
    return scatter->owner->expert_degree > 1
               ? scatter_levels_open(scatter, true, rank)
               : ERR_OK;
}

/* Without memory for tensors; `rank` is whose levels they are. */
static enum err scatter_open(struct scatter *scatter,
                             const struct params *params,
                             const struct owner *owner,
                             const struct scatter_options *options, int rank,
                             struct reduce_bytes *bytes)
{
    struct arena plan = { 0 };
    *scatter =
        (struct scatter){ .params = params,
                          .owner = owner,
                          .options = *options,
                          .total = (int64_t)options->slots * options->leaves,
                          .exchange.block = NO_BLOCK };
    enum err rc = open_levels(scatter, rank);
    scatter->depth = deepest(scatter);
    if (rc == ERR_OK)
        scatter_layout(scatter, &plan, bytes);
    else
        close_levels(scatter);
    return rc;
}

/* The first rank of a level's last unit, which may be smaller than others, brings most
 * together. */
enum err scatter_plan(const struct params *params, const struct owner *owner,
                      const struct scatter_options *options,
                      struct reduce_bytes *out, bool *ranges)
{
    int ranks[] = { 0, 0, 0 };
    *out = (struct reduce_bytes){ 0 };
    for (int i = 0; i < 3; i++) {
        struct scatter scatter;
        struct reduce_bytes bytes;
        if (i > 0 && ranks[i] == 0)
            continue;
        TRY(scatter_open(&scatter, params, owner, options, ranks[i], &bytes));
        if (bytes.total > out->total)
            *out = bytes;
        if (ranges != NULL)
            *ranges = scatter_ranges(&scatter);
        for (int apart = 0; apart < 2 && i == 0; apart++)
            if (scatter.levels[apart] != NULL)
                ranks[1 + apart] =
                    scatter.levels[apart]->step *
                    route_last_unit(scatter.levels[apart]->route);
        close_levels(&scatter);
    }
    return ERR_OK;
}

enum err scatter_create(struct comm_tensors *tensors,
                        const struct kernels *kernels,
                        const struct kernel_ctx *ctx,
                        const struct params *params, const struct owner *owner,
                        const struct scatter_options *options,
                        struct scatter **out)
{
    enum err rc = ERR_OK;
    struct reduce_bytes bytes;
    struct scatter *scatter = NULL;
    TRY(new_room(&scatter, 1));
    TRY_OUT(scatter_open(scatter, params, owner, options, owner->rank, &bytes));
    scatter->tensors = tensors;
    scatter->kernels = kernels;
    scatter->ctx = ctx;
    TRY_OUT(new_zeroed(&scatter->opened, (size_t)params->block_count));
    TRY_OUT(kernels->memory->tensors_create(bytes.total, &scatter->arena));
    scatter_layout(scatter, &scatter->arena, &bytes);
out:
    return new_or_none(rc, scatter, out, scatter_destroy);
}

void scatter_destroy(struct scatter *scatter)
{
    if (scatter == NULL)
        return;
    if (scatter->kernels != NULL)
        scatter->kernels->memory->tensors_destroy(&scatter->arena);
    close_levels(scatter);
    free(scatter->opened);
    free(scatter);
}

/* --- dealing --- */

int scatter_microsteps(const struct scatter *scatter)
{
    int64_t places = places_of(scatter);
    return (int)((scatter->range + places - 1) / places);
}

int scatter_leaf(const struct scatter *scatter, int rank, int microstep)
{
    int64_t leaf =
        microstep * places_of(scatter) +
        (int64_t)(rank % scatter->group) * scatter->options.own_leaves;
    return leaf < scatter->range
               ? (int)(rank / scatter->group * scatter->range + leaf)
               : -1;
}

int scatter_leaf_rank(const struct scatter *scatter, int leaf)
{
    int64_t own = scatter->options.own_leaves;
    return (int)(leaf / scatter->range * scatter->group +
                 leaf % scatter->range / own % scatter->group);
}

void scatter_begin(struct scatter *scatter)
{
    scatter->sums = (struct sums){ .leaf = 0 };
    scatter->microstep = -1;
    assert(scatter->exchange.block == NO_BLOCK);
}

void scatter_microstep(struct scatter *scatter, int microstep)
{
    assert(microstep == scatter->microstep + 1);
    if (microstep > 0)
        pass_microstep(scatter, &scatter->sums);
    scatter->microstep = microstep;
    assert(scatter->sums.leaf == microstep * places_of(scatter));
    memset(scatter->opened, 0,
           (size_t)scatter->params->block_count * sizeof scatter->opened[0]);
}

/* --- a block --- */

enum err scatter_gradient(struct scatter *scatter, int block, bool begun,
                          float **gradient)
{
    struct exchange *exchange = &scatter->exchange;
    struct levels *levels = scatter_levels_of(scatter, block);
    int64_t elements = scatter->params->blocks[block].elements;
    /* without a leaf there may be those of the group for experts */
    bool used =
        scatter_leaf(scatter, scatter->owner->rank, scatter->microstep) >= 0 ||
        scatter->owner->expert_degree > 1;
    *gradient = scatter_buffer(scatter, block);
    if (levels != NULL)
        TRY(scatter_levels_gradient(levels,
                                    scatter->opened[block] ? NULL : *gradient));
    if (exchange->block != NO_BLOCK && !scatter->opened[block] &&
        scatter_buffer(scatter, exchange->block) == *gradient)
        TRY(scatter_exchange_finish(scatter));
    for (int i = 0; i < scatter->options.own_leaves; i++)
        if (!scatter->opened[block] && used)
            TRY(gradient_zero(scatter->kernels, scatter->ctx, scatter->params,
                              block, begun, *gradient + i * elements));
    scatter->opened[block] = true;
    for (int apart = 0; apart < 2; apart++)
        scatter_levels_test(scatter->levels[apart]);
    for (int i = 0; i < REQUESTS; i++)
        if (exchange->requests[i] != NULL)
            comm_tensors_test(exchange->requests[i]);
    return ERR_OK;
}

static enum err exchange_done(struct scatter *scatter, int block)
{
    struct levels *levels = scatter_levels_of(scatter, block);
    if (levels != NULL)
        return scatter_levels_done(levels, block);
    TRY(scatter_exchange_finish(scatter));
    return scatter_exchange_start(scatter, block);
}

/* A block's level within the node, and the next one of the block before, at once. */
enum err scatter_done(struct scatter *scatter, int block)
{
    assert(scatter->opened[block]);
    comm_tensors_together(scatter->tensors);
    return comm_tensors_together_end(scatter->tensors,
                                     exchange_done(scatter, block));
}

enum err scatter_microstep_end(struct scatter *scatter)
{
    if (scatter->microstep + 1 < scatter_microsteps(scatter))
        return ERR_OK;
    for (int apart = 0; apart < 2; apart++)
        TRY(scatter_levels_finish(scatter->levels[apart]));
    return scatter_exchange_finish(scatter);
}

float *scatter_total(const struct scatter *scatter)
{
    assert(scatter->microstep + 1 == scatter_microsteps(scatter));
    assert(scatter->exchange.block == NO_BLOCK);
    return scatter_ranges(scatter) ? scatter->sum : scatter->stack[0];
}
