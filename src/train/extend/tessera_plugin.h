/* The C interface of plug-ins: shared objects that a run loads by
 *
 *     plugins = [ "path.so" ];
 *     plugins = ( { path = "path.so"; options = "window=50 factor=3"; } );
 *
 * and that listen to its events, or, as an algorithm among others, change
 * gradients and weights:
 *
 *     algorithms = ( { name = "plugin"; path = "path.so"; options = "x=1"; } );
 *
 * This header needs nothing else of Tessera:
 *
 *     cc -std=gnu17 -shared -fPIC $(pkg-config --cflags tessera) \
 *         mine.c -o mine.so
 *
 * docs/examples/plugin.c is a whole listener, plugin_algorithm.c an algorithm. A
 * plug-in defines one function,
 * tessera_plugin(), of which it returns a structure that stays as it is.
 *
 * Every rank loads the same file (its SHA-256 is compared), which must belong to
 * the user or to root and be writable by nobody else. It runs within the
 * training process: what crashes in it ends the run, and time that it takes in
 * an event is time of the step. Events are numbers that never change their
 * meaning; structures only grow at their ends, and `bytes` tells how much of one
 * the other side knows, so that plug-ins outlive versions of Tessera. When they
 * can't, TESSERA_PLUGIN_ABI is raised, and the plug-in is refused with both
 * numbers.
 *
 * Functions return 0, or anything else for a failure, which ends the run on all
 * ranks with the text of host->fail(). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TESSERA_PLUGIN_ABI 1

/* In the order in which they come (src/train/run/events.h tells when). Ranks
 * may have different numbers of those about one batch that is read or
 * evaluated. */
enum tessera_event {
    TESSERA_INIT = 0,
    TESSERA_BEFORE_LOAD = 1,
    TESSERA_AFTER_LOAD = 2,
    TESSERA_FIT_START = 3,
    TESSERA_EPOCH_START = 4,
    TESSERA_BATCH_START = 5,
    TESSERA_BEFORE_TRAIN_BATCH = 6,
    TESSERA_BEFORE_DATALOADER = 7,
    TESSERA_AFTER_DATALOADER = 8,
    TESSERA_AFTER_TRAIN_BATCH = 9,
    TESSERA_BATCH_ASK = 10,
    TESSERA_BATCH_END = 11,
    TESSERA_BATCH_CHECKPOINT = 12,
    TESSERA_EPOCH_END = 13,
    TESSERA_EPOCH_CHECKPOINT = 14,
    TESSERA_EVAL_START = 15,
    TESSERA_EVAL_BATCH_START = 16,
    TESSERA_EVAL_BATCH_END = 17,
    TESSERA_EVAL_END = 18,
    TESSERA_FIT_END = 19
};
#define TESSERA_EVENT_BIT(event) (UINT64_C(1) << (event))

/* What may be asked for until batch_ask; all ranks agree on it then, and it is
 * done after the step. */
enum tessera_ask {
    TESSERA_ASK_FINISH = 0, /* this step is the run's last one */
    TESSERA_ASK_SAVE = 1,
    TESSERA_ASK_EVALUATE = 2,
    TESSERA_ASK_TASKS = 3,
    TESSERA_ASK_GENERATE = 4
};

/* Where the run stands; lent for the call. What is not known yet is 0. */
struct tessera_step {
    size_t bytes;      /* of this structure, as the run knows it */
    int64_t step;      /* completed ones */
    int64_t max_steps; /* -1: the run's length is in seconds */
    int64_t samples, tokens;
    double elapsed_s; /* training time of all attempts */

    /* from after_train_batch on, the same on all ranks */
    double loss; /* nats per token; as grad_norm, no number where the update is
                    left out for that (train.on_nan) */
    double balance_loss;
    double grad_norm; /* before clipping */
    double lr;
    int64_t loss_tokens;
    int32_t skipped; /* 1: the update was left out */

    /* from batch_ask on, of this rank */
    double step_s, loader_s, tokens_per_s;
    double mfu; /* on rank 0; 0 where the peak is not known */

    /* from eval_end on */
    int64_t eval_step; /* -1: none in this attempt */
    double eval_loss;
};

