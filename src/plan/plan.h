/* Everything that tessera-plan tells, computed from settings and options. A
 * number that is not known, since a setting or an option it needs is missing,
 * is negative (UNKNOWN). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/plan/plan_cost.h"
#include "src/train/plan/train_memory.h"
#include "src/train/start/run_data.h"

/* What is asked. */
struct plan_options {
    const char *path; /* of the configuration; NULL: none */
    char **overrides; /* key=value, lent from argv */
    int override_count;
    bool json, list;
    int64_t memory_bytes;       /* of a rank; 0: not given */
    const char *gpu_name;       /* NULL: not given */
    const struct plan_gpu *gpu; /* the one of that name */
    int ranks; /* 0: not given, then 1, or with a GPU all of the nodes' */
    int nodes; /* 0: not given, then 1, or with a GPU as many as it takes */
    int node_ranks; /* of each, the last has the rest; 0: as many on each */
    double price;   /* of a GPU's hour; 0: not given */
    double tokens;  /* of the run; 0: what the settings say */
    double rate;    /* tokens/s of the whole job; 0: not given */
    double mfu;     /* by the convention of `mfu`; 0: not given */
    double mtbf_h;  /* of one node; 0: not given */
    int64_t write_bytes_per_s; /* of the whole job; 0: not given */
};

#define UNKNOWN (-1)

struct plan_figures {
    const struct train_settings *settings;
    struct train_settings chosen; /* the same, its strategy no longer "auto" */
    char why[384];                /* why it is that one; "": it was given */
    int ranks, threads;
    int ranks_max;      /* of the run, for good */
    int64_t more_slots; /* parallel.slots for some ranks more; 0: need not, or
                         * no divisor of the batch is right */
    bool cuda;          /* planned for GPUs */
    const struct plan_gpu *gpu;
    struct train_memory_place place;

    int64_t params, active_params;
    int64_t trained; /* of them, or adapters */
    int64_t saved;   /* numbers in a checkpoint: with what optimizers keep */
    double flops_mfu, flops_mfu_causal; /* per token */

    struct memory_plan bytes; /* of one rank */
    int64_t limit_bytes;      /* of the machine and memory.limit; 0: none */
    bool fits;                /* within it */
    struct train_memory_nearest nearest;

    bool batch_known;
    double steps, tokens;        /* of the run */
    double samples, data_tokens; /* of the data set */
    double epoch_samples;        /* of one epoch of its order */
    double epochs;
    struct run_data *data; /* NULL: not there */
    bool streams_known;    /* of data.mixture, with its counts */
    double stream_epochs[STREAMS_MAX];

    double tokens_per_s, step_s, train_s;
    double step_low_s, step_high_s; /* of a step that was predicted */
    double mfu;
    double hours, money; /* with failures and saves, where these are known */
    /* by src/plan/plan_time.c, on `gpu`; the second: the quickest other way */
    bool predicted, second_known;
    struct plan_cost cost, second_cost;
    struct train_memory_way second;

    double checkpoint_bytes;
    double kept; /* at the most, at the run's end, with the one being written */
    double free_bytes; /* where run.dir is */
    double cost_s, persist_s, interval_s, interval_steps, goodput;
    /* beside them: until a failure is known and until training goes on, which
     * the run's ledger may tell; and of a save's time, by its number of files */
    double detect_s, restart_s, metadata_s;
    double mtbf_h; /* of a node, given or assumed */
    bool restart_measured;
};

/* Fills *out, which borrows settings. */
enum err plan_figures(const struct plan_options *options,
                      const struct train_settings *settings,
                      struct plan_figures *out);
/* Predicts step and tokens per second, where the precision is one of GPUs'. */
enum err plan_time(struct plan_figures *figures);
void plan_time_print(const struct plan_figures *figures);
void plan_figures_release(struct plan_figures *figures);

/* A table for people. */
void plan_print(const struct plan_figures *figures);

/* One JSON object with every key, null where a number is not known. */
enum err plan_print_json(const struct plan_figures *figures);
