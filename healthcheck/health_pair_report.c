/* What came of the pairing rounds, for programs and for people: of each rank what
 * speaks against it, of each host the gravest of its ranks. Reports go through
 * lists by rank and by host, so that their time grows as the ranks do. */
#include "healthcheck/health_pair_impl.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"

static int host_compare(const void *a, const void *b, void *arg)
{
    const struct health_pairs *pairs = arg;
    int one = *(const int *)a, other = *(const int *)b;
    int order = strcmp(pairs->hosts[one], pairs->hosts[other]);
    return order != 0 ? order : one - other;
}

enum err health_pair_index(struct health_pairs *pairs)
{
    const struct health_rounds *rounds = &pairs->rounds;
    int *next = pairs->begin + 1;
    TRY(new_zeroed(&pairs->met, 2 * (size_t)rounds->count));
    for (int i = 0; i < rounds->count; i++) {
        next[rounds->meetings[i].a + 1]++;
        next[rounds->meetings[i].b + 1]++;
    }
    for (int rank = 0; rank < pairs->size; rank++) {
        next[rank + 1] += next[rank];
        pairs->by_host[rank] = rank;
    }
    for (int i = 0; i < rounds->count; i++) {
        pairs->met[next[rounds->meetings[i].a]++] = i;
        pairs->met[next[rounds->meetings[i].b]++] = i;
    }
    qsort_r(pairs->by_host, (size_t)pairs->size, sizeof(int), host_compare,
            pairs);
    return ERR_OK;
}

struct pair_blame {
    enum health_state state;
    char code[24];
    char reason[HEALTH_REASON_MAX + 1];
};

static const struct health_meeting *
pair_meeting(const struct health_pairs *pairs, int rank, int i)
{
    return &pairs->rounds.meetings[pairs->met[pairs->begin[rank] + i]];
}

static int pair_count(const struct health_pairs *pairs, int rank)
{
    assert(rank >= 0 && rank < pairs->size);
    return pairs->begin[rank + 1] - pairs->begin[rank];
}

static int pair_peer(const struct health_meeting *meeting, int rank)
{
    return meeting->a == rank ? meeting->b : meeting->a;
}

/* What speaks most clearly against a rank, or in the leaves' round against its
 * leaf; NULL: nothing. A rank that was at least once merely slow is not blamed for
 * the errors of whom it met. */
static const struct health_meeting *
pair_evidence(const struct health_pairs *pairs, int rank, bool of_leaf)
{
    for (int i = 0; i < pair_count(pairs, rank); i++) {
        const struct health_meeting *meeting = pair_meeting(pairs, rank, i);
        bool spared =
            pairs->rounds.states[rank] == HEALTH_WARN && meeting->wrong > 0;
        bool across = meeting->round == HEALTH_ROUND_LEAVES;
        if (meeting->suspicious && !spared && (of_leaf || !across))
            return meeting;
    }
    return NULL;
}

/* `rates`: by which of them, of which the first is told. */
static void pair_say(const char *who, const struct health_meeting *meeting,
                     unsigned rates, struct pair_blame *out)
{
    char text[512], what[64];
    if (meeting->wrong > 0)
        snprintf(what, sizeof what, "%lld elements wrong",
                 (long long)meeting->wrong);
    else if ((rates & 1u << HEALTH_BANDWIDTH) != 0)
        snprintf(what, sizeof what, "%.3gGB/s/%.3g",
                 meeting->rates[HEALTH_BANDWIDTH],
                 meeting->medians[HEALTH_BANDWIDTH]);
    else
        snprintf(what, sizeof what, "%.3gus/%.3g",
                 1 / meeting->rates[HEALTH_PROMPTNESS],
                 1 / meeting->medians[HEALTH_PROMPTNESS]);
    snprintf(text, sizeof text, HEALTH_PREFIX "%s %s %s", out->code, who, what);
    health_report_clean(text);
    assert(strlen(text) < sizeof out->reason);
    memcpy(out->reason, text, strlen(text) + 1);
}

/* The rates by which a rank was suspicious in each of its meetings. */
static unsigned pair_rates(const struct health_pairs *pairs, int rank)
{
    unsigned rates = HEALTH_RATES_ALL;
    for (int i = 0; i < pair_count(pairs, rank); i++)
        if (pair_meeting(pairs, rank, i)->round != HEALTH_ROUND_LEAVES)
            rates &= pair_meeting(pairs, rank, i)->suspicious;
    return rates;
}

