/* Hands the records of steps to trackers: TensorBoard, MLflow, Prometheus, CSV.
 *
 * None of them can hold up a run or end it. Each sink has a queue and a thread
 * of its own, so that one that hangs holds up no other; a full queue loses its
 * oldest record, whole. A sink that fails says so once, is tried again after 1,
 * 2, 4, ... at most 60 seconds, and at the end tells how many records it has
 * lost. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/base/fsio.h"
#include "src/tracking/tracking_record.h"

#define TRACKING_SINKS_MAX 8

struct tracking_sink_ops;
struct tracking;

/* A setting of the run, as text. */
struct tracking_param {
    char *key, *value;
};

struct tracking_options {
    char run_dir[FSIO_PATH_MAX];
    char run_name[FSIO_PATH_MAX];
    char job[32]; /* Slurm's number; "": none */
    bool tensorboard, csv;
    char prometheus[FSIO_PATH_MAX]; /* file; "": none */
    char mlflow[FSIO_PATH_MAX];     /* address or folder; "": none */
    char experiment[FSIO_PATH_MAX];
    int queue; /* records that wait for a sink at most */
    struct tracking_param *params;
    int param_count;
};

/* How a run, or this attempt at it, has come to its end. */
enum tracking_end {
    TRACKING_FINISHED,
    TRACKING_GOES_ON, /* stopped; another attempt is to follow */
    TRACKING_FAILED
};

/* What a sink has not got. */
struct tracking_lost {
    const char *sink;
    int64_t records;
    char reason[ERR_TEXT_BYTES];
};

/* ERR_USAGE where one of these, which are settings, cannot be meant. */
enum err tracking_check(const char *mlflow, const char *experiment,
                        const char *prometheus);

/* For all sinks that the options want, in tests for these alone (`sinks`
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

/* Nothing comes any more: sinks end while the run does. */
void tracking_finish(struct tracking *tracking, enum tracking_end end);

/* Waits until the sinks have all of it, at most so long since
 * tracking_finish(), which it calls where nobody has, and frees everything but
 * what a sink that hangs still uses. `lost` has room for TRACKING_SINKS_MAX;
 * returns how many sinks have lost something. */
int tracking_end(struct tracking *tracking, enum tracking_end end,
                 double wait_s, struct tracking_lost *lost);

void tracking_params_free(struct tracking_param *params, int count);
