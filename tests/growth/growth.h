/* What the parts of `make growth` share: a row is a thing of the product that
 * is done once a start or once a step by every rank, and is called as the
 * product calls it, as one rank of P. */
#pragma once

#include "src/model/params.h"
#include "tests/growth/stub_comm.h"
#include "tests/tap.h"

/* How often it is done, which says how long it may take at GROWTH_FAR. */
enum growth_when { GROWTH_STEP, GROWTH_START, GROWTH_WHENS };
#define GROWTH_FAR 16384 /* ranks */

struct growth_cost {
    double seconds; /* of this rank's processor */
    int64_t memory; /* that it keeps for the thing, bytes; 0: not counted */
    struct stub_counts counts;
};

struct growth_row {
    const char *thing;
    enum growth_when when;
    double limit_s; /* at GROWTH_FAR; 0: that of `when` */
    /* NULL, or what is still to be mended, because of which it may fail: by the
     * time of `when` alone if limit_s says how long it takes until then, by its
     * law as well if that is 0. */
    const char *known;
    int ranks_max; /* it is not called with more; 0: no limit */
    /* One call with so many ranks; false: it failed or was wrong. */
    bool (*run)(int ranks, struct growth_cost *cost);
};

/* Rows of each file, ended by one without a thing. */
extern const struct growth_row growth_norms[], growth_loads[], growth_saves[],
    growth_starts[];

/* Processor seconds of this process. */
double growth_clock(void);
/* Bytes that malloc() has given and not got back. */
int64_t growth_memory(void);
/* The table of a model; an error ends the program. Lent until the end. */
const struct params *growth_params(const char *preset);
