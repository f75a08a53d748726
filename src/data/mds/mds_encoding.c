/* Reads the name of a column's encoding, and finds the numbers in a sample's
 * bytes.
 *
 * What is said of an array once, in the encoding's name, is not in the samples:
 *
 *   ndarray:int32:8,16   the values alone; their size is fixed
 *   ndarray:int32        a shape before them: u8 dimensions << 2 | k, then each
 *                        dimension in 2^k bytes, as few as all of them fit in
 *   ndarray              a u8 for the type before the shape
 *
 * So the common tokens of one dimension begin with 5 (1 << 2 | 1: a size of two
 * bytes), unless there are fewer than 256 of them. Sizes are compared with the
 * bytes that are there, never the other way round: a shape may claim anything.
 */
#include "src/data/mds/mds_encoding.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MDS_ENCODING_ARRAY "ndarray"
/* No sample is larger: a shard's offsets have 32 bits. */
#define MDS_ENCODING_COUNT_MAX ((uint64_t)UINT32_MAX)

/* "8,16" */
static bool mds_encoding_parse_shape(const char *text, int64_t *count)
{
    uint64_t product = 1;
    for (int d = 0; d < MDS_ENCODING_DIMENSIONS_MAX; d++) {
        char *end = NULL;
        if (text[0] < '0' || text[0] > '9')
            return false;
        unsigned long long size = strtoull(text, &end, 10);
        if (size == 0 || size > MDS_ENCODING_COUNT_MAX)
            return false;
        /* both are below 2^32, so the product cannot overflow */
        product *= size;
        if (product > MDS_ENCODING_COUNT_MAX)
            return false;
        *count = (int64_t)product;
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
        text = end + 1;
    }
    return false;
}

/* ":int32:8,16", ":int32" or "" behind "ndarray". */
static bool mds_encoding_parse_array(const char *text, struct mds_encoding *out)
{
    char name[16] = "";
    if (text[0] == '\0')
        return true;
    size_t length = strcspn(text + 1, ":");
    if (text[0] != ':' || length >= sizeof name)
        return false;
    memcpy(name, text + 1, length);
    const struct values_type *type = values_type_named(name);
    if (type == NULL)
        return false;
    out->type = type->code;
    text += 1 + length;
    return text[0] == '\0' || mds_encoding_parse_shape(text + 1, &out->count);
}

static enum mds_kind mds_encoding_kind(const char *text)
{
    static const struct {
        const char *name;
        enum mds_kind kind;
    } known[] = {
        { "bytes", MDS_BYTES },             /* as they are */
        { "str", MDS_STR },                 /* UTF-8 */
        { "str_int", MDS_NUMBER_TEXT },     /* "-12" */
        { "str_float", MDS_NUMBER_TEXT },   /* "1e-05" */
        { "str_decimal", MDS_NUMBER_TEXT }, /* "0.10" */
        { "json", MDS_JSON },               /* any value */
        { "pil", MDS_IMAGE },               /* mode, size, pixels */
        { "jpeg", MDS_IMAGE },
        { "png", MDS_IMAGE },
        { "jpeg_array", MDS_IMAGE },
        { "jpegarray", MDS_IMAGE },
        { "list[pil]", MDS_IMAGE },
        { "list[jpeg]", MDS_IMAGE },
        { "list[png]", MDS_IMAGE },
        { "pkl", MDS_PICKLE },
    };
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
        if (strcmp(known[k].name, text) == 0)
            return known[k].kind;
    return MDS_UNKNOWN;
}

void mds_encoding_parse(const char *text, struct mds_encoding *out)
{
    size_t array = sizeof MDS_ENCODING_ARRAY - 1;
    const struct values_type *type =
        values_type_named(strcmp(text, "int") == 0 ? "int64" : text);
    *out = (struct mds_encoding){ .kind = mds_encoding_kind(text) };
    if (type != NULL) {
        *out = (struct mds_encoding){ MDS_SCALAR, type->code, 1 };
    } else if (strncmp(text, MDS_ENCODING_ARRAY, array) == 0) {
        out->kind = MDS_ARRAY;
        if (!mds_encoding_parse_array(text + array, out))
            *out = (struct mds_encoding){ .kind = MDS_UNKNOWN };
    } else if (out->kind == MDS_BYTES) {
        out->type = values_code("int64");
    }
}

