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

#include "healthcheck/health_rounds.h"
#include "src/base/clock.h"
#include "src/base/new.h"

#define PAIR_TAG 77
#define PAIR_SLOW_S 0.3 /* injected delay */
/* Few pairs on a busy machine differ by that much without a fault. */
#define PAIR_RATIO_SMALL 0.5

struct health_pairs {
    int size;
    int count;
    size_t bytes;
    double dur_s;
    double t0;
    double median_gbps;
    char (*hosts)[64];
    struct health_meeting *meetings;
    enum health_state *states; /* per rank */
};

/* What one rank needs for its meetings. */
struct pair_bench {
    struct comm *comm;
    const struct health_pair_options *options;
    float *own, *other, *sum;
    size_t count;
    bool wrong, slow; /* injected */
};

void health_pair_destroy(struct health_pairs *pairs)
{
    if (pairs == NULL)
        return;
    free(pairs->states);
    free(pairs->meetings);
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
    TRY(new_zeroed(&pairs->states, (size_t)size));
    TRY(new_zeroed(&pairs->meetings, (size_t)health_rounds_max(size)));
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
    if (bench->slow)
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
                            struct pair_bench *bench, int added)
{
    enum err rc = ERR_OK;
    int rank = comm_rank(bench->comm);
    struct health_meeting *meetings = pairs->meetings + pairs->count;
    assert(added > 0 && pairs->count + added <= health_rounds_max(pairs->size));
    int64_t *values = NULL;
    TRY(new_zeroed(&values, 2 * (size_t)added));
    /* The list is in order of waves: nobody waits in a circle. */
    for (int i = 0; i < added; i++) {
        int a = meetings[i].a;
        int b = meetings[i].b;
        if (rank == a || rank == b)
            TRY_OUT(bench_meet(bench, rank == a ? b : a, &values[2 * i],
                               &values[2 * i + 1]));
    }
    TRY_OUT(pairs_share(bench, values, 2 * (size_t)added));
    for (int i = 0; i < added; i++) {
        double seconds = (double)values[2 * i] / 1e9;
        meetings[i].gbps = (double)pairs->bytes / fmax(seconds, 1e-9) / 1e9;
        meetings[i].wrong = values[2 * i + 1];
    }
    int first = pairs->count;
    pairs->count += added;
    if (first == 0)
        pairs->median_gbps = health_rounds_median(meetings, added);
    double ratio = bench->options->ratio_min;
    if (pairs->size / 2 < HEALTH_COHORT_MIN)
        ratio = fmin(ratio, PAIR_RATIO_SMALL);
    health_rounds_judge(pairs->meetings, first, pairs->count,
                        pairs->median_gbps, bench->options->min_gbps, ratio);
out:
    free(values);
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
    int added = health_rounds_neighbours(pairs->size, pairs->meetings);
    for (int round = 1; round <= HEALTH_ROUNDS && added > 0; round++) {
        TRY_OUT(pairs_round(pairs, &bench, added));
        if (round < HEALTH_ROUNDS)
            added = health_rounds_retest(pairs->size, pairs->meetings,
                                         pairs->count, round + 1);
    }
    health_rounds_blame(pairs->size, pairs->meetings, pairs->count,
                        pairs->states);
    pairs->dur_s = clock_now() - start;
    *out = pairs;
    pairs = NULL;
out:
    bench_destroy(&bench);
    health_pair_destroy(pairs);
    return rc;
}

/* --- the outcome, for programs and for people --- */

struct pair_blame {
    enum health_state state;
    char code[24];
    char reason[HEALTH_REASON_MAX + 1];
};

static bool pair_of(const struct health_meeting *meeting, int rank)
{
    return meeting->a == rank || meeting->b == rank;
}

/* What speaks most clearly against a rank; NULL: nothing. A rank that was at
 * least once merely slow is not blamed for the errors of whom it met. */
static const struct health_meeting *
pair_evidence(const struct health_pairs *pairs, int rank)
{
    for (int i = 0; i < pairs->count; i++) {
        const struct health_meeting *meeting = &pairs->meetings[i];
        bool spared = pairs->states[rank] == HEALTH_WARN && meeting->wrong > 0;
        if (meeting->suspicious && pair_of(meeting, rank) && !spared)
            return meeting;
    }
    return NULL;
}

static void pair_say(const struct health_pairs *pairs, const char *who,
                     const struct health_meeting *meeting,
                     struct pair_blame *out)
{
    char text[512];
    if (meeting->wrong > 0)
        snprintf(text, sizeof text, HEALTH_PREFIX "%s %s %lld elements wrong",
                 out->code, who, (long long)meeting->wrong);
    else
        snprintf(text, sizeof text, HEALTH_PREFIX "%s %s %.3gGB/s/%.3g",
                 out->code, who, meeting->gbps, pairs->median_gbps);
    health_report_clean(text);
    assert(strlen(text) < sizeof out->reason);
    memcpy(out->reason, text, strlen(text) + 1);
}

static int pair_partners(const struct health_pairs *pairs, int rank)
{
    int count = 0;
    for (int i = 0; i < pairs->count; i++)
        count += pair_of(&pairs->meetings[i], rank);
    return count;
}

