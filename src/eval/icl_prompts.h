/* The prompts of a task as tokens, example by example.
 *
 * A prompt is a preamble, the task's prompt string and examples with their
 * answers, and the example's own context. The preamble is encoded with what the
 * tokenizer puts around a text, without a token that ends it; context and
 * continuation each by itself, without that. Where the tokenizer has " a" as
 * one token, a continuation begins with a blank. What is longer than the model
 * takes loses tokens at the left. All of this is as LLM Foundry has it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/eval/icl_records.h"
#include "src/text/tokenizer/tokenizer.h"

/* What the model reads at a time: `count` tokens, of which the last `span` are
 * what is to be predicted (0: it is to go on by itself), at least one comes
 * before them. */
struct icl_row {
    size_t begin; /* in the example's tokens */
    int64_t count, span;
};

/* Zeros: an empty one; filled again and again. */
struct icl_example {
    int64_t number; /* in its part, from 0 */
    const struct icl_record *record;
    struct token_list tokens;
    struct icl_row *rows; /* one for each option, or one */
    int64_t row_count, row_capacity;
    bool cut; /* tokens were lost at the left */
};

void icl_example_free(struct icl_example *example);
static inline const int32_t *icl_example_tokens(const struct icl_example *from,
                                                int64_t row)
{
    return from->tokens.token + from->rows[row].begin;
}

/* --- shots: which examples stand before which, as LLM Foundry draws them: one
 * random.Random(seed) for a task, and for each example in turn a sample of the
 * others' numbers, written in the order of the set that they make --- */

struct icl_shots;

/* shots >= 0 before each of count > 0 examples; count < 2^32. Where there are
 * fewer others than shots they are all shown. */
enum err icl_shots_create(int64_t count, int64_t shots, uint64_t seed,
                          struct icl_shots **out);
void icl_shots_destroy(struct icl_shots *choice);

/* Those of the next example: numbers in [0, count), lent until the next call.
 * At most `count` calls. */
enum err icl_shots_next(struct icl_shots *choice, const int64_t **list,
                        int64_t *listed);

/* --- prompts --- */

struct icl_prompts;

/* All is lent. positions: of the model, what it generates among them. */
enum err icl_prompts_create(const struct icl_task *task,
                            const struct icl_part *part,
                            const struct tokenizer *tokenizer,
                            int64_t positions, struct icl_prompts **out);
void icl_prompts_destroy(struct icl_prompts *prompts);

/* The next example of the part, of which there are no more than the part's
 * count. `example` NULL: it is left out. ERR_DATA: nothing is to be predicted,
 * or nothing comes before it. */
enum err icl_prompts_next(struct icl_prompts *prompts,
                          struct icl_example *example);

/* Tokens that may be generated: as many as the longest answer has, with what
 * the tokenizer puts around it, plus 10 where there is a cot_delimiter. 0:
 * nothing is. */
int64_t icl_prompts_generated_max(const struct icl_prompts *prompts);
