/* What the pairing rounds leave behind, for those who measure (health_pair.c) and
 * those who tell it (health_pair_report.c), and what one rank does in a meeting
 * (health_pair_bench.c). */
#pragma once

#include "healthcheck/health_pair.h"
#include "healthcheck/health_rounds.h"

#define PAIR_LEAF_WORDS 3 /* of eight characters, of a leaf switch's name */

typedef char pair_leaf_name[PAIR_LEAF_WORDS * sizeof(int64_t) + 1];

struct health_pairs {
    int size;  /* those who meet: nodes, or ranks where all are on one */
    int rails; /* ranks of each */
    const char *wire;
    size_t bytes[HEALTH_PAIR_SIZES];
    int sizes; /* of them, that round 1 has measured; the last is judged */
    double dur_s;
    double t0;
    char (*hosts)[64];
    pair_leaf_name *leaf_names; /* of each; "": not known */
    int *leaf;
    struct health_rounds rounds;
    /* of each meeting, size and rail, in nanoseconds; 0: not measured */
    int64_t *times;
    bool *slow_rails;
    double *rail_gbps; /* the median of each rail's in round 1 */
    /* made by health_pair_index(): ranks by the names of their hosts, and the meetings
     * of each rank, those from begin[rank] to begin[rank + 1] of `met` */
    int *by_host, *begin, *met;
};

/* The ranks of each host and the meetings of each rank, after the last round. */
enum err health_pair_index(struct health_pairs *pairs);

/* The time of one meeting, size and rail, and its bandwidth; 0: not measured. */
int64_t *health_pair_time(const struct health_pairs *pairs, int meeting,
                          int size, int rail);
double health_pair_gbps(const struct health_pairs *pairs, int meeting, int size,
                        int rail);

/* --- health_pair_bench.c --- */

struct pair_bench;

/* How two ranks sum a vector of `count` floats. */
struct pair_wire {
    const char *name;
    /* With own numbers, so that wrong() knows the sum of the first sum() after it. */
    enum err (*fill)(struct pair_bench *bench, int peer, size_t count);
    /* Until it is done on this side. */
    enum err (*sum)(struct pair_bench *bench, int peer, size_t count);
    enum err (*wrong)(struct pair_bench *bench, int peer, size_t count,
                      int64_t *wrong);
    enum err (*round_end)(struct pair_bench *bench);
    void (*close)(struct pair_bench *bench);
};

/* What one rank needs for its meetings. */
struct pair_bench {
    struct comm *comm;
    const struct health_pair_options *options;
    const struct pair_wire *wire;
    float *own, *other; /* over MPI, of bytes_max, `filled` floats so far */
    size_t filled;
    struct pair_nccl *nccl;
    bool wrong, slow, late; /* injected, as what follows */
    bool leaf_slow;         /* to whoever is behind another leaf */
};

/* Collective; sets the wire, and lowers *bytes_max to what all have room for. */
enum err health_pair_bench_create(struct comm *comm,
                                  const struct health_pair_options *options,
                                  int rails, struct pair_bench *bench,
                                  size_t *bytes_max);
void health_pair_bench_destroy(struct pair_bench *bench);
/* Sums and times one size with a peer, `across` from another leaf; *wrong becomes the
 * larger of itself and what was found. */
enum err health_pair_bench_meet(struct pair_bench *bench, int peer, bool across,
                                size_t bytes, int64_t *nanoseconds,
                                int64_t *wrong);

/* --- health_pair_nccl.c --- */

extern const struct pair_wire health_pair_nccl;
/* Opens this rank's GPU with a vector of at most *bytes_max, which it lowers to half
 * of what is free. */
enum err health_pair_nccl_open(struct pair_bench *bench, size_t *bytes_max);
