/* What the timelines of some steps come to: of all ranks together, as a table and
 * as traces; and which steps these are. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernel_profile.h"
#include "src/base/array.h"
#include "src/base/err.h"
#include "src/base/timeline.h"
#include "src/comm/comm.h"
#include "src/train/run/run.h"

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

/* --- the steps that train.profile names (profile_ranges.c) --- */

#define PROFILE_RANGES_MAX 32

/* Steps by the numbers that metrics.jsonl has: the first of a run is 1. Both
 * ends belong to a range. */
struct profile_range {
    int64_t first, last;
};

struct profile_ranges {
    int count;
    struct profile_range list[PROFILE_RANGES_MAX];
};

/* Ranges in order that do not overlap: FIRSTba-LASTba or Nba, between commas;
 * empty: none. ERR_USAGE says what is wrong, and how to write it. */
enum err profile_ranges_parse(const char *text, struct profile_ranges *out);

/* The range that a step is in; NULL: in none. */
const struct profile_range *
profile_ranges_at(const struct profile_ranges *ranges, int64_t step);

/* --- a trace (profile_file.c) ---
 *
 * A rank's timeline as a file of traces, which chrome://tracing and Perfetto
 * (ui.perfetto.dev) open: Chrome's Trace Event Format (2016), an object with
 *
 *   traceEvents     complete events ("ph": "X"): name, cat (step, work, op,
 *                   listener: enum timeline_place), pid (the rank), tid (a lane:
 *                   0 the thread that trains, then other threads and streams of
 *                   a device), ts and dur in microseconds, args: the shape,
 *                   flop, bytes, and the GFLOP/s and GB/s that follow; and
 *                   metadata events ("M") that name processes and lanes
 *   profile         what the trace is of, and of each kind that occurs its
 *                   count, seconds (without what lies in it), whole_s (with),
 *                   flop and bytes, by host and device
 *
 * ts counts from a moment that all ranks have in common: the run's start on
 * rank 0. Files of several ranks go together by
 * `jq -s '{traceEvents: map(.traceEvents) | add}' rank-*.json`. */

struct profile_about {
    int rank, ranks, attempt;
    char host[64];
    char run[37];        /* uuid */
    int64_t first, last; /* steps */
    /* added to this rank's clock; by how much the trace may be off beside rank
     * 0's, and a device's lanes beside the host's (-1: there are none) */
    int64_t offset_ns, error_ns, device_error_ns;
};

/* The timeline is off. Written beside it first, then renamed: never half. */
enum err profile_file_write(const char *path, const struct timeline *timeline,
                            const struct profile_about *about);

/* --- a run's profile (trainer_profile.c) ---
 *
 * The profile of a run: for the steps of train.profile the timeline is on, and
 * when a range of them has ended rank 0 logs what a step consists of, and every
 * rank writes its trace.
 *
 *   RUN/profile/steps-FIRST-LAST/table.txt     rank 0: the table
 *   RUN/profile/steps-FIRST-LAST/rank-N.json   its trace
 *
 * FIRST and LAST are the steps that were profiled: fewer than asked for where
 * the run was resumed within the range, or has ended there. A step goes from the
 * event epoch_start or batch_start to the end of batch_checkpoint or
 * epoch_checkpoint, so that evaluation and the wait for a save are in it. Steps
 * that are done again after a resume are written again.
 *
 * The bits of the run are the same. The step behind a range waits until the trace
 * is written; what fails there is a warning. Nothing happens, and nothing is
 * taken, without train.profile. */

/* Spans that a rank keeps of a range: 88 bytes each, touched as they come. */
#define TRAINER_PROFILE_SPANS 262144

/* If there is train.profile: sets run->profile and timeline, has the ranks
 * compare their clocks, and puts a table in place of run->engine.kernels whose ops
 * tell. Before whatever computes or communicates is made. Collective. */
enum err trainer_profile_create(struct run *run);
void trainer_profile_destroy(struct run *run);

/* For the ops of a model; NULL: nobody is told. */
struct kernel_profile *trainer_profile_ops(const struct run *run);

/* Warns of ranges that this attempt will not come to, when training begins. */
void trainer_profile_tell(const struct run *run);

/* Around all that a step does. The second one is collective where a range
 * ends. */
enum err trainer_profile_before_step(struct run *run);
enum err trainer_profile_after_step(struct run *run);
