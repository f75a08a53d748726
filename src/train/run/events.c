/* The table of a run's listeners, who they are and when they are called, and
 * the calls. When events happen is decided where the loop is, in trainer.c and
 * trainer_step.c, and in trainer_eval.c for evaluations.
 *
 * What holds the ranks together here: a listener that is not LISTEN_TOGETHER may
 * fail on one rank, and that rank cannot just return, as the others would wait
 * for it in the step's next exchange. So its failure is held, its listeners that
 * are alone stay silent, those that communicate go on, and the exchange of the
 * step's record brings the failure to all. A step's events therefore come in the
 * same order everywhere, whoever has failed. */
#include "src/train/run/events.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/base/timeline.h"

#define AT(event) EVENT_BIT(EVENT_##event)

/* In the order of calls. What adds to the step's scalars by itself stands before
 * metrics, whose line has them; evaluation and generation before the checkpoint,
 * so that a step has both before it is the last one, and before tracking, which
 * sends all of it; stop after both, for it needs to know how long they take to
 * end. */
#define LISTENERS(X)                                                           \
    X("kernels", LISTEN_RANK_0, on_kernels_ops, AT(INIT),                      \
      "warns of kernels that are not the fastest here")                        \
    X("spike", LISTEN_TOGETHER, on_spike_ops,                                  \
      AT(AFTER_TRAIN_BATCH) | AT(BATCH_END),                                   \
      "judges losses and gradient norms far beyond those before, or no "       \
      "numbers (`train.on_spike`, `train.on_nan`)")                            \
    X("norms", LISTEN_TOGETHER, on_norms_ops,                                  \
      AT(AFTER_TRAIN_BATCH) | AT(BATCH_END),                                   \
      "norms of gradients, weights, updates and moments (`monitor.norms`)")    \
    X("activations", LISTEN_TOGETHER, on_activations_ops,                      \
      AT(BEFORE_TRAIN_BATCH) | AT(BATCH_END),                                  \
      "figures of what each block puts out (`monitor.activations`)")           \
    X("experts", LISTEN_RANK_0, on_experts_ops, AT(BATCH_END),                 \
      "how each block's tokens spread (`monitor.experts`)")                    \
    X("system", LISTEN_TOGETHER, on_system_ops, AT(BATCH_END),                 \
      "processors, memory, network, GPUs, energy (`monitor.system`)")          \
    X("memory", LISTEN_TOGETHER, on_memory_ops, AT(FIT_START) | AT(BATCH_END), \
      "memory planned and taken (`monitor.memory`)")                           \
    X("watch", LISTEN_RANK_0, on_watch_ops, AT(BATCH_END),                     \
      "names ranks that hold the others up (`watch.*`)")                       \
    X("metrics", LISTEN_RANK_0, on_metrics_ops, AT(BATCH_END),                 \
      "metrics.jsonl and the progress line (`log.*`)")                         \
    X("evaluation", LISTEN_TOGETHER, on_eval_ops,                              \
      AT(AFTER_LOAD) | AT(FIT_START) | AT(BATCH_ASK) | AT(BATCH_END) |         \
          AT(FIT_END),                                                         \
      "loss on held-out text, eval.jsonl (`eval.*`)")                          \
    X("tasks", LISTEN_TOGETHER, on_tasks_ops,                                  \
      AT(AFTER_LOAD) | AT(FIT_START) | AT(BATCH_ASK) | AT(BATCH_END) |         \
          AT(FIT_END),                                                         \
      "in-context tasks and gauntlets (`eval.tasks*`, `eval.gauntlet`)")       \
    X("finish", LISTEN_RANK_0, on_finish_ops,                                  \
      AT(BATCH_ASK) | AT(BATCH_END) | AT(FIT_END),                             \
      "ends the run by rules (`finish`)")                                      \
    X("generate", LISTEN_TOGETHER, on_generate_ops,                            \
      AT(FIT_START) | AT(BATCH_ASK) | AT(BATCH_END) | AT(FIT_END),             \
      "samples of what the model writes (`generate.*`)")                       \
    X("tracking", LISTEN_RANK_0, on_tracking_ops,                              \
      AT(FIT_START) | AT(BATCH_END) | AT(FIT_END),                             \
      "TensorBoard, MLflow, Prometheus (`tracking.*`)")                        \
    X("hooks", LISTEN_RANK_0, on_hooks_ops,                                    \
      AT(FIT_START) | AT(EPOCH_START) | AT(BATCH_END) | AT(EPOCH_END) |        \
          AT(EVAL_END) | AT(FIT_END),                                          \
      "runs commands (`hooks.*`)")                                             \
    X("checkpoint", LISTEN_TOGETHER, on_checkpoint_ops,                        \
      AT(BEFORE_LOAD) | AT(AFTER_LOAD) | AT(FIT_START) | AT(BATCH_ASK) |       \
          AT(BATCH_CHECKPOINT) | AT(FIT_END),                                  \
      "saves and restores (`checkpoint.*`)")                                   \
    X("plugins", LISTEN_EACH_RANK, on_plugins_ops, (AT(COUNT) - 1),            \
      "shared objects of your own (`plugins`)")                                \
    X("stop", LISTEN_EACH_RANK, on_stop_ops, AT(FIT_START) | AT(BATCH_ASK),    \
      "signals, time limits and the file STOP")

