/* Pairing rounds: which node, which link, which leaf switch or which rail is sick.
 *
 * Two ranks sum vectors of several sizes between them, whose sums each knows in
 * advance, and time it: over NCCL between GPUs, or over MPI in host memory. One
 * round of neighbours cannot tell which of two is to blame, so the members of
 * suspicious pairs (wrong data, below the floor, or slower than the others by
 * more than their spread explains, with the largest vector or the smallest) meet
 * two more partners each from pairs that were fine. Who is suspicious with every
 * partner is named; when a suspicious pair has no such member, the link between
 * them is. Then all meet one behind another leaf switch (SLURM_TOPOLOGY_ADDR), and
 * one that is slow with all others is named. Suspicious for its speed alone is a
 * warning, so nothing is drained for a switch; wrong data or a floor is bad.
 *
 * Where nodes have several ranks, the meetings are of nodes: rank i of one meets
 * rank i of the other, all at once, and the slowest counts. A rail, the i-th ranks
 * of all nodes, that is slower than the others wherever nodes meet is named as
 * such, and left out of what nodes are judged by. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "healthcheck/health.h"
#include "src/comm/comm.h"

struct comm_nccl_library;
struct cuda_probe;

/* The smallest vector, of HEALTH_PAIR_LEAST bytes, and those of bytes_min times a
 * power of HEALTH_PAIR_STEP. */
#define HEALTH_PAIR_SIZES 7
#define HEALTH_PAIR_LEAST 8
#define HEALTH_PAIR_STEP 4

struct health_pair_options {
    size_t bytes_min; /* a multiple of 4 */
    /* The last of the sizes; a larger one than bytes_min is used only if what the
     * one before took lets it fit into a part of the budget. */
    size_t bytes_max;
    int repeats;      /* timed; the best counts */
    double timeout_s; /* of one wait */
    double budget_s;  /* of all: no new round when most of it is gone */
    double min_gbps;  /* bus bandwidth; 0: no floor */
    double ratio_min; /* of the median, see health_rounds_judge() */
    /* "pair:HOST:wrong", "pair:rank2:slow", "pair:LEAF:slow", "pair:rail1:slow",
     * "pair:HOST:late"; NULL: none */
    const char *inject;
    int rails; /* ranks that meet as one, neighbours in their order; 0: of a node */
    const struct cuda_probe *gpus;        /* NULL: host memory, over MPI */
    const struct comm_nccl_library *nccl; /* between them */
};

struct health_pairs;

/* Runs all rounds; collective over all ranks, all get the same result. One
 * rank, or nodes of unequal numbers of ranks: ERR_UNSUPPORTED. ERR_COMM: a rank is
 * dead or silent, the text names it, and only comm_abort() is sensible. */
enum err health_pair_run(struct comm *comm,
                         const struct health_pair_options *options,
                         struct health_pairs **out);
void health_pair_destroy(struct health_pairs *pairs);

/* The verdict on all ranks together. */
enum health_state health_pair_state(const struct health_pairs *pairs);

/* An array with one verdict per host, gravest of its ranks: {"schema":
 * "tessera-health/1", host, phase: "pairs", job, t0, dur_s, verdict, code,
 * reason, action, "pairs": [{rank, peer, peer_rank, round, bytes, busbw, us, wrong,
 * st, sizes: [{bytes, us, busbw}], rails}]}; busbw in GB/s, of the largest vector;
 * us of the smallest; both of the slowest rail, and rails has each one's busbw.
 * Members of a suspicious link have a warning with code LINK, those of a leaf with
 * LEAF, and all of a slow rail with RAIL. The caller decrefs. */
json_t *health_pair_json(const struct health_pairs *pairs);
void health_pair_print(const struct health_pairs *pairs, FILE *file);
