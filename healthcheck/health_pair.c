/* The rounds over a communicator, and what came of them. All ranks hold the same
 * list of meetings and the same results, so they all draw the same conclusions
 * without a leader.
 *
 * In a meeting both send their vector to the other and add what comes: an
 * all-reduce of two, whose bytes on the wire are those of one vector each way.
 * The best of some repeats counts, as others use the network, too, and of the
 * two sides' times the longer. Numbers are small and whole, so that each side
 * knows every sum without having seen the other's vector, and one wrong bit on
 * the way, in memory or in an adder, shows. */
#include "healthcheck/health_pair.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "healthcheck/health_pair_impl.h"
#include "src/base/clock.h"
#include "src/base/new.h"

#define PAIR_TAG 77
#define PAIR_SLOW_S 0.3 /* injected delay */
/* What one rank needs for its meetings. */
struct pair_bench {
    struct comm *comm;
    const struct health_pair_options *options;
    float *own, *other, *sum;
    size_t count;
    bool wrong, slow; /* injected, as what follows */
    bool leaf_slow;   /* to whoever is behind another leaf */
    bool across_slow; /* so in this meeting */
};

void health_pair_destroy(struct health_pairs *pairs)
{
    if (pairs == NULL)
        return;
    health_rounds_destroy(&pairs->rounds);
    free(pairs->met);
    free(pairs->begin);
    free(pairs->by_host);
    free(pairs->leaf);
    free(pairs->leaf_names);
    free(pairs->hosts);
    free(pairs);
}

/* The caller destroys it, also after an error. */
static enum err pairs_create(struct comm *comm, size_t bytes,
                             struct health_pairs **out)
{
    int size = comm_size(comm);
    TRY(new_zeroed(out, 1));
    struct health_pairs *pairs = *out;
    pairs->size = size;
    pairs->bytes = bytes;
    pairs->t0 = clock_wall();
    TRY(new_zeroed(&pairs->hosts, (size_t)size));
    TRY(new_zeroed(&pairs->leaf_names, (size_t)size));
    TRY(new_zeroed(&pairs->leaf, (size_t)size));
    TRY(new_zeroed(&pairs->by_host, (size_t)size));
    TRY(new_zeroed(&pairs->begin, (size_t)size + 2));
    for (int rank = 0; rank < size; rank++)
        snprintf(pairs->hosts[rank], sizeof pairs->hosts[rank], "%s",
                 comm_host(comm, rank));
    return ERR_OK;
}

/* --- one meeting --- */

/* Small whole numbers: their sums are exact. */
static float pair_value(int rank, size_t index)
{
    return (float)((index * 7 + (size_t)rank * 13) % 1021);
}

static bool pair_injected(const struct pair_bench *bench, const char *what)
{
    char name[32];
    int rank = comm_rank(bench->comm);
    snprintf(name, sizeof name, "rank%d", rank);
    const char *inject = bench->options->inject;
    return health_injected(inject, "pair", name, what) ||
           health_injected(inject, "pair", comm_host(bench->comm, rank), what);
}

static void bench_destroy(struct pair_bench *bench)
{
    free(bench->sum);
    free(bench->other);
    free(bench->own);
}

static enum err bench_create(struct comm *comm,
                             const struct health_pair_options *options,
                             struct pair_bench *bench)
{
    int rank = comm_rank(comm);
    *bench = (struct pair_bench){
        .comm = comm,
        .options = options,
        .count = options->bytes / sizeof(float),
    };
    TRY(new_room(&bench->own, bench->count));
    TRY(new_room(&bench->other, bench->count));
    TRY(new_room(&bench->sum, bench->count));
    bench->wrong = pair_injected(bench, "wrong");
    bench->slow = pair_injected(bench, "slow");
    for (size_t i = 0; i < bench->count; i++)
        bench->own[i] = pair_value(rank, i);
    if (bench->wrong)
        bench->own[bench->count / 2] += 1;
    return ERR_OK;
}

/* Both receive before they send, so that no message has to wait for room. */
static enum err bench_exchange(struct pair_bench *bench, int peer)
{
    struct comm_request *recv = NULL;
    struct comm_request *send = NULL;
    assert(peer != comm_rank(bench->comm));
    size_t bytes = bench->count * sizeof(float);
    double timeout_s = bench->options->timeout_s;
    if (bench->slow || bench->across_slow)
        clock_sleep(PAIR_SLOW_S);
    TRY(comm_start_recv(bench->comm, bench->other, bytes, peer, PAIR_TAG,
                        &recv));
    TRY(comm_start_send(bench->comm, bench->own, bytes, peer, PAIR_TAG, &send));
    TRY(comm_wait(recv, timeout_s));
    TRY(comm_wait(send, timeout_s));
    for (size_t i = 0; i < bench->count; i++)
        bench->sum[i] = bench->own[i] + bench->other[i];
    return ERR_OK;
}

