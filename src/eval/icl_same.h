/* Whether all ranks have read the same tasks.
 *
 * Each rank reads the files itself; where one node has another copy of them,
 * what the ranks count together would be the score of neither. So each works
 * out a digest of all that a task's score depends on, and they compare. */
#pragma once

#include "src/base/digest.h"
#include "src/base/err.h"
#include "src/comm/comm.h"
#include "src/eval/icl_prompts.h"
#include "src/eval/icl_records.h"
#include "src/eval/icl_task.h"

struct icl_same {
    char name[128];  /* of the task, icl_task_name() */
    char digest[65]; /* of task, records and prompts */
};

/* The task's options, but not where its file is, and all of its examples. */
enum err icl_same_add_task(struct digest *digest, const struct icl_task *task,
                           const struct icl_records *records);
/* The prompts of an example as tokens, which differ with the tokenizer. */
enum err icl_same_add_example(struct digest *digest,
                              const struct icl_example *example);

/* Collective: ERR_DATA on all ranks if a rank's list is not rank 0's, with the
 * first rank and task where it differs. */
enum err icl_same_check(const struct icl_same *list, int count,
                        struct comm *comm);
