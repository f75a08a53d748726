/* Sends a block's gradients to its owners by the levels of a route (route.h): within the
 * node first, where they are added as far as the tree allows, and what is left between
 * nodes. The sums have the bits of an exchange of every leaf with every owner.
 *
 * Where a block is done, each level that is under way ends and the next begins, from the
 * last level to the first: so a block's level 1 travels during the backward of the next
 * block, level 2 during that of the one after it, and both networks are busy at once.
 * Its gradient buffer is free when level 1 has ended, for what that leaves lies apart.
 * All of a microstep ends before the first gradient of the next. Where groups have ranges
 * of leaves (scatter.h), what the levels within a group leave is added to the stack, and the
 * levels beyond follow in the last microstep alone. Ranks start the
 * same operations in the same order, of which those without messages are nothing.
 *
 * Pieces are numbered as the route lists what a rank brings together; their parts of a
 * round lie packed in that order, one row for each value. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/parallel/adds.h"
#include "src/parallel/scatter_impl.h"

/* --- made --- */

static enum err number_pieces(struct levels *levels, int level)
{
    struct stage *stage = &levels->stage[level];
    const struct route_level *l = route_level(levels->route, level);
    for (int i = 0; i < l->brought.lists; i++)
        stage->count += l->brought.pieces[i].count;
    TRY(new_zeroed(&stage->owners, (size_t)stage->count));
    TRY(new_zeroed(&stage->at, (size_t)stage->count + 1));
    TRY(new_zeroed(&stage->left_at, (size_t)stage->count + 1));
    TRY(new_zeroed(&stage->number, (size_t)levels->members));
    for (int i = 0, n = 0; i < l->brought.lists; i++)
        for (int k = 0; k < l->brought.pieces[i].count; k++, n++) {
            int rank = route_piece(levels->route, &l->brought.pieces[i], k);
            stage->owners[n] = rank;
            stage->number[rank] = n;
        }
    return ERR_OK;
}

void scatter_levels_close(struct levels *levels)
{
    if (levels == NULL)
        return;
    for (int level = 0; level < ROUTE_LEVELS_MAX; level++) {
        free(levels->stage[level].owners);
        free(levels->stage[level].at);
        free(levels->stage[level].left_at);
        free(levels->stage[level].number);
    }
    route_destroy(levels->route);
    topology_destroy(levels->topology);
    free(levels->messages);
    free(levels->values);
    free(levels->left);
    free(levels);
}

/* Tables of the levels; most[level] as route_saves() says. */
static enum err make_stages(struct levels *levels, const int *most, int parts)
{
    int inputs = parts;
    (void)route_microstep(levels->route, 0);
    TRY(new_zeroed(&levels->messages, 2 * (size_t)levels->members));
    for (int level = 1; level <= levels->top; level++) {
        levels->stage[level].most = most[level];
        levels->most = most[level] > levels->most ? most[level] : levels->most;
        levels->stage[level].block = NO_BLOCK;
        TRY(number_pieces(levels, level));
        int here =
            (route_level(levels->route, level)->members + 1) * most[level];
        inputs = here > inputs ? here : inputs;
    }
    TRY(new_zeroed(&levels->values, TREE_DEPTH_MAX + (size_t)inputs));
    return new_zeroed(&levels->left, TREE_DEPTH_MAX + (size_t)inputs);
}

/* Members whose nodes do not count, or have one each, add but their own leaves before they
 * send, and begin with level 2. */
static enum err make_route(struct levels *levels,
                           const struct reducers *reducers, int rank, int *most,
                           bool *fits)
{
    const struct scatter_options *o = &levels->scatter->options;
    int row = o->topology != NULL ? topology_row(o->topology) : 1;
    int each = row % reducers->step == 0 ? row / reducers->step : 1;
    int pipelines = levels->scatter->owner->expert_degree > 1 ? 2 : 1;
    bool ranges = scatter_ranges(levels->scatter);
    const struct route_options options = {
        .leaves = levels->scatter->total,
        .group_nodes = ranges ? levels->scatter->group / each : 0,
        .chain = o->leaves,
        .own_leaves = reducers->parts,
        .radix = o->radix,
        .degree = reducers->step == 1 && owner_columns(levels->scatter->owner)
                      ? levels->scatter->owner->degree
                      : 0
    };
    *fits = (each > 1 || reducers->parts > 1 || ranges) && !o->bf16;
    if (!*fits)
        return ERR_OK;
    TRY(topology_alike(reducers->members, each, &levels->topology));
    TRY(route_create(levels->topology, rank / reducers->step, &options,
                     &levels->route));
    *fits = route_saves(levels->route, most);
    levels->bottom = each > 1 ? 1 : 2;
    levels->turn = route_turn_levels(levels->route) - 1;
    levels->top = route_all_levels(levels->route) - 1;
    /* Pieces of several rounds do not lie together, and an operation has no more than a
     * message to and from each; nodes of several ranks stay below that. */
    if (levels->bottom == 2 && levels->top > 2 && o->own_leaves > 1)
        *fits = false;
    for (int level = 1; level <= levels->top; level++)
        *fits =
            *fits && pipelines * most[level] <= REQUESTS &&
            2 * most[level] * levels->topology->nodes <=
                (reducers->members + levels->topology->nodes) * reducers->parts;
    return ERR_OK;
}

