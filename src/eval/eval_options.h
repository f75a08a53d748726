/* What tessera-eval is asked, and does then. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/settings/options.h"
#include "src/comm/comm.h"
#include "src/eval/icl_task.h"
#include "src/infer/infer.h"
#include "src/parallel/spread.h"

#define EVAL_TASKS_MAX 256
#define EVAL_DATASETS_MAX 64

struct eval_options {
    const char *model;
    struct icl_task tasks[EVAL_TASKS_MAX]; /* of --task */
    int task_count;
    struct icl_task task;                        /* what all of them have */
    const char *datasets[EVAL_DATASETS_MAX + 1]; /* of --perplexity */
    int dataset_count;
    const char *gauntlet, *data;
    const char *tokenizer; /* NULL: the model's */
    const char *examples;  /* file; NULL: none */
    const char *out;       /* file of the JSON; NULL: none */
    bool json, dry_run;
    enum infer_weights weights;
    enum infer_backend backend;
    enum spread_way spread;
    int threads; /* 0: as many as processors */
    int64_t limit, batch;
    int64_t max_seq_len; /* 0: the model's */
    uint64_t seed;
};

extern const struct options_program eval_options_program;
/* What it has before the command line is read. */
void eval_options_default(struct eval_options *out);
/* Completes what options_parse() has made of it. ERR_USAGE. */
enum err eval_options_check(const struct options *options);

/* Measures the model and prints or writes what came of it (rank 0). Collective. */
enum err eval_run(const struct eval_options *options, struct comm *comm);
