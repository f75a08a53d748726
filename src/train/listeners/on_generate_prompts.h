/* The prompts that a run's model continues: read and encoded by rank 0 with the
 * tokenizer of the training data, the same tokens on all ranks. */
#pragma once

#include "src/base/err.h"
#include "src/infer/generate.h"
#include "src/base/buffer.h"
#include "src/text/tokenizer/tokenizer.h"
#include "src/train/run/run.h"

#define ON_GENERATE_PROMPTS_MAX 1024

struct on_generate_prompts {
    struct generate_prompt *list; /* [count] lent from tokens */
    size_t count, tokens_max;     /* of the longest */
    struct token_list tokens;
    int32_t eos; /* -1: none */
    /* On rank 0; others have one that never gives text. */
    struct tokenizer *tokenizer;
    struct buffer texts[ON_GENERATE_PROMPTS_MAX]; /* rank 0's */
};

/* Zeroed by the caller, who frees in any case. ERR_USAGE: a prompt has no room
 * for an answer within model.max_seq_len. Collective. */
enum err on_generate_prompts_read(const struct run *run,
                                  struct on_generate_prompts *prompts);
void on_generate_prompts_free(struct on_generate_prompts *prompts);
