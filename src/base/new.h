/* Memory, or ERR_MEMORY with a text that says how many bytes, for what, and in
 * which file of the source:
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
    new_memory((place), (count), sizeof **(place), true, NEW_NAME(place))

/* The same with unspecified contents. */
#define new_room(place, count)                                                 \
    new_memory((place), (count), sizeof **(place), false, NEW_NAME(place))

/* A copy of a text, or of its first `bytes_max` bytes. */
#define new_text(place, text) new_text_part((place), (text), SIZE_MAX)
#define new_text_part(place, text, bytes_max)                                  \
    new_text_copy((place), (text), (bytes_max), NEW_NAME(place))

/* How a creator ends, with its code `rc`: *place is what it made, or, after a
 * failure, as it was, and what there was of it is destroyed.
 *
 *     out:
 *         return new_or_none(rc, model, out, model_destroy); */
#define new_or_none(rc, made, place, destroy)                                  \
    ((rc) == ERR_OK ? (*(place) = (made), ERR_OK) : (destroy(made), (rc)))

#define NEW_NAME(place) #place " of " __FILE__

/* What the macros above call: `place` points to the pointer, `what` is what a
 * message calls it. */
enum err new_memory(void *place, size_t count, size_t bytes, bool zeroed,
                    const char *what);
enum err new_text_copy(char **place, const char *text, size_t bytes_max,
                       const char *what);
