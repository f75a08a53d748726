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
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/parallel/memory_plan.h"
#include "src/train/settings/train_settings.h"

#define TRAIN_MEMORY_THREADS 16
/* Left free of what a machine has. */
#define TRAIN_MEMORY_MARGIN 0.05

/* Where a configuration is to run. */
struct train_memory_place {
    const struct kernels *kernels;
    int threads;    /* per rank */
    int ranks;      /* at most train_memory_ranks_max() */
    int node_ranks; /* of them on this node; 0: all */
    int uneven;     /* nodes, where not all have so many; else 0 */
    /* neighbours of which no group is on two nodes; 0: node_ranks */
    int group_ranks;
    /* What there is for each rank: where tensors lie, on the host beside a
     * device, and address space that it may still map; 0: not known. Ranks of a
     * node have equal parts of its memory. */
    size_t room, host_room, address_space;
    size_t order;      /* bytes of the sample order of each rank */
    size_t indexes;    /* as memory_plan_input's */
    size_t index_text; /* as memory_plan_input's */
    bool resumed;      /* what stays for the whole run is no choice any more */
};

/* How the settings spread the state over ranks; "auto" is the first of zero1,
 * zero2 and zero3 that the other settings allow. "fast" and "run" keep the bits
 * for one topology only, "elastic" for all. */
struct replica_options
train_memory_replica(const struct train_settings *settings);

/* The most ranks that can share the run's batches: under zero2 and zero3, where
 * the settings say so, the leaves, else the slots; a group of
 * parallel.sequence_degree has one together. */
int train_memory_ranks_max(const struct train_settings *settings);

/* The options of a rank's model: all but what is the rank's own, its first
 * chunk and groups. */
enum err train_memory_model(const struct train_settings *settings, int threads,
                            struct model_options *out);

/* What norms take of the host: those of rows that an algorithm asks for, and
 * those of monitor.norms. */
size_t train_memory_norms(const struct train_settings *settings,
                          const struct params *params);

/* "auto" is planned as the strategy that train_memory_replica() says. */
enum err train_memory_plan(const struct train_settings *settings,
                           const struct train_memory_place *place,
                           struct memory_plan *out);
/* The same with the model's parameters, which are there. */
enum err train_memory_plan_with(const struct train_settings *settings,
                                const struct train_memory_place *place,
                                const struct params *params,
                                struct memory_plan *out);

/* Settings with which shard groups exchange gradients once a step, where they can, and
 * there is memory for the sums that wait meanwhile, of a device with room left for what
 * is measured there, and nothing else takes what is left (eval.tasks). The bits are the same. */
enum err train_memory_once(struct train_settings *settings,
                           const struct train_memory_place *place,
                           size_t limit_bytes);

/* Within limit_bytes, 0: no limit, and within what the place has. There the
 * weights that ranks of a node share count once, and 5 % are left free: plan
 * and peak differ by so much. */
bool train_memory_fits(const struct memory_plan *plan,
                       const struct train_memory_place *place,
                       size_t limit_bytes);

/* The next smaller microbatch that divides what `microbatch` divides: half of
 * it, or, when that is not whole, its largest divisor; 0 after 1. */
int64_t train_memory_smaller(int64_t microbatch);

/* See above; without a limit, or where nothing fits, the whole slot and the
 * smallest. */
enum err train_memory_auto(const struct train_settings *settings,
                           int64_t *microbatch);

/* One way to run the settings, and what it costs. */
struct train_memory_way {
    enum replica_strategy strategy;
    int shard_degree; /* of zero3; 0 otherwise */
    int ranks;
    int64_t microbatch;
    bool again;      /* every block is computed again */
    bool packed;     /* saved tensors in fewer bits */
    bool waiting;    /* no asynchronous checkpoints */
    bool chained;    /* one slot, so one sum that waits; of a new run */
    bool once;       /* as train_memory_once() says */
    bool fits;       /* of train_memory_strategy() */
    size_t bytes;    /* of a rank */
    double sent;     /* bytes that a rank sends in a step */
    double computed; /* share of a step's arithmetic besides */
    double cost;
};