enum err scatter_levels_open(struct scatter *scatter, bool apart, int rank)
{
    int most[ROUTE_LEVELS_MAX], block = 0;
    bool fits = false;
    struct levels *levels = NULL;
    while (scatter->owner->blocks[block].apart != apart)
        block++;
    struct reducers reducers = scatter_reducers(scatter, block);
    TRY(new_zeroed(&levels, 1));
    levels->scatter = scatter;
    levels->members = reducers.members;
    levels->first = rank % reducers.step;
    levels->step = reducers.step;
    levels->microstep = -1;
    enum err rc = make_route(levels, &reducers, rank, most, &fits);
    if (rc == ERR_OK && fits)
        rc = make_stages(levels, most, reducers.parts);
    if (rc != ERR_OK || !fits)
        scatter_levels_close(levels);
    else
        scatter->levels[apart] = levels;
    return rc;
}

void scatter_levels_layout(struct levels *levels, struct arena *arena)
{
    int64_t span = levels->scatter->span[levels->step > 1];
    (void)route_microstep(levels->route, 0);
    for (int level = levels->bottom; level <= levels->top; level++) {
        struct stage *stage = &levels->stage[level];
        const struct route_level *l = route_level(levels->route, level);
        size_t rows = (size_t)l->members * (size_t)stage->most;
        bool kept = level == levels->turn || level == levels->top;
        size_t left = kept ? 0 : (size_t)levels->stage[level + 1].most;
        stage->width = stage->count * span;
        size_t row = (size_t)stage->width * sizeof(float);
        stage->receive = arena_take(arena, rows * row);
        stage->left = arena_take(arena, left * row);
    }
}

/* --- where things are --- */

static int rank_of(const struct levels *levels, int member)
{
    return levels->first + member * levels->step;
}

/* Where sum `at` of a rank's piece is in this round: what waits for the next microstep,
 * of groups all that it brings together there, or the total. */
static float *sum_value(const struct levels *levels, int level,
                        const struct stage *stage, int at, int rank)
{
    const struct scatter *scatter = levels->scatter;
    const struct owner_block *b = &scatter->owner->blocks[stage->block];
    int64_t element =
        scatter_reducers(scatter, stage->block).begin +
        scatter_round_begin(scatter, stage->block, rank, stage->round);
    if (level < levels->top)
        return scatter->stack[at] + b->shard_at + element - b->shard_begin;
    return (scatter_ranges(scatter) ? scatter->sum : scatter->stack[at]) +
           b->at + element - b->begin;
}

/* Value `value` that the rank has of a member's piece from the level below, in this
 * round. */
static float *own_value(const struct levels *levels, int level, int value,
                        int member)
{
    const struct scatter *scatter = levels->scatter;
    const struct stage *stage = &levels->stage[level];
    const struct stage *below = stage - 1;
    if (level == levels->turn + 1)
        return sum_value(levels, levels->turn, stage, value,
                         rank_of(levels, member));
    if (level > levels->bottom)
        return below->left + value * below->width +
               below->left_at[below->number[member]];
    const struct route_level *leaves = route_level(levels->route, 0);
    return scatter_buffer(scatter, stage->block) +
           leaves->left[value] *
               scatter_reducers(scatter, stage->block).elements +
           scatter_round_begin(scatter, stage->block, rank_of(levels, member),
                               stage->round);
}

static float *input_value(const struct levels *levels, int level, int input,
                          int piece)
{
    const struct stage *stage = &levels->stage[level];
    const struct route_level *l = route_level(levels->route, level);
    int64_t row = input - l->held - (input >= l->own_at ? l->own : 0);
    if (input < l->held)
        return sum_value(levels, level, stage, input,
                         rank_of(levels, stage->owners[piece]));
    if (input >= l->own_at && input < l->own_at + l->own)
        return own_value(levels, level, input - l->own_at,
                         stage->owners[piece]);
    return stage->receive + row * stage->width + stage->at[piece];
}

/* --- adding --- */

