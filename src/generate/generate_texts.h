/* What tessera-generate does with a model: its prompts, one on the command line
 * or many in a file, and what goes to standard output. */
#pragma once

#include <stddef.h>

#include "src/base/array.h"
#include "src/base/err.h"
#include "src/generate/generate_engine.h"

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

/* Written at once: to a file or pipe as it is, to a terminal as unicode_add_visible()
 * has it. Whole characters of valid UTF-8. */
enum err generate_texts_show(const char *text, size_t bytes);

/* The engine is open, and is started here. */
/* Continues the prompts of its options. */
enum err generate_texts_continue(struct generate_engine *engine);
/* {"tokens": N, "nll": X} of the text on standard input. ERR_USAGE: there is
 * none, or more of it than the context holds; ERR_NUMERIC: the loss is no finite
 * number. */
enum err generate_texts_score(struct generate_engine *engine);
