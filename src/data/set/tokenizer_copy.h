/* The tokenizer's file travels with what was made with it, as "tokenizer.json"
 * in the folder. "bytes" has no file. */
#pragma once

#include "src/base/err.h"
#include "src/base/fsio.h"
#include "src/text/tokenizer/tokenizer.h"

#define TOKENIZER_COPY_NAME "tokenizer.json"

/* Put it there, if it has a file. */
enum err tokenizer_copy_write(const char *folder,
                              const struct tokenizer *tokenizer);

/* Its path, "" if there is none. ERR_DATA when it is another one than that with
 * this digest, which the folder's description names `name`. */
enum err tokenizer_copy_find(const char *folder, const char *name,
                             const char *sha256, char path[FSIO_PATH_MAX]);