/* Where sum `left` of a piece goes. */
static float *left_value(const struct levels *levels, int level, int left,
                         int piece)
{
    const struct stage *stage = &levels->stage[level];
    return level < levels->top && level != levels->turn
               ? stage->left + left * stage->width + stage->at[piece]
               : sum_value(levels, level, stage, left,
                           rank_of(levels, stage->owners[piece]));
}

/* The level's adds of `count` elements of levels->values; what is left goes to
 * levels->left. A value is put where it is added, or at the end. */
static enum err add_inputs(const struct levels *levels,
                           const struct route_level *l, int64_t count)
{
    float *const *values = levels->values;
    struct adds adds = { .kernels = levels->scatter->kernels,
                         .ctx = levels->scatter->ctx,
                         .n = count };
    int depth = 0, next = 0;
    for (int i = 0; i < l->add_count; i++) {
        while (next <= l->adds[i].from)
            adds_put(&adds, depth++, values[next++], NULL);
        TRY(adds_join(&adds, --depth - 1));
    }
    while (next < l->inputs)
        adds_put(&adds, depth++, values[next++], NULL);
    assert(depth == l->left_count);
    for (int i = 0; i < depth; i++)
        TRY(adds_write(&adds, i, levels->left[i]));
    return ERR_OK;
}

/* Pieces from this one on of which own values are neighbours, as what is received is,
 * and sums that wait. */
static int run_length(const struct levels *levels, int level, int piece,
                      int64_t *elements)
{
    const struct stage *stage = &levels->stage[level];
    int end = piece + 1;
    while (
        level < levels->top && end < stage->count &&
        own_value(levels, level, 0, stage->owners[end]) ==
            own_value(levels, level, 0, stage->owners[piece]) +
                (stage->at[end] - stage->at[piece]) &&
        (level != levels->turn || left_value(levels, level, 0, end) ==
                                      left_value(levels, level, 0, piece) +
                                          (stage->at[end] - stage->at[piece])))
        end++;
    *elements = stage->at[end] - stage->at[piece];
    return end - piece;
}

static enum err add_level(struct levels *levels, int level)
{
    struct stage *stage = &levels->stage[level];
    const struct route_level *l = route_level(levels->route, level);
    for (int piece = 0, length; piece < stage->count && l->inputs > 0;
         piece += length) {
        int64_t elements;
        length = run_length(levels, level, piece, &elements);
        for (int i = 0; i < l->inputs; i++)
            levels->values[i] = input_value(levels, level, i, piece);
        for (int i = 0; i < l->left_count; i++)
            levels->left[i] = left_value(levels, level, i, piece);
        if (elements > 0)
            TRY(add_inputs(levels, l, elements));
    }
    memcpy(stage->left_at, stage->at,
           ((size_t)stage->count + 1) * sizeof stage->at[0]);
    return ERR_OK;
}

/* The rank's own leaves of the block, where they lie. */
static enum err add_leaves(const struct levels *levels, int block)
{
    const struct scatter *scatter = levels->scatter;
    const struct route_level *l = route_level(levels->route, 0);
    int64_t elements = scatter_reducers(scatter, block).elements;
    float **values = levels->values;
    if (l->add_count == 0)
        return ERR_OK;
    for (int i = 0; i < l->inputs; i++)
        values[i] = scatter_buffer(scatter, block) + i * elements;
    for (int i = 0; i < l->left_count; i++)
        levels->left[i] = values[l->left[i]];
    return add_inputs(levels, l, elements);
}

/* --- exchanging --- */

/* Lists value `value` of the pieces of a message. Neighbours in the block are so on
 * both sides, and go as one. */
static int list_messages(const struct levels *levels, int level,
                         const struct route_messages *of,
                         const struct route_message *m, int value, int count)
{
    const struct stage *stage = &levels->stage[level];
    bool receives = of == &route_level(levels->route, level)->receives;
    for (int i = m->list; i < m->list + m->lists; i++) {
        int64_t end = -1;
        for (int k = 0; k < of->pieces[i].count; k++) {
            int member = route_piece(levels->route, &of->pieces[i], k);
            int rank = rank_of(levels, member);
            int64_t n = scatter_round_elements(levels->scatter, stage->block,
                                               rank, stage->round);
            int64_t begin = scatter_round_begin(levels->scatter, stage->block,
                                                rank, stage->round);
            float *data = receives ? input_value(levels, level, m->at + value,
                                                 stage->number[member])
                                   : own_value(levels, level, value, member);
            struct comm_message *last = &levels->messages[count - 1];
            if (n > 0 && begin == end) {
                assert((char *)data == (char *)last->data + last->bytes);
                last->bytes += (size_t)n * sizeof(float);
            } else if (n > 0) {
                assert(count < 2 * levels->members);
                levels->messages[count++] =
                    (struct comm_message){ data, (size_t)n * sizeof(float),
                                           rank_of(levels, m->peer), receives };
            }
            end = n > 0 ? begin + n : end;
        }
    }
    return count;
}

