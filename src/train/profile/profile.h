/* What the timelines of some steps come to: of all ranks together, and as a table. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/array.h"
#include "src/base/err.h"
#include "src/base/timeline.h"
#include "src/comm/comm.h"

/* What the ranks' timelines of some steps come to together.
 *
 * One kind: sums over ranks and steps. */
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

/* On which shapes a rank's ops have spent their time. */

#define PROFILE_SHAPES 8

struct profile_shape {
    const char *name;              /* of the op, "gemm NT" */
    struct timeline_detail detail; /* its shape; flop and bytes of all calls */
    int64_t count, ns;
};

/* Those that took longest, the longest first; evaluation's and the like not
 * counted, nor spans that found no room. *count <= PROFILE_SHAPES. */
enum err profile_shapes(const struct timeline *timeline,
                        struct profile_shape out[PROFILE_SHAPES], int *count);

/* What a step consists of, as a table for people.
 *
 * Lines of text, each with its end. Times are of a step and the mean of the
 * ranks, shares are of the step; rates count what an op is asked for
 * (kernels/kernel_work.c) by the time that it took. shapes: rank 0's, [count].
 */
enum err profile_table(const struct profile_sums *sums,
                       const struct profile_shape *shapes, int count,
                       struct buffer *out);
