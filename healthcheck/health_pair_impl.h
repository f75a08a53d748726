/* What the pairing rounds leave behind, for those who measure (health_pair.c) and
 * those who tell it (health_pair_report.c). */
#pragma once

#include "healthcheck/health_pair.h"
#include "healthcheck/health_rounds.h"

#define PAIR_LEAF_WORDS 3 /* of eight characters, of a leaf switch's name */

typedef char pair_leaf_name[PAIR_LEAF_WORDS * sizeof(int64_t) + 1];

struct health_pairs {
    int size;
    size_t bytes;
    double dur_s;
    double t0;
    char (*hosts)[64];
    pair_leaf_name *leaf_names; /* of each rank; "": not known */
    int *leaf;
    struct health_rounds rounds;
    /* made by health_pair_index(): ranks by the names of their hosts, and the meetings
     * of each rank, those from begin[rank] to begin[rank + 1] of `met` */
    int *by_host, *begin, *met;
};

/* The ranks of each host and the meetings of each rank, after the last round. */
enum err health_pair_index(struct health_pairs *pairs);
