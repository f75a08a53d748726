/* Which values the members of a unit have, and what is added to what: the leaves that a
 * member has in a microstep, or of the whole batch, are neighbours, and of an interval
 * of leaves there is one list of complete subtrees that are left. So a rank
 * knows without a message how many values each of its peers has.
 *
 * Values of an interval, from the left: leaves whose chain begins before it, each by
 * itself; subtrees of whole chains, as large as they can be; and what there is of the
 * chain that the interval's end cuts. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/parallel/route_impl.h"
#include "src/parallel/tree.h"

/* Microsteps of ranks, some tenth of a second, in which values are counted. */
#define LOOKED_AT ((int64_t)1 << 21)

/* How many leaves the first value has of those that are left of an interval. */
static int64_t value_leaves(const struct route_options *o, int64_t begin,
                            int64_t end)
{
    int64_t slots = o->leaves / o->chain, slot = begin / o->chain;
    int64_t last = end / o->chain, size = 1;
    if (begin % o->chain > 0)
        return 1;
    if (last == slot)
        return end - begin;
    for (; size < slots && slot % (2 * size) == 0; size *= 2)
        if (last < slots && slot + 2 * size > last)
            break;
    return (slot + size < slots ? slot + size : slots) * o->chain - begin;
}

static int count_values(const struct route_options *o,
                        struct route_interval leaves)
{
    int count = 0;
    while (leaves.begin < leaves.end) {
        leaves.begin += value_leaves(o, leaves.begin, leaves.end);
        count++;
    }
    return count;
}

/* The inputs of a level, from the left: `left` of the level is the stack. */
struct fold {
    const struct route_options *options;
    struct route_level *level;
    struct tree tree; /* of the stack's whole chains */
    int64_t begin, leaf;
};

static void add_last(struct route_level *level, int into, int from)
{
    level->adds[level->add_count++] = (struct route_add){ into, from };
}

static void fold_value(struct fold *fold, int64_t leaves)
{
    struct route_level *level = fold->level;
    int64_t chain = fold->options->chain, slot = fold->leaf / chain;
    int64_t slots = fold->options->leaves / chain;
    bool inside = fold->leaf % chain > 0;
    int input = level->inputs++;
    int height = 0;
    fold->leaf += leaves;
    if (inside && slot * chain >= fold->begin)
        add_last(level, level->left[level->left_count - 1], input);
    else
        level->left[level->left_count++] = input;
    if ((inside && slot * chain < fold->begin) || fold->leaf % chain > 0)
        return;
    while ((int64_t)1 << height < fold->leaf / chain - slot)
        height++;
    tree_push(&fold->tree, height, (int)(slot >> height));
    while (tree_settle(&fold->tree, (int)slots)) {
        level->left_count--;
        add_last(level, level->left[level->left_count - 1],
                 level->left[level->left_count]);
    }
}

static void fold_interval(struct fold *fold, struct route_interval leaves)
{
    while (leaves.begin < leaves.end) {
        int64_t count = value_leaves(fold->options, leaves.begin, leaves.end);
        assert(fold->leaf == leaves.begin);
        fold_value(fold, count);
        leaves.begin += count;
    }
}

/* --- whose leaves --- */

/* Leaves of neighbouring ranks of a group in a microstep. */
static struct route_interval dealt(const struct route_plan *route, int rank,
                                   int ranks)
{
    const struct topology *t = route->topology;
    int group = t->node[rank] / route->options.group_nodes;
    int base = t->first[group * route->options.group_nodes];
    int64_t own = route->options.own_leaves;
    struct route_interval r = route_range(route, group);
    int64_t begin =
        r.begin + own * ((int64_t)route->microstep * route_group_ranks(route) +
                         rank - base);
    int64_t end = begin + own * ranks;
    return (struct route_interval){ begin < r.end ? begin : r.end,
                                    end < r.end ? end : r.end };
}

int64_t route_first_leaf(const struct route_plan *route)
{
    return dealt(route, route->rank, 1).begin;
}

static int member_count(const struct route_plan *route, int level)
{
    int size;
    int node = route->topology->node[route->rank];
    (void)route_unit(route, level, node, &size);
    if (level == 0)
        return 1;
    if (level == 1)
        return topology_count(route->topology, node);
    return (size - 1) / route->unit[level - 1] + 1;
}

/* What the nodes bring to a level: of a microstep, or all of their groups. */
static struct route_interval unit_leaves(const struct route_plan *route,
                                         int level, int begin, int size)
{
    const struct topology *t = route->topology;
    int each = route->options.group_nodes;
    if (level < route->turn_levels)
        return dealt(route, t->first[begin],
                     t->first[begin + size] - t->first[begin]);
    return (struct route_interval){
        route_range(route, begin / each).begin,
        route_range(route, (begin + size) / each - 1).end
    };
}

