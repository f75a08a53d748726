/* The rounds over a communicator, and what came of them. All ranks hold the same
 * list of meetings and the same results, so they all draw the same conclusions
 * without a leader.
 *
 * A round goes through the sizes of vectors, from the smallest, and tells after
 * each how long it has taken: the next larger one takes that times the step, and
 * begins only if this is left of the first round's part of the budget. The other
 * rounds have the smallest size and the largest that the first has measured, so
 * that all are compared in the same. Of the two sides' times, and of the rails',
 * the longer counts. */
#include "healthcheck/health_pair.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "healthcheck/health_pair_impl.h"
#include "src/base/clock.h"
#include "src/base/new.h"
#include "src/base/real.h"

/* There may be six rounds, some of them in several waves. */
#define PAIR_FIRST_PART (1.0 / 16)
#define PAIR_LAST_PART 0.75
/* A rail is slow by as much in so many of the meetings; by more where those are
 * few. */
#define PAIR_RAIL_PART 0.75
#define PAIR_RAIL_FEW 8
#define PAIR_RAIL_RATIO_FEW 0.5

void health_pair_destroy(struct health_pairs *pairs)
{
    if (pairs == NULL)
        return;
    health_rounds_destroy(&pairs->rounds);
    free(pairs->rail_gbps);
    free(pairs->slow_rails);
    free(pairs->times);
    free(pairs->met);
    free(pairs->begin);
    free(pairs->by_host);
    free(pairs->leaf);
    free(pairs->leaf_names);
    free(pairs->hosts);
    free(pairs);
}

/* How many ranks meet as one: all of a node, where there are several nodes; 0: they
 * are not the same number everywhere, one behind another. */
static int pairs_rails(const struct comm *comm, int wanted)
{
    int size = comm_size(comm), rails = 1;
    if (wanted > 0)
        return size % wanted == 0 ? wanted : 0;
    while (rails < size && comm_same_host(comm, 0, rails))
        rails++;
    if (rails == size)
        return 1;
    for (int rank = 0; rank < size; rank++)
        if (comm_same_host(comm, rank, rank / rails * rails) == false ||
            (rank >= rails && comm_same_host(comm, rank, rank - rails)))
            return 0;
    return size % rails == 0 ? rails : 0;
}

/* The caller destroys it, also after an error. */
static enum err pairs_create(struct comm *comm, int rails,
                             struct health_pairs **out)
{
    TRY(new_zeroed(out, 1));
    struct health_pairs *pairs = *out;
    size_t size = (size_t)(comm_size(comm) / rails);
    pairs->size = (int)size;
    pairs->rails = rails;
    pairs->t0 = clock_wall();
    TRY(new_zeroed(&pairs->hosts, size));
    TRY(new_zeroed(&pairs->leaf_names, size));
    TRY(new_zeroed(&pairs->leaf, size));
    TRY(new_zeroed(&pairs->by_host, size));
    TRY(new_zeroed(&pairs->begin, size + 2));
    TRY(new_zeroed(&pairs->slow_rails, (size_t)rails));
    TRY(new_zeroed(&pairs->rail_gbps, (size_t)rails));
    for (int i = 0; i < pairs->size; i++)
        snprintf(pairs->hosts[i], sizeof pairs->hosts[i], "%s",
                 comm_host(comm, i * rails));
    return ERR_OK;
}

/* All sizes up to bytes_max. */
static void pairs_sizes(struct health_pairs *pairs,
                        const struct health_pair_options *options,
                        size_t bytes_max)
{
    size_t bytes =
        options->bytes_min < bytes_max ? options->bytes_min : bytes_max;
    pairs->bytes[0] = HEALTH_PAIR_LEAST;
    pairs->sizes = 1;
    for (; bytes <= bytes_max && pairs->sizes < HEALTH_PAIR_SIZES;
         bytes *= HEALTH_PAIR_STEP)
        pairs->bytes[pairs->sizes++] = bytes;
}

