/* Hands the records of steps to trackers: TensorBoard, MLflow, Prometheus.
 *
 * None of them can hold up a run or end it. Each sink has a queue and a thread
 * of its own, so that one that hangs holds up no other; a full queue loses its
 * oldest record, whole. A sink that fails says so once, is tried again after 1,
 * 2, 4, ... at most 60 seconds, and at the end tells how many records it has
 * lost. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"
#include "src/tracking/tracking_sink.h"

#define TRACKING_SINKS_MAX 8

struct tracking;

/* What a sink has not got. */
struct tracking_lost {
    const char *sink;
    int64_t records;
    char reason[ERR_TEXT_BYTES];
};

/* For all sinks that the settings want, in tests for these alone (`sinks`
 * ends with NULL; NULL: all). *out is NULL where there are none. Takes
 * options->params over, in any case. Nothing is opened before the first record.
 */
enum err tracking_create(struct tracking_options *options,
                         struct tracking_map *names,
                         const struct tracking_sink_ops *const *sinks,
                         struct tracking **out);

/* The records that come now follow `step` completed steps; those of later steps
 * that went before are taken back. */
void tracking_begin(struct tracking *tracking, int64_t step);

/* Copies the record, whose names are those of `names`, into the queues. Never
 * waits for a sink. */
void tracking_push(struct tracking *tracking,
                   const struct tracking_record *record);

/* Before tracking_finish(): the finished run's model. */
void tracking_model(struct tracking *tracking,
                    const struct tracking_model *model);

/* Nothing comes any more: sinks end while the run does. */
void tracking_finish(struct tracking *tracking, enum tracking_end end);

/* Waits until the sinks have all of it, at most so long since
 * tracking_finish(), which it calls where nobody has, and frees everything but
 * what a sink that hangs still uses. `lost` has room for TRACKING_SINKS_MAX;
 * returns how many sinks have lost something. */
int tracking_end(struct tracking *tracking, enum tracking_end end,
                 double wait_s, struct tracking_lost *lost);

void tracking_params_free(struct tracking_param *params, int count);