static int64_t bench_verify(const struct pair_bench *bench, int peer)
{
    int rank = comm_rank(bench->comm);
    int64_t wrong = 0;
    for (size_t i = 0; i < bench->count; i++)
        wrong += bench->sum[i] != pair_value(rank, i) + pair_value(peer, i);
    return wrong;
}

static enum err bench_meet(struct pair_bench *bench, int peer,
                           int64_t *nanoseconds, int64_t *wrong)
{
    double best_s = INFINITY;
    /* The first one warms up and brings both to the same time. */
    for (int i = 0; i <= bench->options->repeats; i++) {
        memset(bench->other, 0, bench->count * sizeof(float));
        double start = clock_now();
        TRY(bench_exchange(bench, peer));
        if (i > 0)
            best_s = fmin(best_s, clock_now() - start);
        int64_t now = bench_verify(bench, peer);
        *wrong = now > *wrong ? now : *wrong;
    }
    *nanoseconds = (int64_t)(best_s * 1e9);
    return ERR_OK;
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

/* Who is in no meeting of the round goes on to the exchange of results at once,
 * and waits there for the others. */
static enum err pairs_round(struct health_pairs *pairs,
                            struct pair_bench *bench)
{
    enum err rc = ERR_OK;
    int rank = comm_rank(bench->comm);
    struct health_rounds *rounds = &pairs->rounds;
    size_t added = (size_t)(rounds->count - rounds->first);
    struct health_meeting *meetings = rounds->meetings + rounds->first;
    assert(rounds->count > rounds->first);
    int64_t *values = NULL;
    TRY(new_zeroed(&values, 2 * added));
    /* The list is in order of waves: nobody waits in a circle. */
    for (size_t i = 0; i < added; i++) {
        int a = meetings[i].a;
        int b = meetings[i].b;
        bench->across_slow =
            bench->leaf_slow && pairs->leaf[a] != pairs->leaf[b];
        if (rank == a || rank == b)
            TRY_OUT(bench_meet(bench, rank == a ? b : a, &values[2 * i],
                               &values[2 * i + 1]));
    }
    TRY_OUT(pairs_share(bench, values, 2 * added));
    for (size_t i = 0; i < added; i++) {
        double seconds = (double)values[2 * i] / 1e9;
        meetings[i].gbps = (double)pairs->bytes / fmax(seconds, 1e-9) / 1e9;
        meetings[i].wrong = values[2 * i + 1];
    }
    health_rounds_judge(rounds);
out:
    free(values);
    return rc;
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
    size_t own = (size_t)comm_rank(bench->comm) * PAIR_LEAF_WORDS;
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

enum err health_pair_run(struct comm *comm,
                         const struct health_pair_options *options,
                         struct health_pairs **out)
{
    enum err rc = ERR_OK;
    struct health_pairs *pairs = NULL;
    struct pair_bench bench = { 0 };
    double start = clock_now();
    assert(options->bytes >= 4 && options->bytes % 4 == 0);
    assert(options->repeats > 0);
    *out = NULL;
    if (comm_size(comm) < 2)
        return err_set(ERR_UNSUPPORTED,
                       "pairs: one rank has nobody to meet; start one task on "
                       "each of several nodes with srun or mpirun");
    TRY_OUT(comm_agree(comm, pairs_create(comm, options->bytes, &pairs)));
    TRY_OUT(comm_agree(comm, bench_create(comm, options, &bench)));
    TRY_OUT(pairs_leaves(pairs, &bench));
    TRY_OUT(comm_agree(
        comm, health_rounds_create(pairs->size, pairs->leaf, options->ratio_min,
                                   options->min_gbps, &pairs->rounds)));
    while (health_rounds_next(&pairs->rounds) > 0)
        TRY_OUT(pairs_round(pairs, &bench));
    health_rounds_blame(&pairs->rounds);
    TRY_OUT(health_pair_index(pairs));
    pairs->dur_s = clock_now() - start;
    *out = pairs;
    pairs = NULL;
out:
    bench_destroy(&bench);
    health_pair_destroy(pairs);
    return rc;
}
