/* --tokenizer MODEL of tessera-data: the tokenizer and the chat template of a
 * model, wherever it lies. */
#pragma once

#include "src/text/tokenizer/tokenizer.h"

/* A built-in tokenizer's name, a tokenizer.json, a folder that has one, or a
 * model (src/formats/weights.h) whose tokenizer is known. *template (NULL: not
 * asked for): the text of the chat template that comes with it, which the
 * caller frees; NULL: there is none. */
enum err data_model_tokenizer(const char *name, struct tokenizer **tokenizer,
                              char **template);
