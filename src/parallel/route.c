/* Who sends which pieces to whom, level by level, of one rank.
 *
 * The owner gets a piece from one rank of each of the largest units: from each other the
 * one that carries it (owner_carrier()). Neighbours' pieces have one carrier, so what
 * a rank gets within its node is one message, and lies together in the block. In
 * such a unit a piece is brought together on the carrier, or the owner, and on the way
 * there in each smaller one on the rank with the same place in its node, of the node
 * with the same number. Of shard groups one place's pieces lie together, and a unit of whole
 * groups carries them on the ranks of that place. Where a node has fewer ranks, or the last unit
 * fewer units below, numbers are taken modulo what there is, unit by unit from the largest
 * down: so whoever brings a piece together in a unit has done so in all that it is in
 * below. Both ends of a message find its pieces by themselves. What values they are is
 * route_adds.c's. */
#include <assert.h>
#include <limits.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/base/array.h"
#include "src/parallel/route_impl.h"

#define ITEM (int64_t)sizeof(float)

/* --- pieces --- */

/* Among pieces of shard groups, place by place: how many with a number below this are of the
 * ranks before `end`. */
static int numbered_below(const struct route_plan *route, int number, int end)
{
    int groups = route->topology->ranks / route->degree;
    int place = number / groups, group = number % groups;
    int whole = end / route->degree, over = end % route->degree;
    return place * whole + route_least(place, over) +
           route_least(group, whole + (place < over));
}

/* Which member of the unit of ranks [begin, begin + ranks) carries the owner's piece:
 * all carry as many, which follow each other but for those of the unit. */
static int carrying_member(const struct route_plan *route, int begin, int ranks,
                           int owner)
{
    int all = route->topology->ranks;
    if (route->degree == 0)
        return owner_carrier(all, begin, ranks, owner);
    if (owner >= begin && owner < begin + ranks)
        return -1;
    int number =
        owner % route->degree * (all / route->degree) + owner / route->degree;
    int before = number - numbered_below(route, number, begin + ranks) +
                 numbered_below(route, number, begin);
    return (int)((int64_t)before * ranks / (all - ranks));
}

/* A unit's carriers are counted place by place, in its shard groups or else its nodes, so
 * that those of one place are neighbours too, where nodes are alike. */
static int carrier(const struct route_plan *route, int near, int owner)
{
    const struct topology *t = route->topology;
    int size, unit = route_unit(route, route->levels - 2, near, &size);
    int begin = t->first[unit], ranks = t->first[unit + size] - begin;
    int member = carrying_member(route, begin, ranks, owner);
    if (member < 0)
        return owner;
    int width = route->degree > 0 && ranks % route->degree == 0 ? route->degree
                : t->least == t->most                           ? t->most
                                                                : ranks;
    int units = ranks / width;
    return begin + member % units * width + member / units;
}

/* The rank of the unit with node `near` that brings together the piece. */
static int helper(const struct route_plan *route, int level, int near,
                  int owner)
{
    const struct topology *t = route->topology;
    if (level == route->levels - 1)
        return owner;
    int rank = carrier(route, near, owner), size;
    int n = route_unit(route, level, near, &size);
    for (int l = level; l > 1; l--) {
        int each = route->unit[l - 1];
        n += t->node[rank] % route->unit[l] / each % ((size - 1) / each + 1) *
             each;
        (void)route_unit(route, l - 1, n, &size);
    }
    return t->first[n] + topology_place(t, rank) % topology_count(t, n);
}

static int owner_of(const struct route_plan *route, int number)
{
    int ranks = route->topology->ranks;
    if (route->degree == 0)
        return (route->behind + number) % ranks;
    int groups = ranks / route->degree;
    return number % groups * route->degree + number / groups;
}

int route_piece(const struct route_plan *route, const struct route_pieces *list,
                int i)
{
    assert(i >= 0 && i < list->count);
    return owner_of(route, list->first + i);
}