int64_t *health_pair_time(const struct health_pairs *pairs, int meeting,
                          int size, int rail)
{
    assert(size < HEALTH_PAIR_SIZES && rail < pairs->rails);
    return &pairs->times[((ptrdiff_t)meeting * HEALTH_PAIR_SIZES + size) *
                             pairs->rails +
                         rail];
}

double health_pair_gbps(const struct health_pairs *pairs, int meeting, int size,
                        int rail)
{
    int64_t time = *health_pair_time(pairs, meeting, size, rail);
    return time > 0 ? (double)pairs->bytes[size] / (double)time : 0;
}

/* --- rounds --- */

/* The slower side's time and the larger number of wrong elements count. */
static enum err pairs_share(struct pair_bench *bench, int64_t *values,
                            size_t count)
{
    struct comm_request *request = NULL;
    enum err rc = comm_start_all_reduce_i64(bench->comm, values, count,
                                            COMM_MAX, &request);
    return rc != ERR_OK ? rc : comm_wait(request, bench->options->timeout_s);
}

/* One size of all meetings of a round; *spent_s: what it took the slowest. Who is
 * in no meeting goes on to the exchange of results at once, and waits there for the
 * others. */
static enum err pairs_size(struct health_pairs *pairs, struct pair_bench *bench,
                           int size, double *spent_s)
{
    enum err rc = ERR_OK;
    struct health_rounds *rounds = &pairs->rounds;
    int rails = pairs->rails, rank = comm_rank(bench->comm);
    int own = rank / rails, rail = rank % rails;
    size_t added = (size_t)(rounds->count - rounds->first);
    size_t row = (size_t)rails + 1;
    double start = clock_now();
    int64_t *values = NULL;
    TRY(new_zeroed(&values, row * added + 1));
    /* The list is in order of waves: nobody waits in a circle. */
    for (size_t i = 0; i < added; i++) {
        const struct health_meeting *meeting =
            &rounds->meetings[rounds->first + (int)i];
        int a = meeting->a, b = meeting->b;
        if (own == a || own == b)
            TRY_OUT(health_pair_bench_meet(
                bench, (own == a ? b : a) * rails + rail,
                pairs->leaf[a] != pairs->leaf[b], pairs->bytes[size],
                &values[row * i + (size_t)rail], &values[row * i + row - 1]));
    }
    values[row * added] = (int64_t)((clock_now() - start) * 1e9);
    TRY_OUT(pairs_share(bench, values, row * added + 1));
    *spent_s = (double)values[row * added] / 1e9;
    for (size_t i = 0; i < added; i++) {
        struct health_meeting *meeting =
            &rounds->meetings[rounds->first + (int)i];
        memcpy(health_pair_time(pairs, rounds->first + (int)i, size, 0),
               &values[row * i], (size_t)rails * sizeof *values);
        if (values[row * i + row - 1] > meeting->wrong)
            meeting->wrong = values[row * i + row - 1];
    }
out:
    free(values);
    return rc;
}

/* --- rails --- */

/* Whether a rail is slow in one meeting, compared with the meeting's others. */
static bool rail_is_low(const struct health_pairs *pairs, int meeting, int rail,
                        double ratio, double *room)
{
    int rails = pairs->rails;
    for (int i = 0; i < rails; i++)
        room[i] = health_pair_gbps(pairs, meeting, pairs->sizes - 1, i);
    double own = room[rail];
    real_sort(room, rails);
    /* of few the best, since half of them may be slow */
    return own < ratio * room[rails < 4 ? rails - 1 : rails / 2];
}

