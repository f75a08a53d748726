/* Encodes values for MDS columns. */
#include "src/data/mds_encode.h"

#include <assert.h>
#include <string.h>

#include "src/data/mds_encoding.h"
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

enum err mds_encode_array(const char *encoding, const struct mds_array *array,
                          struct mds_buffer *out)
{
    struct mds_encoding form;
    const struct values_type *type = values_type(array->type);
    int64_t count = 1;
    assert(type != NULL && array->dimensions > 0);
    assert(array->dimensions <= MDS_ENCODING_DIMENSIONS_MAX);
    mds_encoding_parse(encoding, &form);
    for (int d = 0; d < array->dimensions; d++)
        count *= array->size[d];
    if (form.kind != MDS_ARRAY || (form.type != 0 && form.type != type->code) ||
        (form.count != 0 && form.count != count))
        return err_set(ERR_USAGE, "an array of %lld %s values is no '%.60s'",
                       (long long)count, type->name, encoding);
    uint8_t code = (uint8_t)type->code;
    if (form.type == 0)
        TRY(mds_buffer_add(out, &code, 1));
    if (form.count == 0)
        TRY(mds_encode_shape(array->size, array->dimensions, out));
    return mds_buffer_add(out, array->values,
                          (size_t)count * (size_t)type->width);
}

enum err mds_encode_ndarray(int type, const void *values, int64_t count,
                            struct mds_buffer *out)
{
    const struct values_type *known = values_type(type);
    assert(known != NULL && values != NULL && count > 0);
    TRY(mds_encode_shape(&count, 1, out));
    return mds_buffer_add(out, values, (size_t)count * (size_t)known->width);
}

enum err mds_encode_pil(uint32_t width, uint32_t height, const char *mode,
                        const void *pixels, size_t bytes,
                        struct mds_buffer *out)
{
    uint32_t head[3] = { width, height, (uint32_t)strlen(mode) };
    TRY(mds_buffer_add(out, head, sizeof head));
    TRY(mds_buffer_add(out, mode, strlen(mode)));
    return mds_buffer_add(out, pixels, bytes);
}

enum err mds_encode_images(const char *encoding, const uint32_t *bytes,
                           uint32_t count, const void *data,
                           struct mds_buffer *out)
{
    const uint32_t reserved = 0; /* lists begin with a word for later use */
    size_t sum = 0;
    if (strncmp(encoding, "list", 4) == 0)
        TRY(mds_buffer_add(out, &reserved, sizeof reserved));
    TRY(mds_buffer_add(out, &count, sizeof count));
    for (uint32_t i = 0; i < count; i++) {
        TRY(mds_buffer_add(out, &bytes[i], sizeof bytes[i]));
        sum += bytes[i];
    }
    return mds_buffer_add(out, data, sum);
}
