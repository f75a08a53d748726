/* Pairing rounds: which node, which link or which leaf switch is sick.
 *
 * Two ranks reduce a vector between them, whose sum each knows in advance, and
 * time it. One round of neighbours cannot tell which of two is to blame, so the
 * members of suspicious pairs (wrong data, below the floor, or slower than the
 * others by more than their spread explains) meet two more partners each from
 * pairs that were fine. Who is suspicious with every partner is named; when a
 * suspicious pair has no such member, the link between them is. Then all meet one
 * behind another leaf switch (SLURM_TOPOLOGY_ADDR), and one that is slow with
 * all others is named. Suspicious for its speed alone is a warning, so nothing
 * is drained for a switch; wrong data or a floor is bad. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "healthcheck/health.h"
#include "src/comm/comm.h"

struct health_pair_options {
    size_t bytes;     /* of the vector; a multiple of 4 */
    int repeats;      /* timed; the best counts */
    double timeout_s; /* of one round */
    double min_gbps;  /* bus bandwidth; 0: no floor */
    double ratio_min; /* of the median, see health_rounds_judge() */
    /* "pair:HOST:wrong", "pair:rank2:slow", "pair:LEAF:slow"; NULL: none */
    const char *inject;
};

struct health_pairs;

/* Runs all rounds; collective over all ranks, all get the same result. One
 * rank: ERR_UNSUPPORTED. ERR_COMM: a rank is dead or silent, the text names it,
 * and only comm_abort() is sensible. */
enum err health_pair_run(struct comm *comm,
                         const struct health_pair_options *options,
                         struct health_pairs **out);
void health_pair_destroy(struct health_pairs *pairs);

/* The verdict on all ranks together. */
enum health_state health_pair_state(const struct health_pairs *pairs);

/* An array with one verdict per host, gravest of its ranks: {"schema":
 * "tessera-health/1", host, phase: "pairs", job, t0, dur_s, verdict, code,
 * reason, action, "pairs": [{rank, peer, peer_rank, round, bytes, busbw, wrong,
 * st}]}; busbw in GB/s. Members of a suspicious link have a warning with code
 * LINK, those of a leaf with LEAF. The caller decrefs. */
json_t *health_pair_json(const struct health_pairs *pairs);
void health_pair_print(const struct health_pairs *pairs, FILE *file);
