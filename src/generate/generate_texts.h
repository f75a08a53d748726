/* What tessera-generate does with a model: its prompts, one on the command line
 * or many in a file, and what goes to standard output. */
#pragma once

#include <stddef.h>

#include "src/base/array.h"
#include "src/base/err.h"
#include "src/generate/generate_engine.h"

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
