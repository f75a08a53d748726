/* Encodes values for MDS columns. */
#include "src/data/mds/mds_encode.h"

#include <assert.h>

#include "src/data/set/values.h"

/* One dimension, in as few bytes as its size needs. */
static enum err mds_encode_size(int64_t size, struct buffer *out)
{
    unsigned k = size < (int64_t)1 << 8    ? 0
                 : size < (int64_t)1 << 16 ? 1
                 : size < (int64_t)1 << 32 ? 2
                                           : 3;
    uint8_t word = (uint8_t)(1u << 2 | k);
    TRY(buffer_add(out, &word, 1));
    return buffer_add(out, &size, (size_t)1 << k);
}

enum err mds_encode_ndarray(int type, const void *values, int64_t count,
                            struct buffer *out)
{
    const struct values_type *known = values_type(type);
    assert(known != NULL && values != NULL && count > 0);
    TRY(mds_encode_size(count, out));
    return buffer_add(out, values, (size_t)count * (size_t)known->width);
}
