/* Several tasks that are scored together by the ranks of a run.
 *
 * The examples of each part, a task's file or one category of it, are dealt to
 * the ranks in contiguous ranges, and what is right is counted: whole numbers,
 * which are the same for any number of ranks. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "src/base/err.h"
#include "src/comm/comm.h"
#include "src/eval/icl_score.h"
#include "src/eval/icl_task.h"
#include "src/text/tokenizer/tokenizer.h"

struct icl_set;

struct icl_set_options {
    int64_t positions; /* that the model has at most */
    int64_t limit;     /* the first so many examples of each part; 0: all */
};

/* Results of a part. */
struct icl_result {
    int task;             /* its number */
    const char *category; /* NULL: the task has none; lent */
    int64_t size;         /* examples that the part has */
    int64_t shots;        /* before each: no more than there are others */
    int64_t examples;     /* that were scored */
    int64_t right;
    int64_t cut;    /* examples that lost tokens at the left */
    int64_t always; /* that are right whatever the model says */
};

/* Reads the files and makes every prompt once, so that what is wrong with them
 * is told before anything is computed. Tasks, their texts and the tokenizer are
 * lent. prompts: where their lines go (icl_lines.h); NULL: nowhere. */
enum err icl_set_create(const struct icl_task *tasks, int count,
                        const struct tokenizer *tokenizer,
                        const struct icl_set_options *options, FILE *prompts,
                        struct icl_set **out);
void icl_set_destroy(struct icl_set *set);

/* Whether the ranks have read the same, which the one below takes for granted:
 * ERR_DATA on all of them, with task and rank, if not. Collective. */
enum err icl_set_agree(const struct icl_set *set, struct comm *comm);

/* Positions of the longest prompt with what is predicted or generated behind
 * it. */
int64_t icl_set_positions(const struct icl_set *set);

/* After icl_set_agree(). Scores all of it and logs each task. Collective; fails
 * on all ranks or none. lines: of rank 0, where a line for each example goes,
 * in their order; the others say by anything but NULL that it is asked for. */
enum err icl_set_score(struct icl_set *set, const struct icl_model *model,
                       struct comm *comm, FILE *lines);

/* In the order of tasks, categories within. Lent. */
const struct icl_result *icl_set_results(const struct icl_set *set, int *count);

/* Share of a task's examples that are right; with categories the mean of
 * theirs; as LLM Foundry has it. */
double icl_set_accuracy(const struct icl_set *set, int task);
