/* Arrays and bytes that grow by doubling. Counts are int, int64_t or size_t, as the
 * structs have them: so capacities are read and written by their size, and none grows
 * beyond what its type can count. */
#include "src/base/array.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum err array_grow(void *place, size_t bytes, void *capacity,
                    size_t capacity_bytes, size_t count, const char *what)
{
    assert(bytes > 0 && count > 0);
    assert(capacity_bytes == 4 || capacity_bytes == 8);
    size_t most = capacity_bytes == 4 ? INT32_MAX : INT64_MAX;
    size_t more = count < most / 2 ? 2 * count + 8 : most;
    more = more < most ? more : most;
    void *memory, *grown = NULL;
    /* `place` is the address of a pointer of any type */
    memcpy(&memory, place, sizeof memory);
    if (count <= more && more <= SIZE_MAX / bytes)
        grown = realloc(memory, more * bytes);
    if (grown == NULL)
        return err_set(ERR_MEMORY, "out of memory: %zu times %zu bytes for %s",
                       more, bytes, what[0] == '&' ? what + 1 : what);
    memcpy(place, &grown, sizeof grown);
    if (capacity_bytes == 4)
        *(uint32_t *)capacity = (uint32_t)more;
    else
        *(uint64_t *)capacity = (uint64_t)more;
    return ERR_OK;
}

int array_order_i32(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

int array_order_i64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void buffer_free(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){ 0 };
}

enum err buffer_reserve(struct buffer *buffer, size_t more)
{
    assert(buffer->bytes <= buffer->capacity);
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
