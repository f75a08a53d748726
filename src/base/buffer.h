/* Bytes that grow. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

/* Zeros: an empty one. The memory stays when `bytes` is set back. */
struct buffer {
    uint8_t *data;
    size_t bytes, capacity;
};

void buffer_free(struct buffer *buffer);
/* Room for `more` bytes behind those that are there. */
enum err buffer_reserve(struct buffer *buffer, size_t more);
enum err buffer_add(struct buffer *buffer, const void *data, size_t bytes);