/* The numbers of each peer's pieces come in order. */
static enum err add_piece(struct route_messages *to, int peer, int number)
{
    struct route_pieces *last =
        to->lists > 0 ? &to->pieces[to->lists - 1] : NULL;
    if (last != NULL && last->peer == peer &&
        last->first + last->count == number) {
        last->count++;
        return ERR_OK;
    }
    TRY(array_room(&to->pieces, &to->room, to->lists + 1));
    to->pieces[to->lists++] = (struct route_pieces){ peer, number, 1 };
    return ERR_OK;
}

static int by_peer(const void *a, const void *b)
{
    const struct route_pieces *x = a, *y = b;
    if (x->peer != y->peer)
        return x->peer < y->peer ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static enum err group_lists(struct route_messages *m)
{
    if (m->lists == 0)
        return ERR_OK;
    qsort(m->pieces, (size_t)m->lists, sizeof m->pieces[0], by_peer);
    TRY(new_zeroed(&m->list, (size_t)m->lists));
    for (int i = 0; i < m->lists; i++) {
        if (i == 0 || m->pieces[i].peer != m->pieces[i - 1].peer)
            m->list[m->count++] =
                (struct route_message){ .peer = m->pieces[i].peer, .list = i };
        m->list[m->count - 1].lists++;
    }
    return ERR_OK;
}

/* Who brings piece `number` together in the rank's unit. */
static int helper_here(const struct route_plan *route, int level, int number)
{
    const struct topology *t = route->topology;
    return helper(route, level, t->node[route->rank], owner_of(route, number));
}

/* The pieces that the rank has brought together in its unit below, at level 1 all. */
static enum err list_sends(struct route_plan *route, int level)
{
    struct route_messages *to = &route->level[level].sends;
    for (int i = 0; i < route->topology->ranks; i++) {
        int peer = helper_here(route, level, i);
        if (peer != route->rank &&
            (level == 1 || helper_here(route, level - 1, i) == route->rank))
            TRY(add_piece(to, peer, i));
    }
    return group_lists(to);
}

/* What each member of the unit has of what the rank brings together. */
static enum err list_receives(struct route_plan *route, int level)
{
    const struct topology *t = route->topology;
    struct route_level *l = &route->level[level];
    int size, own = t->node[route->rank];
    int begin = route_unit(route, level, own, &size);
    int members = level == 1 ? topology_count(t, own) : size;
    int each = level == 1 ? 1 : route->unit[level - 1];
    l->members = (members - 1) / each;
    for (int i = 0; i < t->ranks; i++)
        if (helper_here(route, level, i) == route->rank)
            TRY(add_piece(&l->brought, route->rank, i));
    for (int m = 0; m < members; m += each)
        for (int list = 0; list < l->brought.lists; list++)
            for (int k = 0; k < l->brought.pieces[list].count; k++) {
                int i = l->brought.pieces[list].first + k;
                int peer = level == 1 ? t->first[own] + m
                                      : helper(route, level - 1, begin + m,
                                               owner_of(route, i));
                TRY(add_piece(peer == route->rank ? &l->here : &l->receives,
                              peer, i));
            }
    TRY(group_lists(&l->brought));
    TRY(group_lists(&l->here));
    return group_lists(&l->receives);
}

/* --- units --- */

/* Levels from units of `from` nodes to units of `to`; but for that of all nodes, which
 * is the last, a unit consists of whole ones below. */
static void add_levels(struct route_plan *route, int from, int to)
{
    int radix = route->options.radix;
    int count = (to - 1) / from + 1;
    if (radix == 0 && count > ROUTE_NODES)
        for (radix = 1; (int64_t)radix * radix < count;)
            radix *= 2;
    for (int64_t unit = from; radix > 0 && unit * radix < to;) {
        unit *= radix;
        if (to == route->topology->nodes || to % unit == 0)
            route->unit[route->levels++] = (int)unit;
    }
    if (to > from)
        route->unit[route->levels++] = to;
    assert(route->levels < ROUTE_LEVELS_MAX);
}

static enum err check_groups(const struct route_plan *route)
{
    const struct topology *t = route->topology;
    int nodes = route->options.group_nodes;
    if (nodes == t->nodes)
        return ERR_OK;
    if (t->least != t->most)
        return err_set(ERR_USAGE,
                       "groups of %d nodes need as many ranks on each node, "
                       "and there are %d to %d",
                       nodes, t->least, t->most);
    if (t->nodes % nodes != 0)
        return err_set(ERR_USAGE,
                       "groups of %d nodes do not divide the %d nodes", nodes,
                       t->nodes);
    return ERR_OK;
}

int route_group_ranks(const struct route_plan *route)
{
    int groups = route->topology->nodes / route->options.group_nodes;
    return route->topology->ranks / groups;
}

/* The roundest number of an interval: a multiple of the largest power of two, of
 * chains if it can be. */
static int64_t roundest(int64_t least, int64_t most, int64_t chain)
{
    int64_t unit = most / chain * chain >= least ? chain : 1;
    while (unit <= most && most / (2 * unit) * (2 * unit) >= least)
        unit *= 2;
    return most / unit * unit;
}

/* Even ranges, moved as far as no group takes a microstep more by it: their ends
 * are then of large subtrees. */
static int64_t range_begin(const struct route_plan *route, int group)
{
    int groups = route->topology->nodes / route->options.group_nodes;
    int64_t leaves = route->options.leaves;
    int64_t most = (int64_t)route_microsteps(route) * route_group_ranks(route) *
                   route->options.own_leaves;
    int64_t even = leaves / groups * group + leaves % groups * group / groups;
    int64_t slack = (most - (leaves - 1) / groups - 1) / 2;
    if (group == 0 || group == groups)
        return group == 0 ? 0 : leaves;
    int64_t begin = even > slack ? even - slack : 0;
    int64_t end = leaves - even > slack ? even + slack : leaves;
    return roundest(begin, end, route->options.chain);
}

struct route_interval route_range(const struct route_plan *route, int group)
{
    return (struct route_interval){ range_begin(route, group),
                                    range_begin(route, group + 1) };
}

enum err route_create(const struct topology *topology, int rank,
                      const struct route_options *options,
                      struct route_plan **out)
{
    enum err rc = ERR_OK;
    struct route_plan *route = NULL;
    int radix = options->radix;
    assert(rank >= 0 && rank < topology->ranks);
    assert(options->leaves > 0 && options->leaves % options->chain == 0 &&
           options->leaves / options->chain <= INT_MAX);
    assert(options->own_leaves > 0 && radix != 1 && (radix & (radix - 1)) == 0);
    TRY(new_zeroed(&route, 1));
    route->topology = topology;
    route->rank = rank;
    route->options = *options;
    if (options->group_nodes == 0)
        route->options.group_nodes = topology->nodes;
    TRY_OUT(check_groups(route));
    route->unit[0] = route->unit[1] = 1;
    route->levels = 2;
    add_levels(route, 1, route->options.group_nodes);
    route->turn_levels = route->levels;
    add_levels(route, route->options.group_nodes, topology->nodes);
    int size, unit = route_unit(route, route->levels - 2, topology->node[rank],
                                &size);
    route->degree = topology->least == topology->most ? options->degree : 0;
    route->behind = topology->first[unit + size] % topology->ranks;
    for (int level = 0; level < route->levels; level++) {
        if (level > 0) {
            TRY_OUT(list_sends(route, level));
            TRY_OUT(list_receives(route, level));
        }
        TRY_OUT(route_adds_room(route, level));
    }
    (void)route_microstep(route, route_microsteps(route));
    (void)route_microstep(route, 0);
out:
    return new_or_none(rc, route, out, route_destroy);
}

void route_destroy(struct route_plan *route)
{
    if (route == NULL)
        return;
    for (int level = 0; level < route->levels; level++) {
        struct route_level *l = &route->level[level];
        struct route_messages *all[] = { &l->sends, &l->receives, &l->brought,
                                         &l->here };
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
            free(all[i]->list);
            free(all[i]->pieces);
        }
        free(l->adds);
        free(l->left);
    }
    free(route);
}

