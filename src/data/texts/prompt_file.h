/* Files of prompts: a .jsonl has a record with a text "prompt" on each line, any
 * other file a prompt on each line, which may end with a carriage return. */
#pragma once

#include <stddef.h>

#include "src/base/err.h"

/* Whether it can be read: it is there, and a regular file or a descriptor that
 * the process was given (regular_readable()). */
enum err prompt_file_check(const char *path);

/* Gives each to `take`, lent, whose failures are prefixed with the place.
 * ERR_USAGE: it cannot be read, or there is no prompt in it. */
enum err prompt_file_read(const char *path,
                          enum err (*take)(void *arg, const char *text,
                                           size_t bytes),
                          void *arg);