/* One of the values of each piece that messages of the level have at most. */
static enum err start_value(struct levels *levels, int level, int value)
{
    const struct route_level *l = route_level(levels->route, level);
    const struct route_messages *ways[] = { &l->receives, &l->sends };
    int count = 0;
    for (int way = 0; way < 2; way++)
        for (int i = 0; i < ways[way]->count; i++)
            if (value < ways[way]->list[i].values)
                count = list_messages(levels, level, ways[way],
                                      &ways[way]->list[i], value, count);
    return comm_tensors_start_messages(levels->scatter->tensors,
                                       levels->messages, count,
                                       &levels->stage[level].requests[value]);
}

static enum err start_level(struct levels *levels, int level, int block,
                            int64_t round)
{
    struct stage *stage = &levels->stage[level];
    assert(stage->block == NO_BLOCK);
    stage->block = block;
    stage->round = round;
    for (int i = 0; i < stage->count; i++)
        stage->at[i + 1] =
            stage->at[i] +
            scatter_round_elements(levels->scatter, block,
                                   rank_of(levels, stage->owners[i]), round);
    for (int value = 0; value < stage->most; value++)
        TRY(start_value(levels, level, value));
    return ERR_OK;
}

static enum err finish_level(struct levels *levels, int level)
{
    struct stage *stage = &levels->stage[level];
    for (int value = 0; value < stage->most; value++) {
        struct comm_tensors_request *request = stage->requests[value];
        stage->requests[value] = NULL;
        TRY(comm_tensors_wait(request, 0.0));
    }
    return add_level(levels, level);
}

/* Each level ends, and what it leaves begins with the next; at the lowest the block's
 * next round. */
static enum err move_on(struct levels *levels)
{
    bool last = levels->microstep + 1 == scatter_microsteps(levels->scatter);
    for (int level = levels->top; level >= levels->bottom; level--) {
        struct stage *stage = &levels->stage[level];
        int block = stage->block;
        int64_t round = stage->round;
        if (block == NO_BLOCK)
            continue;
        TRY(finish_level(levels, level));
        stage->block = NO_BLOCK;
        if (level < levels->top && (level != levels->turn || last))
            TRY(start_level(levels, level + 1, block, round));
        int64_t next = (round + 1) * scatter_span(levels->scatter, block);
        if (level == levels->bottom &&
            next < owner_longest(levels->scatter->owner, block))
            TRY(start_level(levels, level, block, round + 1));
    }
    return ERR_OK;
}

/* No level uses a gradient buffer any more. */
static enum err free_buffers(struct levels *levels)
{
    while (levels->stage[levels->bottom].block != NO_BLOCK)
        TRY(move_on(levels));
    return ERR_OK;
}

enum err scatter_levels_finish(struct levels *levels)
{
    for (int level = 1; levels != NULL && level <= levels->top; level++)
        while (levels->stage[level].block != NO_BLOCK)
            TRY(move_on(levels));
    return ERR_OK;
}

/* The route deals leaves as the scatter does. */
static bool is_dealt(const struct scatter *scatter, int64_t first)
{
    int leaf = scatter_leaf(scatter, scatter->owner->rank, scatter->microstep);
    return leaf < 0 || leaf == first;
}

enum err scatter_levels_gradient(struct levels *levels, const float *buffer)
{
    const struct scatter *scatter = levels->scatter;
    const struct stage *first = &levels->stage[levels->bottom];
    if (levels->microstep != scatter->microstep) {
        TRY(scatter_levels_finish(levels));
        (void)route_microstep(levels->route, scatter->microstep);
        levels->microstep = scatter->microstep;
        assert(levels->step > 1 ||
               is_dealt(scatter, route_first_leaf(levels->route)));
    }
    if (first->block != NO_BLOCK &&
        scatter_buffer(scatter, first->block) == buffer)
        TRY(free_buffers(levels));
    return ERR_OK;
}

void scatter_levels_test(const struct levels *levels)
{
    for (int level = 1; levels != NULL && level <= levels->top; level++)
        for (int i = 0; i < levels->stage[level].most; i++)
            if (levels->stage[level].requests[i] != NULL)
                comm_tensors_test(levels->stage[level].requests[i]);
}

enum err scatter_levels_done(struct levels *levels, int block)
{
    if (levels->stage[levels->bottom].block == NO_BLOCK)
        TRY(move_on(levels));
    TRY(free_buffers(levels));
    TRY(add_leaves(levels, block));
    return start_level(levels, levels->bottom, block, 0);
}