static struct route_interval member_leaves(const struct route_plan *route,
                                           int level, int member)
{
    const struct topology *t = route->topology;
    int size, node = t->node[route->rank];
    int begin = route_unit(route, level, node, &size);
    if (level == 0)
        return dealt(route, route->rank, 1);
    if (level == 1)
        return dealt(route, t->first[node] + member, 1);
    begin += member * route->unit[level - 1];
    (void)route_unit(route, level - 1, begin, &size);
    return unit_leaves(route, level, begin, size);
}

static int member_of(const struct route_plan *route, int level, int rank)
{
    int size, node = route->topology->node[rank];
    int begin = route_unit(route, level, node, &size);
    if (level == 0)
        return 0;
    return level == 1 ? topology_place(route->topology, rank)
                      : (node - begin) / route->unit[level - 1];
}

/* What members of a level, ranks or units of nodes, bring to it now: the most, and
 * all of them are added up. */
static void look_at_units(const struct route_plan *route, int level, int *most,
                          int64_t *all)
{
    const struct topology *t = route->topology;
    int count = level == 1 ? t->ranks : t->nodes;
    int each = level == 1 ? 1 : route->unit[level - 1];
    for (int unit = 0; unit < count; unit += each) {
        int size = route_least(each, count - unit);
        int values =
            count_values(&route->options,
                         level == 1 ? dealt(route, unit, 1)
                                    : unit_leaves(route, level, unit, size));
        *most = values > *most ? values : *most;
        *all += values;
    }
}

bool route_saves(struct route_plan *route, int most[ROUTE_LEVELS_MAX])
{
    const struct topology *t = route->topology;
    int64_t microsteps = route_microsteps(route), all = 0, others = 0;
    memset(most, 0, ROUTE_LEVELS_MAX * sizeof most[0]);
    if (route->levels < 3 || microsteps * t->ranks > LOOKED_AT)
        return false;
    for (route->microstep = 0; route->microstep < microsteps;
         route->microstep++)
        for (int level = 1; level < route->turn_levels; level++)
            look_at_units(route, level, &most[level],
                          level == 2 ? &all : &others);
    for (int level = route->turn_levels; level < route->levels; level++)
        look_at_units(route, level, &most[level], &others);
    return 4 * all <= 3 * route->options.leaves;
}

/* --- a level --- */

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Values that so many neighbouring leaves have at most. */
static int64_t most_values(const struct route_plan *route, int64_t leaves)
{
    return least_of(leaves, route->options.chain + TREE_DEPTH_MAX);
}

enum err route_adds_room(struct route_plan *route, int level)
{
    struct route_level *l = &route->level[level];
    int members = member_count(route, level);
    int64_t batch = route->options.leaves, own = route->options.own_leaves;
    int64_t each = own, inputs;
    if (level > 1)
        each = batch; /* it is bounded by a list's length */
    inputs = members * (level == 0 ? own : most_values(route, each)) +
             (level == route->turn_levels - 1 ? most_values(route, batch) : 0);
    inputs = least_of(inputs, batch + most_values(route, batch));
    TRY(new_zeroed(&l->adds, (size_t)inputs));
    return new_zeroed(&l->left, (size_t)inputs);
}

void route_adds_fill(struct route_plan *route, int level)
{
    const struct route_options *o = &route->options;
    struct route_level *l = &route->level[level];
    int own = member_of(route, level, route->rank);
    int members = member_count(route, level);
    struct fold fold = { .options = o, .level = l };
    struct route_interval first = member_leaves(route, level, 0);
    l->inputs = l->held = l->add_count = l->left_count = 0;
    for (int i = 0; i < l->receives.count; i++)
        l->receives.list[i].values = 0;
    fold.begin = fold.leaf = first.begin;
    if (level == route->turn_levels - 1) {
        int node = route->topology->node[route->rank];
        struct route_interval held = {
            route_range(route, node / o->group_nodes).begin, first.begin
        };
        fold.begin = fold.leaf = held.begin;
        fold_interval(&fold, held);
        l->held = l->inputs;
    }
    for (int m = 0, i = 0; m < members; m++) {
        struct route_interval leaves = member_leaves(route, level, m);
        int at = l->inputs;
        if (level == 0)
            for (int64_t leaf = leaves.begin; leaf < leaves.end; leaf++)
                fold_value(&fold, 1);
        else
            fold_interval(&fold, leaves);
        if (m == own) {
            l->own_at = at;
            l->own = l->inputs - at;
        }
        for (; i < l->receives.count &&
               member_of(route, level, l->receives.list[i].peer) == m;
             i++) {
            l->receives.list[i].at = at;
            l->receives.list[i].values = l->inputs - at;
        }
    }
    for (int i = 0; i < l->sends.count; i++)
        l->sends.list[i].values = l->own;
    assert(l->left_count ==
           count_values(o, (struct route_interval){ fold.begin, fold.leaf }));
}
