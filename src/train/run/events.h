/* The events of a run's loop, and who listens to them: the one table of
 * listeners is in events.c, a row for each, called in the order of the rows.
 *
 *   init -> before_load -> after_load -> fit_start -> batch_ask ->
 *     { epoch_start -> { batch_start -> before_train_batch ->
 *       { before_dataloader -> after_dataloader } -> after_train_batch ->
 *       batch_ask -> batch_end -> batch_checkpoint } ->
 *       epoch_end -> epoch_checkpoint } -> fit_end
 *
 * after_train_batch comes when the gradients of the batch and their norm are
 * known and the weights are as before. batch_ask follows the update, and
 * precedes the first step of all; after it the ranks exchange what
 * step_record.h lists, and batch_end is the first event whose record has it.
 * epoch_start and epoch_end come when a step begins or ends an epoch; epochs
 * are counted in samples, so a step may span two. A batch that is computed
 * before fit_start and given up (trainer_warm_up()) is read like others.
 *
 *   eval_start -> { eval_batch_start -> eval_batch_end } -> eval_end
 *
 * is an evaluation, which a listener of batch_end or fit_end may start. It has
 * no eval_end when a failure ends it.
 *
 * Where ranks agree to stop amid a step (trainer_stop.c), it is given up, and
 * batch_checkpoint and fit_end follow what it had come to.
 *
 * Events come in the same order on every rank, but for those about one batch
 * that is read or evaluated: ranks may have different numbers of them.
 *
 * To add a listener: its own file, which defines a `struct listener_ops`; a row
 * in events.c; its test. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

struct step_record;
struct timeline;
struct timeline_kind;
struct run;

/* X(NAME, name, when it comes) */
#define EVENTS(X)                                                              \
    X(INIT, init, "the run's parts are there")                                 \
    X(BEFORE_LOAD, before_load, "a checkpoint is looked for")                  \
    X(AFTER_LOAD, after_load, "weights are there, fresh or loaded")            \
    X(FIT_START, fit_start, "training begins, or goes on")                     \
    X(EPOCH_START, epoch_start, "a step begins an epoch")                      \
    X(BATCH_START, batch_start, "a step begins")                               \
    X(BEFORE_TRAIN_BATCH, before_train_batch,                                  \
      "its gradients are to be computed")                                      \
    X(BEFORE_DATALOADER, before_dataloader, "a microbatch is to be read")      \
    X(AFTER_DATALOADER, after_dataloader, "it was read")                       \
    X(AFTER_TRAIN_BATCH, after_train_batch,                                    \
      "loss and gradient norm are known, the weights are as before")           \
    X(BATCH_ASK, batch_ask,                                                    \
      "the weights are new; the last occasion to ask, before all "             \
      "ranks agree; also before the first step")                               \
    X(BATCH_END, batch_end, "the step's record is complete")                   \
    X(BATCH_CHECKPOINT, batch_checkpoint,                                      \
      "a checkpoint is made if one is due")                                    \
    X(EPOCH_END, epoch_end, "a step has ended an epoch")                       \
    X(EPOCH_CHECKPOINT, epoch_checkpoint, "after that")                        \
    X(EVAL_START, eval_start, "an evaluation begins")                          \
    X(EVAL_BATCH_START, eval_batch_start, "one batch of it begins")            \
    X(EVAL_BATCH_END, eval_batch_end, "and ends")                              \
    X(EVAL_END, eval_end, "its loss is known")                                 \
    X(FIT_END, fit_end, "training ends")

#define EVENT_ONE(NAME, ...) EVENT_##NAME,
enum event { EVENTS(EVENT_ONE) EVENT_COUNT };

/* What a listener may ask of the loop. */
enum ask {
    /* Asked by any rank until batch_ask, then agreed on by all:
     * the largest of the ranks' values is in the record of batch_end. */
    ASK_STOP,       /* end after this step; the value is of src/job/stop.h */
    ASK_FINISH,     /* the run is finished after this step, whatever it was to
                       last; its checkpoint remembers it */
    ASK_SAVE,       /* a checkpoint into the run directory is due */
    ASK_SAVE_LOCAL, /* one into the nodes' own folders is */
    ASK_SETTLE,     /* wait for the save in flight: too many have failed */
    ASK_EVALUATE,   /* an evaluation is due */
    ASK_TASKS,      /* scoring tasks is due */
    ASK_GENERATE,   /* samples of what the model writes are */
    ASK_MIRROR,     /* what checkpoint.mirror is told of a step (its file) */
    /* Asked by all ranks or none, from what is the same on all. */
    ASK_SKIP,     /* in after_train_batch: leave out the update */
    ASK_CONTINUE, /* in fit_end: another attempt must finish the run */
    ASK_COUNT
};

