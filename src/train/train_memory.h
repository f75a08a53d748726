/* Memory and settings: what a configuration needs on a rank, the microbatch
 * that memory.limit allows, and what to change where something does not fit.
 *
 * The automatic microbatch must be a function of the settings, or the same file
 * would be another run on another machine. But a rank's memory depends on the
 * number of ranks. So it is the largest microbatch with which the run fits on
 * as few ranks as possible: of 1, 2, 4, ... and the most ranks the
 * smallest number that fits at all decides, and a run can go on with that many
 * or more. Threads count as hardware.threads, or TRAIN_MEMORY_THREADS where
 * that is automatic, too; and hardware.backend = "auto" counts as cpu. */
#ifndef TESSERA_TRAIN_TRAIN_MEMORY_H
#define TESSERA_TRAIN_TRAIN_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/parallel/memory_plan.h"
#include "src/train/train_settings.h"

#define TRAIN_MEMORY_THREADS 16

/* Where a configuration is to run. */
struct train_memory_place {
    const struct kernels *kernels;
    int threads; /* per rank */
    int ranks;   /* at most train_memory_ranks_max() */
};

/* How the settings spread the state over ranks. "fast" and "run" keep the bits
 * for one topology only, "elastic" for all. */
struct replica_options
train_memory_replica(const struct train_settings *settings);

/* The most ranks that can share the run's batches: a group of
 * parallel.sequence_degree has a slot together. */
int train_memory_ranks_max(const struct train_settings *settings);

/* Of the model of a rank: all but what is the rank's own, its first chunk and
 * groups. */
enum err train_memory_model(const struct train_settings *settings, int threads,
                            struct model_options *out);

enum err train_memory_plan(const struct train_settings *settings,
                           const struct train_memory_place *place,
                           struct memory_plan *out);

/* The next smaller microbatch that divides what `microbatch` divides: half of
 * it, or, when that is not whole, its largest divisor; 0 after 1. */
int64_t train_memory_smaller(int64_t microbatch);

/* See above; without a limit, or where nothing fits, the whole slot and the
 * smallest. */
enum err train_memory_auto(const struct train_settings *settings,
                           int64_t *microbatch);

/* The nearest configuration that fits: a smaller microbatch, else every block
 * computed again, else saved in bf16 too, else without asynchronous
 * checkpoints, else on more ranks, up to the most; then combinations. */
struct train_memory_nearest {
    bool found;
    struct train_settings settings;
    int ranks;
};
enum err train_memory_nearest(const struct train_settings *settings,
                              const struct train_memory_place *place,
                              size_t limit_bytes,
                              struct train_memory_nearest *out);

/* ERR_MEMORY when the plan is beyond memory.limit, with what would fit. */
enum err train_memory_check(const struct train_settings *settings,
                            const struct train_memory_place *place);

/* What differs, as "train.microbatch=2 memory.checkpoint=\"block: all\"". */
void train_memory_changes(const struct train_settings *settings, int ranks,
                          const struct train_memory_nearest *nearest,
                          char *text, size_t size);

/* The largest resident set that this process has had; 0: not known. */
size_t train_memory_peak(void);

#endif
