/* The outcome of pairing rounds, for programs and for people. */
#include "healthcheck/health_pair.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "healthcheck/health_pair_impl.h"

struct pair_blame {
    enum health_state state;
    char code[24];
    char reason[HEALTH_REASON_MAX + 1];
};

enum health_state health_pair_rank(const struct health_pairs *pairs, int rank)
{
    assert(rank >= 0 && rank < pairs->size);
    return pairs->states[rank];
}

int health_pair_count(const struct health_pairs *pairs)
{
    return pairs->count;
}

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