/* After round 1: rails that are slow wherever nodes meet. */
static enum err pairs_name_rails(struct health_pairs *pairs, double ratio)
{
    const struct health_rounds *rounds = &pairs->rounds;
    double *room;
    int most = pairs->rails > rounds->count ? pairs->rails : rounds->count;
    TRY(new_zeroed(&room, (size_t)most));
    if (rounds->count < PAIR_RAIL_FEW)
        ratio = fmin(ratio, PAIR_RAIL_RATIO_FEW);
    for (int rail = 0; rail < pairs->rails; rail++) {
        int low = 0;
        for (int i = 0; i < rounds->count; i++)
            low += rail_is_low(pairs, i, rail, ratio, room);
        pairs->slow_rails[rail] = low >= PAIR_RAIL_PART * rounds->count;
        for (int i = 0; i < rounds->count; i++)
            room[i] = health_pair_gbps(pairs, i, pairs->sizes - 1, rail);
        real_sort(room, rounds->count);
        pairs->rail_gbps[rail] = room[rounds->count / 2];
    }
    free(room);
    return ERR_OK;
}

/* What nodes are judged by: the slowest of the rails that are not slow by
 * themselves. */
static void pairs_rate(struct health_pairs *pairs)
{
    struct health_rounds *rounds = &pairs->rounds;
    for (int i = rounds->first; i < rounds->count; i++) {
        double gbps = INFINITY, prompt = INFINITY;
        for (int rail = 0; rail < pairs->rails; rail++) {
            int64_t least = *health_pair_time(pairs, i, 0, rail);
            if (pairs->slow_rails[rail])
                continue;
            gbps =
                fmin(gbps, health_pair_gbps(pairs, i, pairs->sizes - 1, rail));
            prompt = fmin(prompt, 1e3 / fmax((double)least, 1));
        }
        rounds->meetings[i].rates[HEALTH_BANDWIDTH] = gbps;
        rounds->meetings[i].rates[HEALTH_PROMPTNESS] = prompt;
    }
}

/* Collective; *spent_s: of the whole round. */
static enum err pairs_round(struct health_pairs *pairs,
                            struct pair_bench *bench, double *spent_s)
{
    const struct health_pair_options *options = bench->options;
    struct health_rounds *rounds = &pairs->rounds;
    bool first = rounds->round == HEALTH_ROUND_NEIGHBOURS;
    double size_s = 0, left_s = options->budget_s * PAIR_FIRST_PART;
    assert(rounds->count > rounds->first);
    for (int size = 0; size < pairs->sizes; size++) {
        if (first && size > 1 && size_s * HEALTH_PAIR_STEP > left_s)
            pairs->sizes = size;
        else if (first || size == 0 || size == pairs->sizes - 1) {
            TRY(pairs_size(pairs, bench, size, &size_s));
            left_s -= size_s;
            *spent_s += size_s;
        }
    }
    TRY(bench->wire->round_end(bench));
    if (first)
        TRY(pairs_name_rails(pairs, options->ratio_min));
    pairs_rate(pairs);
    health_rounds_judge(rounds);
    return ERR_OK;
}

/* The switch above this node, of what Slurm says of the way to it: "spine.s1.n7"
 * is node n7 below s1; without a topology there is the node's name alone. */
static void leaf_own(pair_leaf_name name)
{
    const char *way = getenv("SLURM_TOPOLOGY_ADDR");
    const char *end = way != NULL ? strrchr(way, '.') : NULL;
    const char *begin = end;
    name[0] = '\0';
    if (end == NULL)
        return;
    while (begin > way && begin[-1] != '.')
        begin--;
    snprintf(name, sizeof(pair_leaf_name), "%.*s", (int)(end - begin), begin);
}

static int leaf_compare(const void *a, const void *b, void *names)
{
    const pair_leaf_name *all = names;
    return strcmp(all[*(const int *)a], all[*(const int *)b]);
}

/* Everybody's switch to everybody, and numbers for them. A job that is behind one
 * switch, or of which that is not known of all, has one leaf. */