int64_t mds_encoding_bytes(const struct mds_encoding *encoding)
{
    const struct values_type *type = values_type(encoding->type);
    if (type == NULL || encoding->count == 0)
        return MDS_ENCODING_VARIABLE;
    return type->width * encoding->count;
}

enum err mds_encoding_check_tokens(const struct mds_encoding *encoding,
                                   const char *text)
{
    const struct values_type *type = values_type(encoding->type);
    bool whole = type == NULL || type->whole;
    if (encoding->kind == MDS_BYTES ||
        ((encoding->kind == MDS_SCALAR || encoding->kind == MDS_ARRAY) &&
         whole))
        return ERR_OK;
    return err_set(ERR_DATA,
                   "column 'tokens' is '%.60s'%s; it has to be an array of "
                   "whole numbers, such as 'ndarray:int32', or 'bytes'",
                   text,
                   encoding->kind == MDS_PICKLE
                       ? ", a pickle, which runs what program its writer put "
                         "into it and is never read"
                       : "");
}

/* Strip the shape; *count is what it says. */
static enum err mds_encoding_shape(const uint8_t **data, size_t *bytes,
                                   uint64_t *count)
{
    if (*bytes < 1)
        return err_set(ERR_DATA, "is damaged: its shape is missing");
    size_t dimensions = (*data)[0] >> 2;
    size_t width = (size_t)1 << ((*data)[0] & 3);
    if (*bytes < 1 + dimensions * width)
        return err_set(ERR_DATA, "is damaged: its shape is cut off");
    if (dimensions == 0)
        return err_set(ERR_DATA, "is damaged: its shape has no dimension");
    *count = 1;
    for (size_t d = 0; d<dimensions && * count> 0; d++) {
        uint64_t size = 0;
        memcpy(&size, *data + 1 + d * width, width);
        if (size > MDS_ENCODING_COUNT_MAX ||
            size * *count > MDS_ENCODING_COUNT_MAX)
            return err_set(ERR_DATA, "is damaged: its shape is larger than "
                                     "any shard");
        *count *= size;
    }
    *data += 1 + dimensions * width;
    *bytes -= 1 + dimensions * width;
    return ERR_OK;
}

enum err mds_encoding_decode(const struct mds_encoding *encoding,
                             const uint8_t *data, size_t bytes,
                             struct values *out)
{
    assert(encoding != NULL && out != NULL);
    int code = encoding->type;
    assert(encoding->kind == MDS_BYTES || encoding->kind == MDS_SCALAR ||
           encoding->kind == MDS_ARRAY);
    /* the type is in the sample, or known already */
    if (code == 0) {
        if (bytes < 1)
            return err_set(ERR_DATA, "is damaged: its type is missing");
        code = data[0];
        data++;
        bytes--;
    }
    const struct values_type *type = values_type(code);
    if (type == NULL)
        return err_set(ERR_DATA, "is damaged: there is no type %d", code);
    size_t width = (size_t)type->width;
    uint64_t count = (uint64_t)encoding->count;
    if (encoding->kind == MDS_BYTES)
        count = bytes / width;
    else if (count == 0)
        TRY(mds_encoding_shape(&data, &bytes, &count));
    if (bytes % width != 0 && encoding->kind == MDS_BYTES)
        return err_set(ERR_DATA,
                       "its %zu bytes are no %s values; name their type with "
                       "tessera-data adopt --token-type",
                       bytes, type->name);
    /* what the shape or the name says has to fill the bytes exactly */
    if (count == 0 || bytes % width != 0 || count != bytes / width)
        return err_set(ERR_DATA, "is damaged: its shape does not agree with "
                                 "its size");
    *out = (struct values){ code, data, (int64_t)count };
    return ERR_OK;
}

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