/* What is wrong with the rails of all, where the node itself is well. */
static void pair_blame_rails(const struct health_pairs *pairs,
                             struct pair_blame *out)
{
    double best = 0;
    for (int rail = 0; rail < pairs->rails; rail++)
        best = fmax(best, pairs->rail_gbps[rail]);
    for (int rail = pairs->rails; rail-- > 0;) {
        if (!pairs->slow_rails[rail])
            continue;
        out->state = HEALTH_WARN;
        snprintf(out->code, sizeof out->code, "RAIL");
        snprintf(out->reason, sizeof out->reason,
                 HEALTH_PREFIX "RAIL rail %d of all nodes %.3gGB/s/%.3g", rail,
                 pairs->rail_gbps[rail], best);
    }
}

static void pair_blame_rank(const struct health_pairs *pairs, int rank,
                            struct pair_blame *out)
{
    char who[200];
    const struct health_rounds *rounds = &pairs->rounds;
    bool leaf = rounds->slow_leaves[pairs->leaf[rank]];
    const struct health_meeting *meeting = pair_evidence(pairs, rank, leaf);
    memset(out, 0, sizeof *out);
    pair_blame_rails(pairs, out);
    if (meeting == NULL)
        return;
    const char *peer = pairs->hosts[pair_peer(meeting, rank)];
    unsigned rates = meeting->suspicious;
    if (rounds->states[rank] != HEALTH_OK) {
        rates = pair_rates(pairs, rank);
        out->state = rounds->states[rank];
        snprintf(out->code, sizeof out->code, "%s",
                 health_rounds_partners(rounds, rank) < 2 ? "PAIR_UNRESOLVED"
                 : meeting->wrong > 0                     ? "PAIR_WRONG"
                 : (rates & 1u << HEALTH_BANDWIDTH) != 0  ? "PAIR_SLOW"
                                                          : "PAIR_LATE");
        snprintf(who, sizeof who, "rank %d with %s", rank * pairs->rails, peer);
    } else if (leaf) {
        snprintf(out->code, sizeof out->code, "LEAF");
        snprintf(who, sizeof who, "switch %s, %s with %s",
                 pairs->leaf_names[rank], pairs->hosts[rank], peer);
    } else if (health_rounds_is_link(rounds, meeting)) {
        snprintf(out->code, sizeof out->code, "LINK");
        snprintf(who, sizeof who, "%s-%s", pairs->hosts[rank], peer);
    } else {
        return;
    }
    out->state = out->state != HEALTH_OK ? out->state : HEALTH_WARN;
    pair_say(who, meeting, rates, out);
}

/* The gravest of the ranks of one host, which begin at `i` of by_host; sets i to
 * the next host's. */
