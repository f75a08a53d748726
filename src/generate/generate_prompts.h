/* The prompts of tessera-generate: one on the command line, or many in a file.
 */
#pragma once

#include "src/base/err.h"
#include "src/generate/generate_engine.h"
#include "src/base/buffer.h"

/* All owned. */
struct generate_prompts {
    struct buffer *texts;         /* [count] as they were given */
    struct generate_prompt *list; /* [count] tokens of each */
    struct token_list tokens;     /* of all of them */
    size_t *first;                /* [count] where each begins in them */
    size_t count, capacity;
    size_t tokens_max; /* of the longest */
};

/* Reads (src/data/texts/inputs.h) and encodes them: the user's message of a chat where
 * there is a template, behind the --system message; else the text behind the
 * token that begins texts, if the tokenizer has one. Zeroed by the caller, who
 * frees in any case. */
enum err generate_prompts_read(struct generate_engine *engine,
                               struct generate_prompts *prompts);
void generate_prompts_free(struct generate_prompts *prompts);
