/* Lists the ways in which a configuration can run on a number of ranks,
 * and chooses the strategy under "auto". What each costs is train_memory_cost.c's.
 *
 * A way is a strategy with its degree, times any of three changes (blocks computed
 * again, saved tensors packed, checkpoints that are waited for), with the largest
 * microbatch that fits then. These are at most SPREADS_MAX * CHANGES, so all are
 * tried and sorted, and the cheapest that differ in kind are told.
 *
 * zero3 without a degree looks at its own, where there are nodes. "auto" looks at
 * strategies alone, for the microbatch as it is: the three changes
 * are the user's to choose. */
#include "src/train/plan/train_memory.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/new.h"
#include "src/base/units.h"
#include "src/train/plan/trainer_backend.h"

/* zero1, zero2, zero3 over 1, 2, 4, ... nodes, and what the settings say */
#define SPREADS_MAX 24
#define CHANGES 8 /* of computing again, packing and the copy */

struct spread {
    enum replica_strategy strategy;
    int degree; /* of zero3; 0 otherwise */
};

struct planner {
    const struct train_settings *settings;
    const struct train_memory_place *place;
    size_t limit_bytes;
    bool chained; /* ways of one slot */
    struct params *params;
    struct train_settings *trial;
};

static enum err planner_open(const struct train_settings *settings,
                             const struct train_memory_place *place,
                             size_t limit_bytes, struct planner *out)
{
    *out = (struct planner){ .settings = settings,
                             .place = place,
                             .limit_bytes = limit_bytes };
    TRY(new_room(&out->trial, 1));
    return train_settings_params(settings, &out->params);
}

static void planner_close(struct planner *planner)
{
    params_destroy(planner->params);
    free(planner->trial);
}

static bool is_auto(const struct train_settings *settings)
{
    return settings->parallel.strategy == REPLICA_AUTO;
}

bool train_memory_chooses(const struct train_settings *settings,
                          const struct train_memory_place *place)
{
    return is_auto(settings) ||
           (settings->parallel.strategy == REPLICA_ZERO3 &&
            settings->parallel.shard_degree == 0 && place->node_ranks > 0 &&
            place->node_ranks < place->ranks);
}

static void apply_spread(const struct spread *spread, int ranks,
                         struct train_settings *s)
{
    /* a degree beyond the ranks is tried, too: replica_check() says why not */
    assert((spread->strategy == REPLICA_ZERO3) == (spread->degree > 0));
    s->parallel.strategy = spread->strategy;
    s->parallel.shard_degree =
        spread->degree == ranks ? 0 : (int64_t)spread->degree;
}

/* Puts all of a way but its strategy into the settings. */
static void apply_changes(const struct train_memory_way *way,
                          struct train_settings *s)
{
    s->train.microbatch = way->microbatch;
    if (way->again)
        snprintf(s->memory.checkpoint, sizeof s->memory.checkpoint,
                 "block: all");
    if (way->packed)
        s->memory.compression =
            trainer_backend_dtype(s) == DTYPE_F32 ? PACKING_BF16 : PACKING_INT8;
    if (way->waiting)
        s->checkpoint.async = false;
    if (way->chained)
        s->parallel.slots = 1;
    s->once = way->once;
}

void train_memory_apply(const struct train_settings *settings,
                        const struct train_memory_way *way,
                        struct train_settings *out)
{
    struct spread spread = { way->strategy, way->shard_degree };
    *out = *settings;
    apply_changes(way, out);
    if (!is_auto(settings) || way->chained)
        apply_spread(&spread, way->ranks, out);
}

static enum err plan_way(struct planner *planner,
                         const struct train_memory_way *way,
                         struct memory_plan *plan)
{
    struct train_settings *s = planner->trial;
    struct spread spread = { way->strategy, way->shard_degree };
    *s = *planner->settings;
    apply_changes(way, s);
    apply_spread(&spread, way->ranks, s);
    return train_memory_plan_with(s, planner->place, planner->params, plan);
}

/* --- what there is to choose from --- */

static void add_spread(const struct planner *planner, struct spread spread,
                       struct spread list[SPREADS_MAX], int *count)
{
    struct train_settings *s = planner->trial;
    int ranks = planner->place->ranks;
    for (int i = 0; i < *count; i++)
        if (list[i].strategy == spread.strategy &&
            list[i].degree == spread.degree)
            return;
    if (spread.strategy < REPLICA_ZERO2 &&
        ranks > planner->settings->parallel.slots)
        return;
    *s = *planner->settings;
    apply_spread(&spread, ranks, s);
    struct replica_options options = train_memory_replica(s);
    if (*count < SPREADS_MAX && replica_check(&options, ranks) == ERR_OK &&
        replica_check_model(&options, planner->params) == ERR_OK)
        list[(*count)++] = spread;
}

static int group_ranks(const struct train_memory_place *place)
{
    int node = place->node_ranks > 0 ? place->node_ranks : place->ranks;
    return place->group_ranks > 0 ? place->group_ranks : node;
}

/* zero3 within one node, two, four, ...: within a node to gather costs little, so
 * smaller groups save nothing. Of uneven nodes, within what divides them all. */
