/* What the ranks' timelines of some steps come to together. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/base/timeline.h"
#include "src/comm/comm.h"

/* One kind: sums over ranks and steps. */
struct profile_row {
    int64_t count;
    /* Without what lies in it, of frames with it. */
    int64_t ns, ns_max, ns_min; /* of all ranks; of the rank with most, least */
    int64_t mflop, kib;         /* millions of operations; KiB */
};

struct profile_sums {
    int ranks;
    int64_t first, last;               /* steps */
    double peak_flops;                 /* of a rank; 0: not known */
    bool device;                       /* ops are timed on a device */
    int64_t lost;                      /* spans, of all ranks */
    const struct timeline_kind *kinds; /* [kind_count] lent */
    int kind_count;
    struct profile_row host[TIMELINE_KINDS_MAX], device_of[TIMELINE_KINDS_MAX];
};

/* From every rank's timeline, which is off. first, last and device are set by
 * the caller. Collective. */
enum err profile_sums_gather(struct comm *comm, const struct timeline *timeline,
                             struct profile_sums *sums);

/* Steps' time of all ranks, ns, and what of it no kind has; of a device what it
 * was idle. */
int64_t profile_sums_steps(const struct profile_sums *sums);
int64_t profile_sums_rest(const struct profile_sums *sums);
int64_t profile_sums_idle(const struct profile_sums *sums);