/* --- now --- */

int route_microsteps(const struct route_plan *route)
{
    int groups = route->topology->nodes / route->options.group_nodes;
    int64_t each = (route->options.leaves - 1) / groups + 1;
    int64_t places =
        (int64_t)route_group_ranks(route) * route->options.own_leaves;
    return (int)((each - 1) / places + 1);
}

bool route_microstep(struct route_plan *route, int microstep)
{
    bool step = microstep == route_microsteps(route);
    assert(microstep >= 0 && microstep <= route_microsteps(route));
    route->microstep = microstep;
    route->first = step ? route->turn_levels : 0;
    route->end = step ? route->levels : route->turn_levels;
    for (int level = route->first; level < route->end; level++)
        route_adds_fill(route, level);
    return route->first < route->end;
}

void route_levels(const struct route_plan *route, int *first, int *end)
{
    *first = route->first;
    *end = route->end;
}

int route_turn_levels(const struct route_plan *route)
{
    return route->turn_levels;
}

int route_all_levels(const struct route_plan *route)
{
    return route->levels;
}

int route_last_unit(const struct route_plan *route)
{
    const struct topology *t = route->topology;
    int size, level = route->levels - 2;
    return t->first[route_unit(route, level, t->nodes - 1, &size)];
}

const struct route_level *route_level(const struct route_plan *route, int level)
{
    assert(level >= route->first && level < route->levels);
    assert(level < route->end || level >= route->turn_levels);
    return &route->level[level];
}