static void add_groups(const struct planner *planner,
                       struct spread list[SPREADS_MAX], int *count)
{
    int ranks = planner->place->ranks;
    for (int degree = group_ranks(planner->place); degree > 1 && degree < ranks;
         degree *= 2)
        add_spread(planner, (struct spread){ REPLICA_ZERO3, degree }, list,
                   count);
}

/* Lists the strategies with their degrees; where only the settings' own
 * strategy is wanted, it alone, with the degrees that it leaves open. */
static int list_spreads(const struct planner *planner, bool others,
                        struct spread list[SPREADS_MAX])
{
    const struct train_settings *s = planner->settings;
    int ranks = planner->place->ranks;
    int given = (int)s->parallel.shard_degree;
    int count = 0;
    struct replica_options options = train_memory_replica(s);
    struct spread own = { options.strategy, 0 };
    if (own.strategy == REPLICA_ZERO3)
        own.degree = given > 0 ? given : ranks;
    if (!is_auto(s))
        add_spread(planner, own, list, &count);
    if (!is_auto(s) && train_memory_chooses(s, planner->place))
        add_groups(planner, list, &count);
    if (!others && !is_auto(s))
        return count;
    if (is_auto(s) && given > 0) {
        add_spread(planner, (struct spread){ REPLICA_ZERO3, given }, list,
                   &count);
        return count;
    }
    add_spread(planner, (struct spread){ REPLICA_ZERO1, 0 }, list, &count);
    add_spread(planner, (struct spread){ REPLICA_ZERO2, 0 }, list, &count);
    add_groups(planner, list, &count);
    add_spread(planner, (struct spread){ REPLICA_ZERO3, ranks }, list, &count);
    return count;
}

static int by_cost(const void *a, const void *b)
{
    const struct train_memory_way *x = a;
    const struct train_memory_way *y = b;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return x->strategy != y->strategy ? (x->strategy < y->strategy ? -1 : 1)
                                      : x->shard_degree - y->shard_degree;
}

/* --- the search --- */

/* As train_memory_once() does. */
static enum err try_way(struct planner *planner, struct train_memory_way *way,
                        bool *fits)
{
    struct memory_plan plan = { .once = true };
    *fits = false;
    way->once = true;
    for (; plan.once && !*fits; way->once = plan.once && *fits) {
        TRY(plan_way(planner, way, &plan));
        way->bytes = plan.total;
        *fits = train_memory_fits(&plan, planner->place, planner->limit_bytes);
    }
    return ERR_OK;
}

/* The largest microbatch up to the settings' with which it fits; a run that has
 * begun keeps its own under "elastic". */
static enum err fit_microbatch(struct planner *planner,
                               struct train_memory_way *way, bool *fits)
{
    const struct train_settings *s = planner->settings;
    int64_t most = s->train.microbatch;
    if (planner->place->resumed &&
        s->parallel.determinism == DETERMINISM_ELASTIC)
        return try_way(planner, way, fits);
    way->microbatch = 1;
    TRY(try_way(planner, way, fits));
    if (!*fits)
        return ERR_OK;
    *fits = false;
    for (int64_t micro = most; micro > 0 && !*fits;
         micro = train_memory_smaller(micro)) {
        way->microbatch = micro;
        TRY(try_way(planner, way, fits));
    }
    return ERR_OK;
}

/* Makes the way of one change; false: the settings have that already, or a run
 * that has begun may not. */
static bool make_way(const struct planner *planner, const struct spread *spread,
                     int change, struct train_memory_way *way)
{
    const struct train_settings *s = planner->settings;
    double missing = 0.0;
    bool again = train_memory_again(s, &missing);
    bool packed = s->memory.compression != PACKING_NONE;
    *way = (struct train_memory_way){ .strategy = spread->strategy,
                                      .shard_degree = spread->degree,
                                      .ranks = planner->place->ranks,
                                      .microbatch = s->train.microbatch,
                                      .again = change & 1,
                                      .packed = change & 2,
                                      .waiting = change & 4,
                                      .chained = planner->chained };
    if (planner->place->resumed &&
        (way->packed || way->chained || (way->again && packed)))
        return false;
    if (way->chained &&
        (spread->strategy < REPLICA_ZERO2 || s->parallel.slots == 1 ||
         s->parallel.determinism != DETERMINISM_ELASTIC))
        return false;
    return !(way->again && again) && !(way->packed && packed) &&
           !(way->waiting && !s->checkpoint.async);
}

/* "auto" finds the strategy by itself. */
static bool alike(const struct train_memory_way *a,
                  const struct train_memory_way *b, bool by_itself)
{
    return (by_itself || a->strategy == b->strategy) && a->again == b->again &&
           a->packed == b->packed && a->waiting == b->waiting;
}

/* Keeps the first ways that differ, of those that fit and are sorted. */
static void keep_unlike(const struct train_memory_way *all, int found,
                        bool by_itself, int max, struct train_memory_way *ways,
                        int *count)
{
    *count = 0;
    for (int i = 0; i < found && *count < max; i++) {
        bool known = false;
        for (int j = 0; j < *count; j++)
            known |= alike(&all[i], &ways[j], by_itself);
        if (!known)
            ways[(*count)++] = all[i];
    }
}

