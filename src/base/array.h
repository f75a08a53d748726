/* Arrays that grow: a pointer, how many elements are in use and for how many
 * there is room, wherever a struct has them. Zeros are an empty one, and free()
 * releases it.
 *
 *     TRY(array_room(&list->words, &list->capacity, list->count + 1));
 *     list->words[list->count++] = word;
 *
 * An array grows to twice what is wanted, so that n additions copy at most 2 n
 * elements. After a failure it is as it was. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

/* Room for `count` elements at *place; *capacity is of any integer type of 32
 * or 64 bits. */
#define array_room(place, capacity, count)                                     \
    ((size_t)(count) <= (size_t) * (capacity)                                  \
         ? ERR_OK                                                              \
         : array_grow((place), sizeof **(place), (capacity),                   \
                      sizeof *(capacity), (size_t)(count), #place))

/* What the macro calls when there is too little: `place` points to the pointer,
 * `what` is what a message calls it. */
enum err array_grow(void *place, size_t bytes, void *capacity,
                    size_t capacity_bytes, size_t count, const char *what);

/* For qsort(): numbers from the lowest to the highest. */
int array_order_i32(const void *a, const void *b);
int array_order_i64(const void *a, const void *b);

/* Bytes that grow. Zeros are an empty one; the memory stays when `bytes` is set
 * back. */
struct buffer {
    uint8_t *data;
    size_t bytes, capacity;
};

void buffer_free(struct buffer *buffer);
/* Room for `more` bytes behind those that are there. */
enum err buffer_reserve(struct buffer *buffer, size_t more);
enum err buffer_add(struct buffer *buffer, const void *data, size_t bytes);
