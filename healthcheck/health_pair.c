/* The rounds over a communicator. All ranks hold the same list of meetings and
 * the same results, so they all draw the same conclusions without a leader. */
#include "healthcheck/health_pair.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "healthcheck/health_rounds.h"
#include "src/base/clock.h"

#define PAIR_TAG 77
#define PAIR_SLOW_S 0.3 /* injected delay */

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

static enum err pairs_create(struct comm *comm, size_t bytes,
                             struct health_pairs **out)
{
    int size = comm_size(comm);
    struct health_pairs *pairs = calloc(1, sizeof *pairs);
    if (pairs == NULL)
        return err_set(ERR_MEMORY, "pairs: no memory");
    size_t most = (size_t)health_rounds_max(size);
    pairs->size = size;
    pairs->bytes = bytes;
    pairs->t0 = clock_wall();
    pairs->hosts = calloc((size_t)size, sizeof *pairs->hosts);
    pairs->states = calloc((size_t)size, sizeof *pairs->states);
    pairs->meetings = calloc(most, sizeof *pairs->meetings);
    if (pairs->hosts == NULL || pairs->states == NULL ||
        pairs->meetings == NULL) {
        health_pair_destroy(pairs);
        return err_set(ERR_MEMORY, "pairs: no memory for %d ranks", size);
    }
    for (int rank = 0; rank < size; rank++)
        snprintf(pairs->hosts[rank], sizeof pairs->hosts[rank], "%s",
                 comm_host(comm, rank));
    *out = pairs;
    return ERR_OK;
}

/* --- one meeting ---------------------------------------------------------- */

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
        .own = malloc(options->bytes),
        .other = malloc(options->bytes),
        .sum = malloc(options->bytes),
    };
    if (bench->own == NULL || bench->other == NULL || bench->sum == NULL)
        return err_set(ERR_MEMORY, "pairs: no memory for three vectors");
    bench->wrong = pair_injected(bench, "wrong");
    bench->slow = pair_injected(bench, "slow");
    for (size_t i = 0; i < bench->count; i++)
        bench->own[i] = pair_value(rank, i);
    if (bench->wrong)
        bench->own[bench->count / 2] += 1;
    return ERR_OK;
}

static enum err bench_exchange(struct pair_bench *bench, int peer)
{
    enum err rc = ERR_OK;
    struct comm_request *recv = NULL;
    struct comm_request *send = NULL;
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
out:
    return rc;
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
    enum err rc = ERR_OK;
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
out:
    return rc;
}

/* --- rounds --------------------------------------------------------------- */

/* The slower side's time and the larger number of wrong elements count. */
static enum err pairs_share(struct pair_bench *bench, int64_t *values,
                            size_t count)
{
    struct comm_request *request = NULL;
    enum err rc = comm_start_all_reduce_i64(bench->comm, values, count,
                                            COMM_MAX, &request);
    return rc != ERR_OK ? rc : comm_wait(request, bench->options->timeout_s);
}

