/* Sends a block's gradients to its owners by the levels of a route (route.h): within the
 * node first, where they are added as far as the tree allows, and what is left between
 * nodes. The sums have the bits of an exchange of every leaf with every owner.
 *
 * Where a block is done, each level that is under way ends and the next begins, from the
 * last level to the first: so a block's level 1 travels during the backward of the next
 * block, level 2 during that of the one after it, and both networks are busy at once.
 * Its gradient buffer is free when level 1 has ended, for what that leaves lies apart.
 * All of a microstep ends before the first gradient of the next. Ranks start the
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
    TRY(new_zeroed(&stage->number, (size_t)levels->ranks));
    for (int i = 0, n = 0; i < l->brought.lists; i++)
        for (int k = 0; k < l->brought.pieces[i].count; k++, n++) {
            int rank = route_piece(levels->route, &l->brought.pieces[i], k);
            stage->owners[n] = rank;
            stage->number[rank] = n;
        }
    return ERR_OK;
}

void scatter_levels_close(struct scatter *scatter)
{
    struct levels *levels = scatter->levels;
    if (levels == NULL)
        return;
    for (int level = 0; level < ROUTE_LEVELS_MAX; level++) {
        free(levels->stage[level].owners);
        free(levels->stage[level].at);
        free(levels->stage[level].left_at);
        free(levels->stage[level].number);
    }
    route_destroy(levels->route);
    free(levels->messages);
    free(levels->values);
    free(levels->left);
    free(levels);
    scatter->levels = NULL;
}

/* Tables of the levels; most[level] as route_saves() says. */
static enum err make_stages(struct levels *levels, const int *most,
                            int own_leaves)
{
    int inputs = own_leaves;
    (void)route_microstep(levels->route, 0);
    TRY(new_zeroed(&levels->messages, 2 * (size_t)levels->ranks));
    for (int level = 1; level <= levels->top; level++) {
        levels->stage[level].most = most[level];
        levels->stage[level].block = NO_BLOCK;
        TRY(number_pieces(levels, level));
        int here =
            (route_level(levels->route, level)->members + 1) * most[level];
        inputs = here > inputs ? here : inputs;
    }
    TRY(new_zeroed(&levels->values, TREE_DEPTH_MAX + (size_t)inputs));
    return new_zeroed(&levels->left, TREE_DEPTH_MAX + (size_t)inputs);
}

enum err scatter_levels_open(struct scatter *scatter, int rank)
{
    const struct scatter_options *options = &scatter->options;
    const struct topology *topology = options->topology;
    const struct route_options route = { .leaves = scatter->total,
                                         .chain = options->leaves,
                                         .own_leaves = options->own_leaves,
                                         .radix = options->radix,
                                         .columns =
                                             owner_columns(scatter->owner) };
    int most[ROUTE_LEVELS_MAX];
    if (topology == NULL || topology_row(topology) == 1 || options->bf16 ||
        scatter->owner->expert_degree > 1)
        return ERR_OK;
    TRY(new_zeroed(&scatter->levels, 1));
    struct levels *levels = scatter->levels;
    levels->ranks = topology->ranks;
    levels->microstep = -1;
    enum err rc = route_create(topology, rank, &route, &levels->route);
    bool fits = rc == ERR_OK && route_saves(levels->route, most);
    levels->top = fits ? route_turn_levels(levels->route) - 1 : 0;
    for (int level = 1; level <= levels->top; level++)
        fits = fits && most[level] <= REQUESTS &&
               2 * most[level] * topology->nodes <=
                   (topology->ranks + topology->nodes) * options->own_leaves;
    if (fits)
        rc = make_stages(levels, most, options->own_leaves);
    if (rc != ERR_OK || !fits)
        scatter_levels_close(scatter);
    return rc;
}

void scatter_levels_layout(struct scatter *scatter, struct arena *arena)
{
    struct levels *levels = scatter->levels;
    (void)route_microstep(levels->route, 0);
    for (int level = 1; level <= levels->top; level++) {
        struct stage *stage = &levels->stage[level];
        const struct route_level *l = route_level(levels->route, level);
        size_t rows = (size_t)l->members * (size_t)stage->most;
        size_t left =
            level < levels->top ? (size_t)levels->stage[level + 1].most : 0;
        stage->width = stage->count * scatter->span;
        size_t row = (size_t)stage->width * sizeof(float);
        stage->receive = arena_take(arena, rows * row);
        stage->left = arena_take(arena, left * row);
    }
}

/* --- where things are --- */

