/* Where records go: the table of sinks is in tracking_rows.h.
 *
 * Each sink has a thread of its own (tracking.c), which makes all calls, so a
 * sink may block; it never runs while the run waits for it. To add one: its
 * file, which defines a `struct tracking_sink_ops`; its rows; a test. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "src/base/err.h"
#include "src/base/fsio.h"
#include "src/tracking/tracking_record.h"
#include "src/tracking/tracking_rows.h"

/* A setting of the run, as text. */
struct tracking_param {
    char *key, *value;
};

/* The checkpoint by which a finished run goes to a registry of models. */
struct tracking_model {
    char source[2 * FSIO_PATH_MAX]; /* its address; "": there is none */
    char path[FSIO_PATH_MAX];       /* its folder */
    int64_t step;
};

struct tracking_options {
    struct tracking_settings settings;
    char run_dir[FSIO_PATH_MAX];
    char run_name[FSIO_PATH_MAX];
    char job[32]; /* Slurm's number; "": none */
    struct tracking_param *params;
    int param_count;
    struct tracking_model model; /* for finish() alone */
    const atomic_bool *given_up; /* true: nobody waits for sinks any more */
};

/* How a run, or this attempt at it, has come to its end. */
enum tracking_end {
    TRACKING_FINISHED,
    TRACKING_GOES_ON, /* stopped; another attempt is to follow */
    TRACKING_FAILED
};

struct tracking_sink_ops {
    const char *name; /* for messages and the ledger */
    size_t bytes;     /* of its self, which comes zeroed */
    double pause_s;   /* at least so long between writes, but at the end */
    bool (*wanted)(const struct tracking_settings *settings);
    /* Before the run starts, where it is wanted: ERR_USAGE where its settings
     * cannot be meant, without what may be a secret. NULL: they always can. */
    enum err (*check)(const struct tracking_settings *settings);
    /* Before anything else, and again, after close, when a call has failed but
     * for a write's ERR_DATA. Options are lent for the sink's life. */
    enum err (*open)(void *self, const struct tracking_options *options);
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
#define TRACKING_SINK(name_, type) .name = (name_), .bytes = sizeof(type)

#define TRACKING_SINK_DECLARED(name)                                           \
    extern const struct tracking_sink_ops tracking_##name##_ops;
TRACKING_SINKS(TRACKING_SINK_DECLARED)
/* All of them; NULL ends them. */
extern const struct tracking_sink_ops *const tracking_sinks[];

/* Is there a sink that they want? */
bool tracking_wanted(const struct tracking_settings *settings);
/* ERR_USAGE where a sink that they want finds that they cannot be meant. */
enum err tracking_check(const struct tracking_settings *settings);
