/* Whether what a model has generated is an answer, as LLM Foundry's metric
 * says (InContextLearningGenerationExactMatchAccuracy): the text up to the
 * first early_stopping_criterion, of it what follows the last cot_delimiter;
 * normalised, or without the white space around it; it is right if it begins
 * with the answer or an alias, which are normalised alike.
 *
 * Normalised: lower case, "_", ASCII punctuation and the quotes U+2018, U+2019,
 * U+00B4 and ` to blanks, the words a, an and the left out, white space to
 * single blanks. Lower case is that of single code points. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/array.h"
#include "src/base/err.h"
#include "src/eval/icl_records.h"
#include "src/eval/icl_task.h"

struct icl_answer;

/* ERR_USAGE: one of task->stops is no regular expression, or the cot_delimiter
 * not UTF-8. The task is lent. A stop that takes too long to look for counts as
 * not found, which the log tells once. */
enum err icl_answer_create(const struct icl_task *task,
                           struct icl_answer **out);
void icl_answer_destroy(struct icl_answer *answer);

/* Whether one of the task's stops is in the text, so that nothing more is
 * needed. The text is UTF-8, else repaired. */
enum err icl_answer_stops(struct icl_answer *answer, const uint8_t *text,
                          size_t bytes, bool *stops);

/* The verdict on all that was generated; *cleaned is lent until the next call:
 * what was compared, bytes long, and ended by 0. */
enum err icl_answer_judge(struct icl_answer *answer,
                          const struct icl_record *record, const uint8_t *text,
                          size_t bytes, bool *right, const char **cleaned);

/* Whether anything is right: the answer or an alias is nothing once it is
 * normalised ("the", "?"). */
enum err icl_answer_always(struct icl_answer *answer,
                           const struct icl_record *record, bool *always);
