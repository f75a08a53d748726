/* Bytes that grow: a sample as it is read, or a column as it is written. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

/* All zero at first; the caller frees data. */
struct mds_buffer {
    uint8_t *data;
    size_t bytes; /* in use */
    size_t capacity;
};

/* Room for `bytes` in all. */
enum err mds_buffer_room(struct mds_buffer *buffer, size_t bytes);
enum err mds_buffer_add(struct mds_buffer *buffer, const void *data,
                        size_t bytes);