/* --- traffic --- */

static int64_t elements_of(const struct route_plan *route,
                           const struct owner *owner, int block,
                           const struct route_pieces *lists, int count)
{
    int64_t elements = 0;
    for (int i = 0; i < count; i++)
        for (int p = 0; p < lists[i].count; p++) {
            int rank = route_piece(route, &lists[i], p);
            int place = owner_place(owner, block, rank);
            elements += owner_begin(owner, block, place + 1) -
                        owner_begin(owner, block, place);
        }
    return elements;
}

/* Bytes of a message of the block. */
static int64_t bytes_of(const struct route_plan *route,
                        const struct owner *owner, int block,
                        const struct route_messages *messages,
                        const struct route_message *m)
{
    if (m->values == 0)
        return 0;
    return ITEM * m->values *
           elements_of(route, owner, block, messages->pieces + m->list,
                       m->lists);
}

static void count_sent(const struct route_plan *route, int peer, int64_t bytes,
                       struct route_traffic *out)
{
    const int *node = route->topology->node;
    if (bytes == 0)
        return;
    out->messages++;
    out->sent += bytes;
    if (node[peer] == node[route->rank])
        return;
    out->between += bytes;
    if (out->smallest == 0 || bytes < out->smallest)
        out->smallest = bytes;
    if (bytes > out->largest)
        out->largest = bytes;
}

void route_traffic(const struct route_plan *route, const struct owner *owner,
                   int block, struct route_traffic *out)
{
    for (int level = route->first; level < route->end; level++) {
        const struct route_level *l = &route->level[level];
        int64_t here = 0;
        for (int i = 0; i < l->sends.count; i++)
            count_sent(
                route, l->sends.list[i].peer,
                bytes_of(route, owner, block, &l->sends, &l->sends.list[i]),
                out);
        for (int i = 0; i < l->receives.count; i++)
            here += bytes_of(route, owner, block, &l->receives,
                             &l->receives.list[i]);
        /* what the level below has left waits until it is sent */
        if (level > 1 && level > route->first)
            here += ITEM * l->own *
                    (elements_of(route, owner, block, l->sends.pieces,
                                 l->sends.lists) +
                     elements_of(route, owner, block, l->here.pieces,
                                 l->here.lists));
        out->memory = here > out->memory ? here : out->memory;
        if (level == route->end - 1)
            out->held += ITEM * l->left_count *
                         elements_of(route, owner, block, l->brought.pieces,
                                     l->brought.lists);
    }
}
