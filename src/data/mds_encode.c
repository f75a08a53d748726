/* Encodes values for MDS columns. */
#include "src/data/mds_encode.h"

#include <assert.h>

#include "src/data/values.h"

/* Dimensions have as few bytes as the largest needs. */
static enum err mds_encode_shape(const int64_t *size, int dimensions,
                                 struct mds_buffer *out)
{
    int64_t largest = 0;
    for (int d = 0; d < dimensions; d++)
        largest = size[d] > largest ? size[d] : largest;
    unsigned k = largest < (int64_t)1 << 8    ? 0
                 : largest < (int64_t)1 << 16 ? 1
                 : largest < (int64_t)1 << 32 ? 2
                                              : 3;
    uint8_t word = (uint8_t)((unsigned)dimensions << 2 | k);
    TRY(mds_buffer_add(out, &word, 1));
    for (int d = 0; d < dimensions; d++)
        TRY(mds_buffer_add(out, &size[d], (size_t)1 << k));
    return ERR_OK;
}

enum err mds_encode_ndarray(int type, const void *values, int64_t count,
                            struct mds_buffer *out)
{
    const struct values_type *known = values_type(type);
    assert(known != NULL && values != NULL && count > 0);
    TRY(mds_encode_shape(&count, 1, out));
    return mds_buffer_add(out, values, (size_t)count * (size_t)known->width);
}