/* Value `value` that the rank has of a piece from the level below, in this round. */
static float *own_value(const struct scatter *scatter, int level, int value,
                        int rank)
{
    const struct levels *levels = scatter->levels;
    const struct stage *stage = &levels->stage[level];
    const struct stage *below = stage - 1;
    if (level > 1)
        return below->left + value * below->width +
               below->left_at[below->number[rank]];
    const struct route_level *leaves = route_level(levels->route, 0);
    return scatter_buffer(scatter, stage->block) +
           leaves->left[value] *
               scatter->params->blocks[stage->block].elements +
           scatter_round_begin(scatter, stage->block, rank, stage->round);
}

static float *input_value(const struct scatter *scatter, int level, int input,
                          int piece)
{
    const struct stage *stage = &scatter->levels->stage[level];
    const struct route_level *l = route_level(scatter->levels->route, level);
    int64_t row = input - l->held - (input >= l->own_at ? l->own : 0);
    int rank = stage->owners[piece];
    if (input < l->held)
        return scatter->stack[input] + scatter->owner->blocks[stage->block].at +
               stage->round * scatter->span;
    if (input >= l->own_at && input < l->own_at + l->own)
        return own_value(scatter, level, input - l->own_at, rank);
    return stage->receive + row * stage->width + stage->at[piece];
}

/* --- adding --- */

/* Where sum `left` of a piece goes. */
static float *left_value(const struct scatter *scatter, int level, int left,
                         int piece)
{
    const struct levels *levels = scatter->levels;
    const struct stage *stage = &levels->stage[level];
    if (level < levels->top)
        return stage->left + left * stage->width + stage->at[piece];
    return scatter->stack[left] + scatter->owner->blocks[stage->block].at +
           stage->round * scatter->span;
}

/* The level's adds of `count` elements of levels->values; what is left goes to
 * levels->left. A value is put where it is added, or at the end. */
