/* The names of the events of a training loop, and the call of all who listen to
 * one. When events happen is decided where the loop is, in trainer.c, and in
 * train_eval.c for evaluations. */
#include "src/train/events.h"

#include <assert.h>

const char *events_name(enum event event)
{
    static const char *const names[EVENT_COUNT] = {
        [EVENT_INIT] = "init",
        [EVENT_BEFORE_LOAD] = "before_load",
        [EVENT_AFTER_LOAD] = "after_load",
        [EVENT_FIT_START] = "fit_start",
        [EVENT_EPOCH_START] = "epoch_start",
        [EVENT_BATCH_START] = "batch_start",
        [EVENT_BEFORE_TRAIN_BATCH] = "before_train_batch",
        [EVENT_AFTER_TRAIN_BATCH] = "after_train_batch",
        [EVENT_BATCH_END] = "batch_end",
        [EVENT_BATCH_CHECKPOINT] = "batch_checkpoint",
        [EVENT_EPOCH_END] = "epoch_end",
        [EVENT_EVAL_START] = "eval_start",
        [EVENT_EVAL_END] = "eval_end",
        [EVENT_FIT_END] = "fit_end",
    };
    assert((int)event >= 0 && event < EVENT_COUNT);
    return names[event];
}

enum err events_run(const struct listener *listeners, int count,
                    enum event event, struct trainer *trainer)
{
    for (int i = 0; i < count; i++) {
        const struct listener *listener = &listeners[i];
        if ((listener->events & EVENT_BIT(event)) == 0)
            continue;
        enum err rc = listener->handle(listener->self, event, trainer);
        if (rc != ERR_OK)
            return err_prefix(rc, "%s", listener->name);
    }
    return ERR_OK;
}