/* The run, there as long as the plug-in is. The functions may be called from
 * within the plug-in's own only, on the thread that calls those. */
struct tessera_host {
    size_t bytes;
    int32_t rank, ranks;
    int32_t attempt; /* 1 for the run's first start */
    const char *run_dir;
    /* A line of the run's log, which says whose it is. */
    void (*info)(const struct tessera_host *host, const char *text);
    void (*warn)(const struct tessera_host *host, const char *text);
    /* The reason of the failure that the function returns then. */
    void (*fail)(const struct tessera_host *host, const char *text);
    /* A figure of the step at hand, from batch_start to batch_ask, for
     * metrics.jsonl and all trackers: "group/name". Of ranks but 0 nobody sees
     * it. */
    void (*scalar)(const struct tessera_host *host, const char *name,
                   double value);
};

struct tessera_listener {
    size_t bytes;
    const char *name;   /* of letters, digits and '_' */
    int32_t every_rank; /* 0: on rank 0 only */
    uint64_t events;    /* TESSERA_EVENT_BIT()s */
    /* *self is what the others get. `options` are those of the setting. NULL:
     * there is nothing to make. */
    int (*create)(const struct tessera_host *host, const char *options,
                  void **self);
    void (*destroy)(void *self);
    /* ask() may be called with `asks` until it returns, in events up to
     * batch_ask of the step; of several values the largest counts, 0 asks for
     * nothing. In after_train_batch the step at hand is not counted yet. */
    int (*handle)(void *self, int32_t event, const struct tessera_step *step,
                  void (*ask)(void *asks, int32_t what, int64_t value),
                  void *asks);
    /* What a checkpoint is to keep, as text in *text (UTF-8), malloc'ed; rank
     * 0's counts. NULL: nothing. */
    int (*store)(const void *self, char **text);
    /* Back, on every rank that has the listener, before fit_start. */
    int (*restore)(void *self, const char *text);
};

/* The step at hand; lent for the call. */
struct tessera_batch {
    size_t bytes;
    int64_t step; /* completed ones; in after_update with the one at hand */
    int64_t max_steps;
    double
        scale; /* a gradient times this is the mean's; 0 before there is one */
};

/* Some elements of a tensor, of those that this rank updates, fp32: from number
 * `first` of it on. Tensors are cut anywhere, and otherwise with another number
 * of ranks, and with ddp every rank has all of them: so that what is done to an
 * element may depend on its value, its tensor and its place alone. */
struct tessera_span {
    size_t bytes;
    const char *tensor;
    int32_t dims;
    int64_t shape[2]; /* [dims] */
    int64_t first, elements;
    float *weights;  /* changed in after_update only */
    float *gradient; /* the batch's sum; NULL in after_update */
};

/* On every rank; on the processor only. What it is not interested in is NULL.
 * Spans come in the order of the model's tensors. */
struct tessera_algorithm {
    size_t bytes;
    const char *name; /* of letters, digits and '_' */
    int (*create)(const struct tessera_host *host, const char *options,
                  void **self);
    void (*destroy)(void *self);
    int (*before_batch)(void *self, const struct tessera_batch *batch);
    /* The gradient before and after clipping; after it in the order of the
     * list. */
    int (*after_gradient)(void *self, const struct tessera_batch *batch,
                          const struct tessera_span *span);
    int (*change_gradient)(void *self, const struct tessera_batch *batch,
                           const struct tessera_span *span);
    int (*after_update)(void *self, const struct tessera_batch *batch,
                        const struct tessera_span *span);
    /* As a listener's. */
    int (*store)(const void *self, char **text);
    int (*restore)(void *self, const char *text);
};

struct tessera_plugin {
    uint32_t abi; /* TESSERA_PLUGIN_ABI */
    size_t bytes;
    const char *name, *version, *about;              /* about: one line */
    const struct tessera_listener *const *listeners; /* ends with NULL */
    /* The first version ended here. NULL: none. */
    const struct tessera_algorithm *const *algorithms; /* ends with NULL */
};

/* Defined by the plug-in. */
const struct tessera_plugin *tessera_plugin(void);

#ifdef __cplusplus
}
#endif
