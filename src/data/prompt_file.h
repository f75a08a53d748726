/* Files of prompts: a .jsonl has a record with a text "prompt" on each line, any
 * other file a prompt on each line, which may end with a carriage return. */
#ifndef TESSERA_DATA_PROMPT_FILE_H
#define TESSERA_DATA_PROMPT_FILE_H

#include <stddef.h>

#include "src/base/err.h"

/* Gives each to `take`, lent, whose failures are prefixed with the place.
 * ERR_USAGE: there is no such file, or no prompt in it. */
enum err prompt_file_read(const char *path,
                          enum err (*take)(void *arg, const char *text,
                                           size_t bytes),
                          void *arg);

#endif
