/* Where records go: the table of sinks is in tracking.c, a row for each.
 *
 * Each sink has a thread of its own (tracking.c), which makes all calls, so a
 * sink may block; it never runs while the run waits for it. To add one: its
 * file, which defines a `struct tracking_sink_ops`; a row in tracking.c; its
 * setting; a test. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "src/base/err.h"
#include "src/tracking/tracking.h"
#include "src/tracking/tracking_record.h"

struct tracking_sink_ops {
    const char *name; /* for messages and the ledger */
    size_t bytes;     /* of its self, which comes zeroed */
    double pause_s;   /* at least so long between writes, but at the end */
    bool (*wanted)(const struct tracking_options *options);
    /* Before anything else, and again, after close, when a call has failed but
     * for a write's ERR_DATA. Options are lent for the
     * sink's life. `*given_up` becomes true when nobody waits any more. */
    enum err (*open)(void *self, const struct tracking_options *options,
                     const atomic_bool *given_up);
    /* What follows `step` completed steps comes now, and what is there of later
     * ones, from an attempt that was cut off, comes again: it must be there
     * once in the end. Before the first write after open, and whenever a run
     * goes back. */
    enum err (*begin)(void *self, int64_t step);
    /* All of them, or it fails and gets the same ones again: what it has made
     * of them must not be there twice then. ERR_DATA: these will never do, and
     * it does not get them again. */
    enum err (*write)(void *self, const struct tracking_record *const *records,
                      int count);
    /* After the last write. NULL: nothing to do. */
    enum err (*finish)(void *self, enum tracking_end end);
    /* What self owns, also when open has failed or self is all zeros. */
    void (*close)(void *self);
};

extern const struct tracking_sink_ops tracking_tensorboard_ops;
extern const struct tracking_sink_ops tracking_csv_ops;
extern const struct tracking_sink_ops tracking_prometheus_ops;
extern const struct tracking_sink_ops tracking_mlflow_file_ops;
extern const struct tracking_sink_ops tracking_mlflow_rest_ops;