static enum err pairs_round(struct health_pairs *pairs,
                            struct pair_bench *bench, int added)
{
    enum err rc = ERR_OK;
    int rank = comm_rank(bench->comm);
    struct health_meeting *meetings = pairs->meetings + pairs->count;
    int64_t *values = calloc(2 * (size_t)added, sizeof *values);
    if (values == NULL)
        return err_set(ERR_MEMORY, "pairs: no memory for %d results", added);
    /* The list is in order of waves: nobody waits in a circle. */
    for (int i = 0; i < added; i++) {
        int a = meetings[i].a;
        int b = meetings[i].b;
        if (rank == a || rank == b)
            TRY(bench_meet(bench, rank == a ? b : a, &values[2 * i],
                           &values[2 * i + 1]));
    }
    TRY(pairs_share(bench, values, 2 * (size_t)added));
    for (int i = 0; i < added; i++) {
        double seconds = (double)values[2 * i] / 1e9;
        meetings[i].gbps = (double)pairs->bytes / fmax(seconds, 1e-9) / 1e9;
        meetings[i].wrong = values[2 * i + 1];
    }
    int first = pairs->count;
    pairs->count += added;
    if (first == 0)
        pairs->median_gbps = health_rounds_median(meetings, added);
    health_rounds_judge(pairs->meetings, first, pairs->count,
                        pairs->median_gbps, bench->options->min_gbps,
                        bench->options->ratio_min);
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
    TRY(comm_agree(comm, pairs_create(comm, options->bytes, &pairs)));
    TRY(comm_agree(comm, bench_create(comm, options, &bench)));
    int added = health_rounds_neighbours(pairs->size, pairs->meetings);
    for (int round = 1; round <= HEALTH_ROUNDS && added > 0; round++) {
        TRY(pairs_round(pairs, &bench, added));
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

/* --- verdicts ------------------------------------------------------------- */

enum health_state health_pair_rank(const struct health_pairs *pairs, int rank)
{
    assert(rank >= 0 && rank < pairs->size);
    return pairs->states[rank];
}

int health_pair_count(const struct health_pairs *pairs)
{
    return pairs->count;
}

enum health_state health_pair_state(const struct health_pairs *pairs)
{
    enum health_state state = HEALTH_OK;
    for (int rank = 0; rank < pairs->size; rank++)
        state = health_worse(state, pairs->states[rank]);
    for (int i = 0; i < pairs->count; i++)
        if (health_rounds_is_link(&pairs->meetings[i], pairs->states))
            state = health_worse(state, HEALTH_WARN);
    return state;
}

/* The first suspicious meeting of a rank; NULL: none. */
static const struct health_meeting *
pairs_evidence(const struct health_pairs *pairs, int rank)
{
    for (int i = 0; i < pairs->count; i++) {
        const struct health_meeting *meeting = &pairs->meetings[i];
        if (meeting->suspicious && (meeting->a == rank || meeting->b == rank))
            return meeting;
    }
    return NULL;
}

static void pairs_reason(const struct health_pairs *pairs, const char *code,
                         const char *who, const struct health_meeting *meeting,
                         char *reason)
{
    char text[512];
    if (meeting->wrong > 0)
        snprintf(text, sizeof text, HEALTH_PREFIX "%s %s %lld elements", code,
                 who, (long long)meeting->wrong);
    else
        snprintf(text, sizeof text, HEALTH_PREFIX "%s %s %.3gGB/s/%.3g", code,
                 who, meeting->gbps, pairs->median_gbps);
    health_report_clean(text);
    memcpy(reason, text, strlen(text) + 1);
}

static void pairs_explain_rank(const struct health_pairs *pairs, int rank,
                               const char **code,
                               char reason[HEALTH_REASON_MAX + 1])
{
    const struct health_meeting *meeting = pairs_evidence(pairs, rank);
    char who[128];
    *code = "";
    reason[0] = '\0';
    if (pairs->states[rank] == HEALTH_OK || meeting == NULL)
        return;
    *code = meeting->wrong > 0 ? "PAIR_WRONG" : "PAIR_SLOW";
    if (pairs->states[rank] == HEALTH_UNKNOWN)
        *code = "PAIR_UNRESOLVED";
    snprintf(who, sizeof who, "%s rank %d", pairs->hosts[rank], rank);
    pairs_reason(pairs, *code, who, meeting, reason);
}

/* Code and reason of all together: of the first of the gravest. */
static void pairs_explain(const struct health_pairs *pairs, const char **code,
                          char reason[HEALTH_REASON_MAX + 1])
{
    enum health_state state = health_pair_state(pairs);
    *code = "";
    reason[0] = '\0';
    if (state == HEALTH_OK)
        return;
    for (int rank = 0; rank < pairs->size; rank++) {
        if (pairs->states[rank] == state) {
            pairs_explain_rank(pairs, rank, code, reason);
            return;
        }
    }
    for (int i = 0; i < pairs->count; i++) {
        const struct health_meeting *meeting = &pairs->meetings[i];
        char who[192];
        if (!health_rounds_is_link(meeting, pairs->states))
            continue;
        *code = "LINK";
        snprintf(who, sizeof who, "%s-%s", pairs->hosts[meeting->a],
                 pairs->hosts[meeting->b]);
        pairs_reason(pairs, *code, who, meeting, reason);
        return;
    }
}

static const char *pairs_meeting_state(const struct health_meeting *meeting)
{
    enum health_state state = meeting->hard         ? HEALTH_BAD
                              : meeting->suspicious ? HEALTH_WARN
                                                    : HEALTH_OK;
    return health_state_name(state);
}

static json_t *pairs_json_nodes(const struct health_pairs *pairs)
{
    json_t *nodes = json_array();
    for (int rank = 0; rank < pairs->size; rank++) {
        const char *code;
        char reason[HEALTH_REASON_MAX + 1];
        pairs_explain_rank(pairs, rank, &code, reason);
        json_array_append_new(
            nodes, json_pack("{s:s, s:i, s:s, s:s, s:s}", "host",
                             pairs->hosts[rank], "rank", rank, "verdict",
                             health_state_name(pairs->states[rank]), "code",
                             code, "reason", reason));
    }
    return nodes;
}

json_t *health_pair_json(const struct health_pairs *pairs)
{
    const char *code;
    char reason[HEALTH_REASON_MAX + 1];
    const char *job = getenv("SLURM_JOB_ID");
    json_t *list = json_array();
    for (int i = 0; i < pairs->count; i++) {
        const struct health_meeting *meeting = &pairs->meetings[i];
        json_array_append_new(
            list, json_pack("{s:i, s:i, s:i, s:I, s:f, s:I, s:s}", "a",
                            meeting->a, "b", meeting->b, "round",
                            meeting->round, "bytes", (json_int_t)pairs->bytes,
                            "busbw", round(meeting->gbps * 1e4) / 1e4, "wrong",
                            (json_int_t)meeting->wrong, "st",
                            pairs_meeting_state(meeting)));
    }
    pairs_explain(pairs, &code, reason);
    return json_pack(
        "{s:s, s:s, s:s, s:I, s:f, s:f, s:s, s:s, s:s, s:o, s:o}", "schema",
        "tessera-health/1", "host", pairs->hosts[0], "phase", "pairs", "job",
        (json_int_t)(job != NULL ? strtol(job, NULL, 10) : 0), "t0",
        round(pairs->t0 * 1000) / 1000, "dur_s",
        round(pairs->dur_s * 1000) / 1000, "verdict",
        health_state_name(health_pair_state(pairs)), "code", code, "reason",
        reason, "nodes", pairs_json_nodes(pairs), "pairs", list);
}

void health_pair_print(const struct health_pairs *pairs, FILE *file)
{
    const char *code;
    char reason[HEALTH_REASON_MAX + 1];
    fprintf(file, "%5s  %-16s  %-16s  %10s  %8s  %8s  %s\n", "round", "a", "b",
            "bytes", "busbw", "#wrong", "state");
    for (int i = 0; i < pairs->count; i++) {
        const struct health_meeting *meeting = &pairs->meetings[i];
        fprintf(file, "%5d  %-16s  %-16s  %10zu  %8.3f  %8lld  %s\n",
                meeting->round, pairs->hosts[meeting->a],
                pairs->hosts[meeting->b], pairs->bytes, meeting->gbps,
                (long long)meeting->wrong, pairs_meeting_state(meeting));
    }
    for (int rank = 0; rank < pairs->size; rank++) {
        pairs_explain_rank(pairs, rank, &code, reason);
        if (pairs->states[rank] != HEALTH_OK)
            fprintf(file, "%s (rank %d): %s: %s\n", pairs->hosts[rank], rank,
                    health_state_name(pairs->states[rank]), reason);
    }
    pairs_explain(pairs, &code, reason);
    fprintf(file, "%d ranks: %s in %.2f s%s%s\n", pairs->size,
            health_state_name(health_pair_state(pairs)), pairs->dur_s,
            reason[0] != '\0' ? ": " : "", reason);
}