static enum err pairs_leaves(struct health_pairs *pairs,
                             struct pair_bench *bench)
{
    enum err rc = ERR_OK;
    int64_t *words = NULL;
    size_t size = (size_t)pairs->size, count = size * PAIR_LEAF_WORDS;
    size_t own =
        (size_t)(comm_rank(bench->comm) / pairs->rails) * PAIR_LEAF_WORDS;
    pair_leaf_name name = "";
    TRY(new_zeroed(&words, count));
    leaf_own(name);
    bench->leaf_slow =
        health_injected(bench->options->inject, "pair", name, "slow");
    memcpy(&words[own], name, sizeof name - 1);
    TRY_OUT(pairs_share(bench, words, count));
    for (size_t rank = 0; rank < size; rank++) {
        memcpy(pairs->leaf_names[rank], &words[rank * PAIR_LEAF_WORDS],
               sizeof name - 1);
        pairs->by_host[rank] = (int)rank;
    }
    qsort_r(pairs->by_host, size, sizeof(int), leaf_compare, pairs->leaf_names);
    if (pairs->leaf_names[pairs->by_host[0]][0] == '\0')
        goto out;
    for (size_t i = 1; i < size; i++) {
        const int *at = &pairs->by_host[i];
        pairs->leaf[*at] = pairs->leaf[at[-1]] +
                           (leaf_compare(at, at - 1, pairs->leaf_names) != 0);
    }
out:
    free(words);
    return rc;
}

/* All rounds, until there is no time for another: then who is suspected and has
 * not met enough others is not resolved. */
static enum err pairs_play(struct health_pairs *pairs, struct pair_bench *bench)
{
    double spent_s = 0;
    const struct health_pair_options *options = bench->options;
    TRY(pairs_leaves(pairs, bench));
    TRY(comm_agree(bench->comm,
                   health_rounds_create(pairs->size, pairs->leaf,
                                        options->ratio_min, options->min_gbps,
                                        &pairs->rounds)));
    size_t most = (size_t)pairs->rounds.room * HEALTH_PAIR_SIZES;
    TRY(comm_agree(bench->comm,
                   new_zeroed(&pairs->times, most * (size_t)pairs->rails)));
    while (spent_s < PAIR_LAST_PART * options->budget_s &&
           health_rounds_next(&pairs->rounds) > 0)
        TRY(pairs_round(pairs, bench, &spent_s));
    health_rounds_blame(&pairs->rounds);
    return health_pair_index(pairs);
}

enum err health_pair_run(struct comm *comm,
                         const struct health_pair_options *options,
                         struct health_pairs **out)
{
    enum err rc = ERR_OK;
    struct health_pairs *pairs = NULL;
    struct pair_bench bench = { 0 };
    double start = clock_now();
    size_t bytes_max = options->bytes_max;
    int rails = pairs_rails(comm, options->rails);
    assert(options->bytes_min >= 4 && options->bytes_min % 4 == 0);
    assert(options->repeats > 0 && options->budget_s > 0);
    *out = NULL;
    if (rails == 0)
        return err_set(ERR_UNSUPPORTED,
                       "pairs: %d ranks are not as many on every node, one "
                       "behind another; start them by srun "
                       "--ntasks-per-node=N --distribution=block",
                       comm_size(comm));
    if (comm_size(comm) / rails < 2)
        return err_set(ERR_UNSUPPORTED,
                       "pairs: one rank has nobody to meet; start one task on "
                       "each of several nodes with srun or mpirun");
    TRY_OUT(comm_agree(comm, pairs_create(comm, rails, &pairs)));
    TRY_OUT(health_pair_bench_create(comm, options, rails, &bench, &bytes_max));
    pairs->wire = bench.wire->name;
    pairs_sizes(pairs, options, bytes_max);
    TRY_OUT(pairs_play(pairs, &bench));
    pairs->dur_s = clock_now() - start;
out:
    health_pair_bench_destroy(&bench);
    return new_or_none(rc, pairs, out, health_pair_destroy);
}