#define DECLARE(name, place, ops, ...) extern const struct listener_ops ops;
#define ROW(name, place, ops, events, about)                                   \
    { name, place, events, &(ops), about },

LISTENERS(DECLARE)
static const struct listener table[] = { LISTENERS(ROW) };

#define ROWS (int)(sizeof table / sizeof table[0])

/* Ranks may have different numbers of these. */
#define UNEVEN                                                                 \
    (AT(BEFORE_DATALOADER) | AT(AFTER_DATALOADER) | AT(EVAL_BATCH_START) |     \
     AT(EVAL_BATCH_END))

#define NAME(NAME_, name_, about_) { #name_, about_ },
static const struct {
    const char *name, *about;
} names[EVENT_COUNT] = { EVENTS(NAME) };

const char *events_name(enum event event)
{
    assert((int)event >= 0 && event < EVENT_COUNT);
    return names[event].name;
}

const char *events_about(enum event event)
{
    assert((int)event >= 0 && event < EVENT_COUNT);
    return names[event].about;
}

const struct listener *events_listener(int index)
{
    return index >= 0 && index < ROWS ? &table[index] : NULL;
}

int events_kinds(struct timeline_kind *kinds)
{
    _Static_assert(ROWS <= EVENTS_LISTENERS_MAX, "room for all rows");
    for (int i = 0; i < ROWS; i++)
        kinds[i] = (struct timeline_kind){ table[i].name, TIMELINE_ABSORBS };
    return ROWS;
}

enum err events_listen(struct events *events, const struct listener *row,
                       struct run *run)
{
    struct listening *next = &events->list[events->count];
    assert(events->count < EVENTS_LISTENERS_MAX);
    assert(row->place != LISTEN_TOGETHER || (row->events & UNEVEN) == 0);
    assert(row->ops->create_together == NULL ||
           (row->place == LISTEN_TOGETHER && row->ops->create == NULL));
    *next = (struct listening){ .row = row };
    if (row >= table && row < table + ROWS)
        next->kind = events->first_kind + (int)(row - table);
    if (row->place == LISTEN_RANK_0 && events->rank != 0)
        return ERR_OK;
    if (row->ops->bytes > 0)
        TRY(new_memory(&next->self, 1, row->ops->bytes, true, row->name));
    events->count++;
    if (row->ops->create_together != NULL)
        return row->ops->create_together(next->self, run);
    return row->ops->create != NULL ? row->ops->create(next->self, run)
                                    : ERR_OK;
}

enum err events_listen_table(struct events *events, const char *name,
                             struct run *run)
{
    for (int i = 0; i < ROWS; i++)
        if (name == NULL || strcmp(table[i].name, name) == 0)
            TRY(events_listen(events, &table[i], run));
    return ERR_OK;
}

void events_ask_finish(struct asks *asks, const char *format, ...)
{
    va_list arguments;
    events_ask(asks, ASK_FINISH, 1);
    va_start(arguments, format);
    if (asks->why[0] == '\0')
        vsnprintf(asks->why, sizeof asks->why, format, arguments);
    va_end(arguments);
}

enum err events_run(struct events *events, enum event event,
                    const struct step_record *step)
{
    assert((int)event >= 0 && event < EVENT_COUNT && step != NULL);
    for (int i = 0; i < events->count; i++) {
        const struct listener *row = events->list[i].row;
        bool together = row->place == LISTEN_TOGETHER;
        if ((row->events & EVENT_BIT(event)) == 0 ||
            (events->held.code != ERR_OK && !together))
            continue;
        struct timeline_span span;
        timeline_begin_named(events->timeline, &span, events->list[i].kind,
                             row->name);
        enum err rc =
            row->ops->handle(events->list[i].self, event, step, &events->asks);
        timeline_end(&span, NULL);
        if (rc == ERR_OK)
            continue;
        err_prefix(rc, "%s", row->name);
        if (together)
            return rc;
        err_keep(&events->held, rc);
    }
    return ERR_OK;
}

enum err events_store(const struct events *events, json_t *state)
{
    for (int i = 0; i < events->count; i++)
        if (events->list[i].row->ops->store != NULL)
            TRY(events->list[i].row->ops->store(events->list[i].self, state));
    return ERR_OK;
}

enum err events_restore(struct events *events, const json_t *state)
{
    for (int i = 0; i < events->count; i++)
        if (events->list[i].row->ops->restore != NULL)
            TRY(events->list[i].row->ops->restore(events->list[i].self, state));
    return ERR_OK;
}

bool events_leave(struct events *events, bool together)
{
    bool left = true;
    for (int i = 0; i < events->count; i++)
        if (events->list[i].row->ops->leave != NULL)
            left = events->list[i].row->ops->leave(events->list[i].self,
                                                   together) &&
                   left;
    return left;
}

void events_destroy(struct events *events)
{
    while (events->count > 0) {
        const struct listening *last = &events->list[--events->count];
        if (last->row->ops->destroy != NULL)
            last->row->ops->destroy(last->self);
        free(last->self);
    }
}
