/* Bytes that grow by doubling. */
#include "src/text/buffer.h"

#include <stdlib.h>
#include <string.h>

void buffer_free(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){ 0 };
}

enum err buffer_reserve(struct buffer *buffer, size_t more)
{
    if (more <= buffer->capacity - buffer->bytes)
        return ERR_OK;
    size_t capacity = 2 * (buffer->bytes + more);
    uint8_t *data = realloc(buffer->data, capacity);
    if (data == NULL)
        return err_set(ERR_MEMORY, "no memory for %zu bytes of text", capacity);
    buffer->data = data;
    buffer->capacity = capacity;
    return ERR_OK;
}

enum err buffer_add(struct buffer *buffer, const void *data, size_t bytes)
{
    TRY(buffer_reserve(buffer, bytes));
    if (bytes > 0)
        memcpy(buffer->data + buffer->bytes, data, bytes);
    buffer->bytes += bytes;
    return ERR_OK;
}
