/* What a run reads: its data sets, the order of their samples, and the
 * microbatch at hand. Made by src/train/start (trainer_data.h). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct batch;
struct dataset;
struct loader_ahead;
struct order;
struct run_data;

struct run_inputs {
    struct run_data *sets;
    struct dataset **train_data; /* [train_count], those of `sets` */
    int train_count;
    char train_id[65];         /* of all of them */
    struct order *order;       /* of the samples of train_data */
    char *history;             /* trainer_data.h, as JSON; NULL: one part */
    bool changed;              /* at this start */
    int64_t epoch_before;      /* samples of an epoch then; 0: not known */
    struct dataset *eval_data; /* NULL: no evaluation */
    struct order *eval_order;  /* NULL likewise */
    json_t *text; /* of its checkpoints' state, rank 0's; NULL: the data's */
    char eval_before[65]; /* id of the checkpoint's; empty: none or unknown */
    struct batch *batch;  /* one microbatch */
    struct loader_ahead *ahead; /* those that follow; NULL: not read ahead */
    bool whole_samples; /* for now each of its samples is one document */
};