/* The nearest configurations that fit: the cheapest ways on so many ranks, or
 * where there is none on the fewest ranks that have some, up to the most; where
 * there is none at all the same with one slot. */
#define TRAIN_MEMORY_WAYS_MAX 4
struct train_memory_nearest {
    bool found;
    struct train_settings settings; /* with the cheapest */
    int ranks;
    struct train_memory_way ways[TRAIN_MEMORY_WAYS_MAX]; /* cheapest first */
    int count;
};
enum err train_memory_nearest(const struct train_settings *settings,
                              const struct train_memory_place *place,
                              size_t limit_bytes,
                              struct train_memory_nearest *out);

/* ERR_MEMORY when the plan is beyond memory.limit or what the place has, with
 * what would fit. */
enum err train_memory_check(const struct train_settings *settings,
                            const struct train_memory_place *place);

/* What `near` changes, as "train.microbatch=2 memory.checkpoint=\"block:
 * all\"".
 */
void train_memory_changes(const struct train_settings *settings, int ranks,
                          const struct train_settings *near, int near_ranks,
                          char *text, size_t size);

/* --- the ways to run one configuration (train_memory_ways.c) --- */

/* The ways in which one configuration can run on a number of ranks: strategy,
 * shard degree, microbatch, what is computed again, packed or copied. What each
 * takes is planned, what it costs is estimated, so that the
 * cheapest that fits can be named.
 *
 * Cost is what a step takes beyond its own arithmetic, as a share of that:
 * bytes that a rank sends to other nodes over an assumed balance of FLOPs per
 * byte (those within a node count a tenth, on a device at the same time),
 * and blocks computed again. Changes
 * that cost no time but something else (other bits, a smaller product, a save
 * that is waited for) have a fixed price. The numbers decide an order, nothing
 * else; ddp costs what zero1 costs and takes more, so it is never chosen. */

/* The cheapest that fit at place->ranks, best first, at most `max`: no two that
 * differ only in microbatch or shard degree, under "auto" in strategy. All
 * strategies are tried, with "auto" too; `chained`: those of one slot, under
 * "elastic" zero2's and zero3's. limit_bytes as for train_memory_fits(). */
enum err train_memory_ways(const struct train_settings *settings,
                           const struct train_memory_place *place,
                           size_t limit_bytes, bool chained, int max,
                           struct train_memory_way *ways, int *count);

/* Sets what the way sends and computes, and its cost (train_memory_cost.c). */
void train_memory_cost(const struct train_settings *settings,
                       const struct train_memory_place *place,
                       const struct params *params,
                       struct train_memory_way *way);
/* Whether every block is computed again; *missing: the share that is not. */
bool train_memory_again(const struct train_settings *settings, double *missing);

/* The settings changed so; "auto" stays where `way` only chooses what it would
 * choose. */
void train_memory_apply(const struct train_settings *settings,
                        const struct train_memory_way *way,
                        struct train_settings *out);

/* Whether the settings fit, under "auto" with any strategy that it can choose.
 */
enum err train_memory_fit(const struct train_settings *settings,
                          const struct train_memory_place *place,
                          size_t limit_bytes, bool *fits);

/* Whether the settings leave that open: "auto", or, on several nodes, zero3 without a
 * degree, which becomes that of its cheapest way that fits. */
bool train_memory_chooses(const struct train_settings *settings,
                          const struct train_memory_place *place);

/* "auto" becomes the cheapest strategy with which the settings fit, or where
 * none does the one that takes least; `why` says so in a line. What is given
 * stays, and `why` is empty. */
enum err train_memory_strategy(struct train_settings *settings,
                               const struct train_memory_place *place,
                               size_t limit_bytes, char *why, size_t why_size);
