/* Files beside a tokenizer's own: what they say, and the tokens that they add. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "src/base/err.h"

#define TOKENIZER_BESIDE_REMEDY                                                \
    "have transformers' AutoTokenizer save a tokenizer.json"

/* One in the folder of the file `path`, an object that is released; NULL: there is
 * none. */
enum err tokenizer_beside_read(const char *path, const char *name,
                               json_t **out);
/* The text of a tokenizer.json that is read from `path`, or made of what is there, with
 * the tokens that files beside it add; and the tokens that these say texts begin and end
 * with (NULL: not asked for). ERR_UNSUPPORTED where it lacks one. */
enum err tokenizer_beside_add(const char *path, char **text, size_t *bytes,
                              int32_t *bos, int32_t *eos);