static void pair_blame_rank(const struct health_pairs *pairs, int rank,
                            struct pair_blame *out)
{
    char who[160];
    assert(rank >= 0 && rank < pairs->size);
    const struct health_meeting *meeting = pair_evidence(pairs, rank);
    memset(out, 0, sizeof *out);
    out->state = pairs->states[rank];
    if (meeting == NULL)
        return;
    int peer = meeting->a == rank ? meeting->b : meeting->a;
    if (out->state == HEALTH_OK &&
        health_rounds_is_link(meeting, pairs->states)) {
        out->state = HEALTH_WARN;
        snprintf(out->code, sizeof out->code, "LINK");
        snprintf(who, sizeof who, "%s-%s", pairs->hosts[rank],
                 pairs->hosts[peer]);
    } else if (out->state != HEALTH_OK) {
        snprintf(out->code, sizeof out->code, "%s",
                 pair_partners(pairs, rank) < 2 ? "PAIR_UNRESOLVED"
                 : meeting->wrong > 0           ? "PAIR_WRONG"
                                                : "PAIR_SLOW");
        snprintf(who, sizeof who, "rank %d with %s", rank, pairs->hosts[peer]);
    } else {
        return;
    }
    pair_say(pairs, who, meeting, out);
}

/* The gravest of the ranks on this host. */
static void pair_blame_host(const struct health_pairs *pairs, const char *host,
                            struct pair_blame *out)
{
    memset(out, 0, sizeof *out);
    for (int rank = 0; rank < pairs->size; rank++) {
        struct pair_blame one;
        if (strcmp(pairs->hosts[rank], host) != 0)
            continue;
        pair_blame_rank(pairs, rank, &one);
        if (health_worse(out->state, one.state) != out->state)
            *out = one;
    }
}

enum health_state health_pair_state(const struct health_pairs *pairs)
{
    enum health_state state = HEALTH_OK;
    for (int rank = 0; rank < pairs->size; rank++) {
        struct pair_blame one;
        pair_blame_rank(pairs, rank, &one);
        state = health_worse(state, one.state);
    }
    return state;
}

static const char *pair_meeting_state(const struct health_meeting *meeting)
{
    enum health_state state = meeting->hard         ? HEALTH_BAD
                              : meeting->suspicious ? HEALTH_WARN
                                                    : HEALTH_OK;
    return health_state_name(state);
}

static json_t *pair_json_meetings(const struct health_pairs *pairs,
                                  const char *host)
{
    json_t *list = json_array();
    for (int i = 0; i < pairs->count; i++) {
        const struct health_meeting *meeting = &pairs->meetings[i];
        int rank = meeting->a;
        int peer = meeting->b;
        if (strcmp(pairs->hosts[rank], host) != 0) {
            rank = meeting->b;
            peer = meeting->a;
        }
        if (strcmp(pairs->hosts[rank], host) != 0)
            continue;
        json_array_append_new(
            list,
            json_pack("{s:i, s:s, s:i, s:i, s:I, s:f, s:I, s:s}", "rank", rank,
                      "peer", pairs->hosts[peer], "peer_rank", peer, "round",
                      meeting->round, "bytes", (json_int_t)pairs->bytes,
                      "busbw", round(meeting->gbps * 1e4) / 1e4, "wrong",
                      (json_int_t)meeting->wrong, "st",
                      pair_meeting_state(meeting)));
    }
    return list;
}

static json_t *pair_json_host(const struct health_pairs *pairs,
                              const char *host)
{
    struct pair_blame blame;
    const char *job = getenv("SLURM_JOB_ID");
    pair_blame_host(pairs, host, &blame);
    return json_pack(
        "{s:s, s:s, s:s, s:I, s:f, s:f, s:s, s:s, s:s, s:s, s:o}", "schema",
        "tessera-health/1", "host", host, "phase", "pairs", "job",
        (json_int_t)(job != NULL ? strtol(job, NULL, 10) : 0), "t0",
        round(pairs->t0 * 1000) / 1000, "dur_s",
        round(pairs->dur_s * 1000) / 1000, "verdict",
        health_state_name(blame.state), "code", blame.code, "reason",
        blame.reason, "action", blame.state == HEALTH_BAD ? "drain" : "none",
        "pairs", pair_json_meetings(pairs, host));
}

json_t *health_pair_json(const struct health_pairs *pairs)
{
    json_t *hosts = json_array();
    for (int rank = 0; rank < pairs->size; rank++) {
        bool seen = false;
        for (int earlier = 0; earlier < rank && !seen; earlier++)
            seen = strcmp(pairs->hosts[earlier], pairs->hosts[rank]) == 0;
        if (!seen)
            json_array_append_new(hosts,
                                  pair_json_host(pairs, pairs->hosts[rank]));
    }
    return hosts;
}

void health_pair_print(const struct health_pairs *pairs, FILE *file)
{
    fprintf(file, "%5s  %-16s  %-16s  %10s  %8s  %8s  %s\n", "round", "a", "b",
            "bytes", "busbw", "#wrong", "state");
    for (int i = 0; i < pairs->count; i++) {
        const struct health_meeting *meeting = &pairs->meetings[i];
        fprintf(file, "%5d  %-16s  %-16s  %10zu  %8.3f  %8lld  %s\n",
                meeting->round, pairs->hosts[meeting->a],
                pairs->hosts[meeting->b], pairs->bytes, meeting->gbps,
                (long long)meeting->wrong, pair_meeting_state(meeting));
    }
    for (int rank = 0; rank < pairs->size; rank++) {
        struct pair_blame blame;
        pair_blame_rank(pairs, rank, &blame);
        if (blame.state != HEALTH_OK)
            fprintf(file, "%s (rank %d): %s: %s\n", pairs->hosts[rank], rank,
                    health_state_name(blame.state), blame.reason);
    }
    fprintf(file, "%d ranks: %s in %.2f s\n", pairs->size,
            health_state_name(health_pair_state(pairs)), pairs->dur_s);
}
