/* Memory, or ERR_MEMORY with a text that says for what and how many bytes:
 *
 *     TRY(new_zeroed(&model->layers, layers));
 *
 * The place is a pointer to the pointer, whose type gives the size of one. It
 * is NULL after a failure. free() releases what these give. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

/* `count` of what `*place` points to, all bytes 0. */
#define new_zeroed(place, count)                                               \
    new_memory((place), (count), sizeof **(place), true, #place)

/* The same with unspecified contents. */
#define new_room(place, count)                                                 \
    new_memory((place), (count), sizeof **(place), false, #place)

/* A copy of a text, or of its first `bytes_max` bytes. */
#define new_text(place, text) new_text_copy((place), (text), SIZE_MAX, #place)
#define new_text_part(place, text, bytes_max)                                  \
    new_text_copy((place), (text), (bytes_max), #place)

/* What the macros above call: `place` points to the pointer, `what` is what a
 * message calls it. */
enum err new_memory(void *place, size_t count, size_t bytes, bool zeroed,
                    const char *what);
enum err new_text_copy(char **place, const char *text, size_t bytes_max,
                       const char *what);