#define EVENTS_WHY 256

/* 0: not asked. */
struct asks {
    int64_t of[ASK_COUNT];
    double end_s; /* of this rank: the longest time to bring the run to an end
                     that a listener has asked for */
    char why[EVENTS_WHY]; /* who asks for ASK_FINISH, and why */
};

/* Where several ask, the largest counts. */
static inline void events_ask(struct asks *asks, enum ask what, int64_t value)
{
    if (value > asks->of[what])
        asks->of[what] = value;
}

/* The first reason counts. */
void events_ask_finish(struct asks *asks, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Where a row listens, and what becomes of its failures. */
enum listener_place {
    /* Must not communicate; may fail on one rank. Its failure is held back:
     * this rank keeps up with the others, without these listeners, until all
     * agree to end the run, with the next step's exchange, or when
     * trainer_start() or trainer_fit() ends. */
    LISTEN_RANK_0,
    LISTEN_EACH_RANK,
    /* Runs on all ranks together and may communicate, but in the events that
     * ranks may have different numbers of. What it fails with is the same on
     * all of them (comm_agree()), and ends the run at once. */
    LISTEN_TOGETHER
};

struct listener_ops {
    size_t bytes; /* of its self, which comes zeroed; 0: NULL */
    /* Must not communicate. NULL: zeros will do. */
    enum err (*create)(void *self, const struct run *run);
    /* In its place, of what is LISTEN_TOGETHER and changes the run, which it
     * may when it is called. */
    enum err (*create_together)(void *self, struct run *run);
    /* What self owns, also when create has failed. NULL: nothing. */
    void (*destroy)(void *self);
    /* The record, and what hangs from it, is lent for the call. */
    enum err (*handle)(void *self, enum event event,
                       const struct step_record *step, struct asks *asks);
    /* Its part of a checkpoint's state, and back; NULL: none. The same on all
     * ranks. restore also gets the state of runs that had no such listener. */
    enum err (*store)(const void *self, json_t *state);
    enum err (*restore)(void *self, const json_t *state);
    /* End what works in the background, NULL: nothing does; `together` when the
     * other ranks do, too. false: it does not end, and nothing may be freed. */
    bool (*leave)(void *self, bool together);
};

#define LISTENER_OF(type) .bytes = sizeof(type)

struct listener {
    const char *name; /* begins the text of its failures */
    enum listener_place place;
    uint32_t events; /* EVENT_BIT()s */
    const struct listener_ops *ops;
    const char *about; /* for docs/reference; NULL: of no table */
};

#define EVENT_BIT(event) (UINT32_C(1) << (event))

#define EVENTS_LISTENERS_MAX 32

/* Who listens to a run, on this rank. Zeroed: nobody, on rank 0. */
struct events {
    int rank;
    struct listening {
        const struct listener *row;
        void *self;
        int kind; /* of its spans */
    } list[EVENTS_LISTENERS_MAX];
    int count;
    struct timeline *timeline; /* that is told of calls; NULL: none; lent */
    int first_kind;            /* of the table's first row there */
    struct asks asks;
    struct err_kept held; /* the first failure that this rank has held back */
};

/* "init", "batch_end", ...; and when it comes. */
const char *events_name(enum event event);
const char *events_about(enum event event);
/* The table's rows, NULL behind the last. */
const struct listener *events_listener(int index);

/* The names of the table's rows, as kinds of a timeline: at most
 * EVENTS_LISTENERS_MAX; returns how many. */
int events_kinds(struct timeline_kind *kinds);

/* Create this row's listener, if it is for the trainer's rank, and append it.
 */
enum err events_listen(struct events *events, const struct listener *row,
                       struct run *run);
/* The table's rows of this name; NULL: all rows. */
enum err events_listen_table(struct events *events, const char *name,
                             struct run *run);

/* Call everybody who listens to `event`. A failure is prefixed by who. */
enum err events_run(struct events *events, enum event event,
                    const struct step_record *step);

enum err events_store(const struct events *events, json_t *state);
enum err events_restore(struct events *events, const json_t *state);

/* All listeners leave; false as theirs. */
bool events_leave(struct events *events, bool together);
/* The last one first. */
void events_destroy(struct events *events);