static enum err add_inputs(const struct scatter *scatter,
                           const struct route_level *l, int64_t count)
{
    float *const *values = scatter->levels->values;
    struct adds adds = { .kernels = scatter->kernels,
                         .ctx = scatter->ctx,
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
        TRY(adds_write(&adds, i, scatter->levels->left[i]));
    return ERR_OK;
}

/* Pieces from this one on of which own values are neighbours, as what is received is. */
static int run_length(const struct scatter *scatter, int level, int piece,
                      int64_t *elements)
{
    const struct stage *stage = &scatter->levels->stage[level];
    int end = piece + 1;
    while (level < scatter->levels->top && end < stage->count &&
           own_value(scatter, level, 0, stage->owners[end]) ==
               own_value(scatter, level, 0, stage->owners[piece]) +
                   (stage->at[end] - stage->at[piece]))
        end++;
    *elements = stage->at[end] - stage->at[piece];
    return end - piece;
}

static enum err add_level(struct scatter *scatter, int level)
{
    struct levels *levels = scatter->levels;
    struct stage *stage = &levels->stage[level];
    const struct route_level *l = route_level(levels->route, level);
    for (int piece = 0, length; piece < stage->count && l->inputs > 0;
         piece += length) {
        int64_t elements;
        length = run_length(scatter, level, piece, &elements);
        for (int i = 0; i < l->inputs; i++)
            levels->values[i] = input_value(scatter, level, i, piece);
        for (int i = 0; i < l->left_count; i++)
            levels->left[i] = left_value(scatter, level, i, piece);
        if (elements > 0)
            TRY(add_inputs(scatter, l, elements));
    }
    memcpy(stage->left_at, stage->at,
           ((size_t)stage->count + 1) * sizeof stage->at[0]);
    return ERR_OK;
}

/* The rank's own leaves of the block, where they lie. */
static enum err add_leaves(const struct scatter *scatter, int block)
{
    const struct route_level *l = route_level(scatter->levels->route, 0);
    int64_t elements = scatter->params->blocks[block].elements;
    float **values = scatter->levels->values;
    if (l->add_count == 0)
        return ERR_OK;
    for (int i = 0; i < l->inputs; i++)
        values[i] = scatter_buffer(scatter, block) + i * elements;
    for (int i = 0; i < l->left_count; i++)
        scatter->levels->left[i] = values[l->left[i]];
    return add_inputs(scatter, l, elements);
}

/* --- exchanging --- */

/* Lists value `value` of the pieces of a message. Neighbours in the block are so on
 * both sides, and go as one. */
static int list_messages(const struct scatter *scatter, int level,
                         const struct route_messages *of,
                         const struct route_message *m, int value, int count)
{
    const struct levels *levels = scatter->levels;
    const struct stage *stage = &levels->stage[level];
    bool receives = of == &route_level(levels->route, level)->receives;
    for (int i = m->list; i < m->list + m->lists; i++) {
        int64_t end = -1;
        for (int k = 0; k < of->pieces[i].count; k++) {
            int rank = route_piece(levels->route, &of->pieces[i], k);
            int64_t n = scatter_round_elements(scatter, stage->block, rank,
                                               stage->round);
            int64_t begin =
                scatter_round_begin(scatter, stage->block, rank, stage->round);
            float *data = receives ? input_value(scatter, level, m->at + value,
                                                 stage->number[rank])
                                   : own_value(scatter, level, value, rank);
            struct comm_message *last = &levels->messages[count - 1];
            if (n > 0 && begin == end) {
                assert((char *)data == (char *)last->data + last->bytes);
                last->bytes += (size_t)n * sizeof(float);
            } else if (n > 0) {
                assert(count < 2 * levels->ranks);
                levels->messages[count++] =
                    (struct comm_message){ data, (size_t)n * sizeof(float),
                                           m->peer, receives };
            }
            end = n > 0 ? begin + n : end;
        }
    }
    return count;
}

/* One of the values of each piece that messages of the level have at most. */
static enum err start_value(struct scatter *scatter, int level, int value)
{
    const struct levels *levels = scatter->levels;
    const struct route_level *l = route_level(levels->route, level);
    const struct route_messages *ways[] = { &l->receives, &l->sends };
    int count = 0;
    for (int way = 0; way < 2; way++)
        for (int i = 0; i < ways[way]->count; i++)
            if (value < ways[way]->list[i].values)
                count = list_messages(scatter, level, ways[way],
                                      &ways[way]->list[i], value, count);
    return comm_tensors_start_messages(
        scatter->tensors, levels->messages, count,
        &scatter->levels->stage[level].requests[value]);
}

static enum err start_level(struct scatter *scatter, int level, int block,
                            int64_t round)
{
    struct stage *stage = &scatter->levels->stage[level];
    assert(stage->block == NO_BLOCK);
    stage->block = block;
    stage->round = round;
    for (int i = 0; i < stage->count; i++)
        stage->at[i + 1] =
            stage->at[i] +
            scatter_round_elements(scatter, block, stage->owners[i], round);
    for (int value = 0; value < stage->most; value++)
        TRY(start_value(scatter, level, value));
    return ERR_OK;
}

static enum err finish_level(struct scatter *scatter, int level)
{
    struct stage *stage = &scatter->levels->stage[level];
    for (int value = 0; value < stage->most; value++) {
        struct comm_tensors_request *request = stage->requests[value];
        stage->requests[value] = NULL;
        TRY(comm_tensors_wait(request, 0.0));
    }
    return add_level(scatter, level);
}

/* Each level ends, and what it leaves begins with the next; at level 1 the block's next
 * round. */
static enum err move_on(struct scatter *scatter)
{
    struct levels *levels = scatter->levels;
    for (int level = levels->top; level > 0; level--) {
        struct stage *stage = &levels->stage[level];
        int block = stage->block;
        int64_t round = stage->round;
        if (block == NO_BLOCK)
            continue;
        TRY(finish_level(scatter, level));
        stage->block = NO_BLOCK;
        if (level < levels->top)
            TRY(start_level(scatter, level + 1, block, round));
        int64_t next = (round + 1) * scatter->span;
        if (level == 1 && next < owner_longest(scatter->owner, block))
            TRY(start_level(scatter, 1, block, round + 1));
    }
    return ERR_OK;
}

/* No level uses a gradient buffer any more. */
static enum err free_buffers(struct scatter *scatter)
{
    while (scatter->levels->stage[1].block != NO_BLOCK)
        TRY(move_on(scatter));
    return ERR_OK;
}

enum err scatter_levels_finish(struct scatter *scatter)
{
    struct levels *levels = scatter->levels;
    for (int level = 1; level <= levels->top; level++)
        while (levels->stage[level].block != NO_BLOCK)
            TRY(move_on(scatter));
    return ERR_OK;
}

enum err scatter_levels_gradient(struct scatter *scatter, const float *buffer)
{
    struct levels *levels = scatter->levels;
    const struct stage *first = &levels->stage[1];
    if (levels->microstep != scatter->microstep) {
        TRY(scatter_levels_finish(scatter));
        (void)route_microstep(levels->route, scatter->microstep);
        levels->microstep = scatter->microstep;
    }
    if (first->block != NO_BLOCK &&
        scatter_buffer(scatter, first->block) == buffer)
        TRY(free_buffers(scatter));
    return ERR_OK;
}

void scatter_levels_test(const struct scatter *scatter)
{
    const struct levels *levels = scatter->levels;
    for (int level = 1; level <= levels->top; level++)
        for (int i = 0; i < levels->stage[level].most; i++)
            if (levels->stage[level].requests[i] != NULL)
                comm_tensors_test(levels->stage[level].requests[i]);
}

enum err scatter_levels_done(struct scatter *scatter, int block)
{
    if (scatter->levels->stage[1].block == NO_BLOCK)
        TRY(move_on(scatter));
    TRY(free_buffers(scatter));
    TRY(add_leaves(scatter, block));
    return start_level(scatter, 1, block, 0);
}