static void pair_blame_host(const struct health_pairs *pairs, int *i,
                            struct pair_blame *out)
{
    assert(*i < pairs->size);
    const char *host = pairs->hosts[pairs->by_host[*i]];
    memset(out, 0, sizeof *out);
    do {
        struct pair_blame one;
        pair_blame_rank(pairs, pairs->by_host[(*i)++], &one);
        if (health_worse(out->state, one.state) != out->state)
            *out = one;
    } while (*i < pairs->size &&
             strcmp(pairs->hosts[pairs->by_host[*i]], host) == 0);
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

static int pair_number(const struct health_pairs *pairs,
                       const struct health_meeting *meeting)
{
    return (int)(meeting - pairs->rounds.meetings);
}

/* What the slowest rail took, in nanoseconds; 0: not measured. */
static double pair_longest(const struct health_pairs *pairs,
                           const struct health_meeting *meeting, int size)
{
    int64_t longest = 0;
    for (int rail = 0; rail < pairs->rails; rail++) {
        int64_t time =
            *health_pair_time(pairs, pair_number(pairs, meeting), size, rail);
        longest = time > longest ? time : longest;
    }
    return (double)longest;
}

static double pair_round(double value)
{
    return round(value * 1e4) / 1e4;
}

static void pair_json_sizes(const struct health_pairs *pairs,
                            const struct health_meeting *meeting, json_t *out)
{
    json_t *sizes = json_array(), *rails = json_array();
    for (int size = 0; size < pairs->sizes; size++) {
        double time = pair_longest(pairs, meeting, size);
        if (time > 0)
            json_array_append_new(
                sizes,
                json_pack("{s:I, s:f, s:f}", "bytes",
                          (json_int_t)pairs->bytes[size], "us",
                          pair_round(time / 1e3), "busbw",
                          pair_round((double)pairs->bytes[size] / time)));
    }
    json_object_set_new(out, "sizes", sizes);
    for (int rail = 0; rail < pairs->rails; rail++)
        json_array_append_new(rails, json_real(pair_round(health_pair_gbps(
                                         pairs, pair_number(pairs, meeting),
                                         pairs->sizes - 1, rail))));
    json_object_set_new(out, "rails", rails);
}

static void pair_json_meetings(const struct health_pairs *pairs, int rank,
                               json_t *list)
{
    for (int i = 0; i < pair_count(pairs, rank); i++) {
        const struct health_meeting *meeting = pair_meeting(pairs, rank, i);
        int peer = pair_peer(meeting, rank);
        if (peer < rank && strcmp(pairs->hosts[peer], pairs->hosts[rank]) == 0)
            continue;
        size_t bytes = pairs->bytes[pairs->sizes - 1];
        json_t *one = json_pack(
            "{s:i, s:s, s:i, s:i, s:I, s:f, s:f, s:I, s:s}", "rank",
            rank * pairs->rails, "peer", pairs->hosts[peer], "peer_rank",
            peer * pairs->rails, "round", (int)meeting->round, "bytes",
            (json_int_t)bytes, "busbw",
            pair_round((double)bytes /
                       pair_longest(pairs, meeting, pairs->sizes - 1)),
            "us", pair_round(pair_longest(pairs, meeting, 0) / 1e3), "wrong",
            (json_int_t)meeting->wrong, "st", pair_meeting_state(meeting));
        pair_json_sizes(pairs, meeting, one);
        json_array_append_new(list, one);
    }
}

json_t *health_pair_json(const struct health_pairs *pairs)
{
    json_t *hosts = json_array();
    const char *job = getenv("SLURM_JOB_ID");
    for (int i = 0; i < pairs->size;) {
        struct pair_blame blame;
        json_t *list = json_array();
        int first = i;
        pair_blame_host(pairs, &i, &blame);
        for (int j = first; j < i; j++)
            pair_json_meetings(pairs, pairs->by_host[j], list);
        json_array_append_new(
            hosts,
            json_pack(
                "{s:s, s:s, s:s, s:I, s:f, s:f, s:s, s:s, s:s, s:s, s:o}",
                "schema", "tessera-health/1", "host",
                pairs->hosts[pairs->by_host[first]], "phase", "pairs", "job",
                (json_int_t)(job != NULL ? strtol(job, NULL, 10) : 0), "t0",
                round(pairs->t0 * 1000) / 1000, "dur_s",
                round(pairs->dur_s * 1000) / 1000, "verdict",
                health_state_name(blame.state), "code", blame.code, "reason",
                blame.reason, "action",
                blame.state == HEALTH_BAD ? "drain" : "none", "pairs", list));
    }
    return hosts;
}

static void pair_print_meeting(const struct health_pairs *pairs,
                               const struct health_meeting *meeting, FILE *file)
{
    for (int size = 0; size < pairs->sizes; size++) {
        double time = pair_longest(pairs, meeting, size);
        if (time == 0)
            continue;
        fprintf(file, "%5d  %-16s  %-16s  %10zu  %11.1f  %8.3f  %8lld  %s\n",
                (int)meeting->round, pairs->hosts[meeting->a],
                pairs->hosts[meeting->b], pairs->bytes[size], time / 1e3,
                (double)pairs->bytes[size] / time, (long long)meeting->wrong,
                pair_meeting_state(meeting));
    }
}

void health_pair_print(const struct health_pairs *pairs, FILE *file)
{
    fprintf(file, "%5s  %-16s  %-16s  %10s  %11s  %8s  %8s  %s\n", "round", "a",
            "b", "bytes", "us", "busbw", "#wrong", "state");
    for (int i = 0; i < pairs->rounds.count; i++)
        pair_print_meeting(pairs, &pairs->rounds.meetings[i], file);
    for (int rail = 0; rail < pairs->rails && pairs->rails > 1; rail++)
        fprintf(file, "rail %d: %.3f GB/s%s\n", rail, pairs->rail_gbps[rail],
                pairs->slow_rails[rail] ? ", slow" : "");
    for (int rank = 0; rank < pairs->size; rank++) {
        struct pair_blame blame;
        pair_blame_rank(pairs, rank, &blame);
        if (blame.state != HEALTH_OK)
            fprintf(file, "%s (rank %d): %s: %s\n", pairs->hosts[rank],
                    rank * pairs->rails, health_state_name(blame.state),
                    blame.reason);
    }
    fprintf(file, "%d ranks over %s: %s in %.2f s\n",
            pairs->size * pairs->rails, pairs->wire,
            health_state_name(health_pair_state(pairs)), pairs->dur_s);
}
