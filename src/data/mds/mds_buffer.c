/* Bytes that grow. */
#include "src/data/mds/mds_buffer.h"

#include <stdlib.h>
#include <string.h>

enum err mds_buffer_room(struct mds_buffer *buffer, size_t bytes)
{
    if (bytes <= buffer->capacity)
        return ERR_OK;
    size_t capacity = bytes;
    if (buffer->capacity > 0 && bytes < SIZE_MAX / 2)
        capacity += bytes / 2;
    uint8_t *grown = realloc(buffer->data, capacity);
    if (grown == NULL)
        return err_set(ERR_MEMORY, "no memory for %zu bytes of a data set",
                       capacity);
    buffer->data = grown;
    buffer->capacity = capacity;
    return ERR_OK;
}

enum err mds_buffer_add(struct mds_buffer *buffer, const void *data,
                        size_t bytes)
{
    TRY(mds_buffer_room(buffer, buffer->bytes + bytes));
    if (bytes > 0)
        memcpy(buffer->data + buffer->bytes, data, bytes);
    buffer->bytes += bytes;
    return ERR_OK;
}
