/* Bytes that grow by doubling. */
#include "src/base/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"

void buffer_free(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){ 0 };
}

enum err buffer_reserve(struct buffer *buffer, size_t more)
{
    if (more <= buffer->capacity - buffer->bytes)
        return ERR_OK;
    return array_room(&buffer->data, &buffer->capacity, buffer->bytes + more);
}

enum err buffer_add(struct buffer *buffer, const void *data, size_t bytes)
{
    TRY(buffer_reserve(buffer, bytes));
    if (bytes > 0)
        memcpy(buffer->data + buffer->bytes, data, bytes);
    buffer->bytes += bytes;
    return ERR_OK;
}
