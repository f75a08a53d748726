/* A rank's timeline as a file of traces, which chrome://tracing and Perfetto
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
#pragma once

#include <stdint.h>

#include "src/base/err.h"
#include "src/base/timeline.h"

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