enum err train_memory_ways(const struct train_settings *settings,
                           const struct train_memory_place *place,
                           size_t limit_bytes, bool chained, int max,
                           struct train_memory_way *ways, int *count)
{
    enum err rc = ERR_OK;
    struct train_memory_way all[SPREADS_MAX * CHANGES];
    struct spread spreads[SPREADS_MAX];
    struct planner planner;
    int found = 0;
    assert(max > 0 && place->ranks > 0);
    *count = 0;
    TRY_OUT(planner_open(settings, place, limit_bytes, &planner));
    planner.chained = chained;
    int spread_count = list_spreads(&planner, true, spreads);
    for (int i = 0; i < spread_count; i++)
        for (int change = 0; change < CHANGES; change++) {
            struct train_memory_way *way = &all[found];
            bool fits = false;
            if (!make_way(&planner, &spreads[i], change, way))
                continue;
            TRY_OUT(fit_microbatch(&planner, way, &fits));
            if (!fits)
                continue;
            train_memory_cost(settings, place, planner.params, way);
            found++;
        }
    qsort(all, (size_t)found, sizeof all[0], by_cost);
    keep_unlike(all, found, is_auto(settings), max, ways, count);
out:
    planner_close(&planner);
    return rc;
}

enum err train_memory_fit(const struct train_settings *settings,
                          const struct train_memory_place *place,
                          size_t limit_bytes, bool *fits)
{
    enum err rc = ERR_OK;
    struct spread spreads[SPREADS_MAX];
    struct train_memory_way way;
    struct planner planner;
    *fits = false;
    TRY_OUT(planner_open(settings, place, limit_bytes, &planner));
    int count = list_spreads(&planner, false, spreads);
    for (int i = 0; i < count && !*fits; i++) {
        (void)make_way(&planner, &spreads[i], 0, &way);
        TRY_OUT(try_way(&planner, &way, fits));
    }
out:
    planner_close(&planner);
    return rc;
}

/* --- auto --- */

/* "zero1", "zero3 over 8 ranks" */
static void name_way(const struct train_memory_way *way, char *text,
                     size_t size)
{
    if (way->strategy == REPLICA_ZERO3 && way->shard_degree < way->ranks)
        snprintf(text, size, "zero3 in groups of %d", way->shard_degree);
    else
        snprintf(text, size, "%s", replica_strategy_names[way->strategy]);
}

static void say_why(const char *what, const struct train_memory_way *ways,
                    int chosen, bool fits, char *why, size_t size)
{
    char name[64], need[32], bytes[32];
    name_way(&ways[chosen], name, sizeof name);
    units_bytes((double)ways[chosen].bytes, bytes, sizeof bytes);
    snprintf(why, size, "parallel.strategy = \"%s is %s, %s per rank: ", what,
             name, bytes);
    if (!fits || chosen == 0) {
        clean_join(why, size, "",
                   fits ? "it fits and its messages cost the least"
                        : "none fits, it takes the least");
        return;
    }
    name_way(&ways[chosen - 1], name, sizeof name);
    units_bytes((double)ways[chosen - 1].bytes, need, sizeof need);
    clean_join(why, size, "",
               "of those that fit its messages cost the least; %s, the next "
               "cheaper one, "
               "would take %s",
               name, need);
}

enum err train_memory_strategy(struct train_settings *settings,
                               const struct train_memory_place *place,
                               size_t limit_bytes, char *why, size_t why_size)
{
    enum err rc = ERR_OK;
    struct spread spreads[SPREADS_MAX];
    struct train_memory_way ways[SPREADS_MAX];
    struct planner planner;
    bool fits = false;
    int chosen = 0;
    why[0] = '\0';
    if (!train_memory_chooses(settings, place))
        return ERR_OK;
    TRY_OUT(planner_open(settings, place, limit_bytes, &planner));
    int count = list_spreads(&planner, false, spreads);
    if (count == 0) {
        struct replica_options options = train_memory_replica(settings);
        TRY_OUT(replica_check(&options, place->ranks));
        TRY_OUT(replica_check_model(&options, planner.params));
    }
    assert(count > 0); /* one of the two has said why not */
    for (int i = 0; i < count; i++) {
        (void)make_way(&planner, &spreads[i], 0, &ways[i]);
        TRY_OUT(try_way(&planner, &ways[i], &ways[i].fits));
        train_memory_cost(settings, place, planner.params, &ways[i]);
    }
    qsort(ways, (size_t)count, sizeof ways[0], by_cost);
    for (int i = 0; i < count && !fits; i++) {
        fits = ways[i].fits;
        if (fits || ways[i].bytes < ways[chosen].bytes)
            chosen = i;
    }
    say_why(is_auto(settings) ? "auto\"" : "zero3\" without a shard_degree",
            ways, chosen, fits, why, why_size);
    struct spread spread = { ways[chosen].strategy, ways[chosen].shard_degree };
    apply_spread(&spread, place->ranks, settings);
out:
    planner_close(&planner);
    return rc;
}
