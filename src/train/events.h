/* The training loop as a table of named events, and those who listen.
 *
 * Events happen in the same order on every rank, so a listener may communicate.
 * Listeners are called in the order of the table; the first error ends the run.
 *
 *   init -> before_load -> after_load -> fit_start ->
 *     { epoch_start -> { batch_start -> before_train_batch ->
 *       after_train_batch -> batch_end -> batch_checkpoint } -> epoch_end }
 *   -> fit_end
 *
 * eval_start and eval_end enclose an evaluation, which a listener of batch_end
 * or fit_end may start. epoch_start and epoch_end come when a step begins or
 * ends one; epochs are counted in samples, a step may span two. */
#ifndef TESSERA_TRAIN_EVENTS_H
#define TESSERA_TRAIN_EVENTS_H

#include "src/base/err.h"

struct trainer;

enum event {
    EVENT_INIT,
    EVENT_BEFORE_LOAD,
    EVENT_AFTER_LOAD,
    EVENT_FIT_START,
    EVENT_EPOCH_START,
    EVENT_BATCH_START,
    EVENT_BEFORE_TRAIN_BATCH,
    EVENT_AFTER_TRAIN_BATCH,
    EVENT_BATCH_END,
    EVENT_BATCH_CHECKPOINT,
    EVENT_EPOCH_END,
    EVENT_EVAL_START,
    EVENT_EVAL_END,
    EVENT_FIT_END,
    EVENT_COUNT
};

#define EVENT_BIT(event) (1u << (event))

struct listener {
    const char *name;
    unsigned events; /* EVENT_BIT()s */
    enum err (*handle)(void *self, enum event event, struct trainer *trainer);
    void *self;
};

/* "init", "batch_end", ... */
const char *events_name(enum event event);

/* Call everybody who listens to `event`; an error is prefixed by who and
 * when. */
enum err events_run(const struct listener *listeners, int count,
                    enum event event, struct trainer *trainer);

#endif
