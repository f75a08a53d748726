/* The command line of tessera-eval. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "src/base/err.h"
#include "src/eval/icl_task.h"
#include "src/infer/infer.h"

#define EVAL_TASKS_MAX 256
#define EVAL_DATASETS_MAX 64

struct eval_options {
    const char *model;
    struct icl_task tasks[EVAL_TASKS_MAX]; /* of --task */
    int task_count;
    const char *datasets[EVAL_DATASETS_MAX]; /* of --perplexity */
    int dataset_count;
    const char *gauntlet, *data;
    const char *tokenizer; /* NULL: the model's */
    const char *examples;  /* file; NULL: none */
    const char *out;       /* file of the JSON; NULL: none */
    bool json, dry_run;
    bool weights_given;
    enum infer_weights weights;
    int threads; /* 0: as many as processors */
    int64_t limit, batch;
    int64_t max_seq_len; /* 0: the model's */
    uint64_t seed;
};

void eval_options_usage(FILE *out);
/* Texts are of argv. ERR_USAGE. */
enum err eval_options_parse(int argc, char **argv, struct eval_options *out);
