#include "src/data/mds_encoding.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MDS_ENCODING_ARRAY "ndarray"
/* No sample is larger: a shard's offsets have 32 bits. */
#define MDS_ENCODING_COUNT_MAX ((long long)UINT32_MAX)

static const struct mds_type {
    const char *name;
    int code;
    int bytes; /* 0: not whole numbers */
} mds_types[] = {
    { "uint8", 8, 1 },  { "int8", 9, 1 },     { "uint16", 16, 2 },
    { "int16", 17, 2 }, { "float16", 18, 0 }, { "uint32", 32, 4 },
    { "int32", 33, 4 }, { "float32", 34, 0 }, { "uint64", 64, 8 },
    { "int64", 65, 8 }, { "float64", 66, 0 },
};
#define MDS_TYPES (sizeof mds_types / sizeof mds_types[0])

static const struct mds_type *mds_type_of_code(int code)
{
    for (size_t t = 0; t < MDS_TYPES; t++)
        if (mds_types[t].code == code)
            return &mds_types[t];
    return NULL;
}

int mds_encoding_type(const char *name)
{
    for (size_t t = 0; t < MDS_TYPES; t++)
        if (mds_types[t].bytes > 0 && strcmp(mds_types[t].name, name) == 0)
            return mds_types[t].code;
    return 0;
}

const char *mds_encoding_type_name(int type)
{
    const struct mds_type *known = mds_type_of_code(type);
    return known != NULL ? known->name : "unknown";
}

/* ":int32:8", ":int32" or "" behind "ndarray". */
static bool mds_encoding_parse_array(const char *text, struct mds_encoding *out)
{
    char name[16] = "";
    char *end = NULL;
    if (text[0] == '\0')
        return true;
    size_t length = strcspn(text + 1, ":");
    if (text[0] != ':' || length >= sizeof name)
        return false;
    memcpy(name, text + 1, length);
    out->type = mds_encoding_type(name);
    text += 1 + length;
    if (out->type == 0 || text[0] == '\0')
        return out->type != 0;
    if (text[1] < '0' || text[1] > '9')
        return false;
    long long count = strtoll(text + 1, &end, 10);
    out->count = count;
    return *end == '\0' && count > 0 && count <= MDS_ENCODING_COUNT_MAX;
}

enum err mds_encoding_parse(const char *text, struct mds_encoding *out)
{
    size_t array = sizeof MDS_ENCODING_ARRAY - 1;
    bool valid = true;
    *out = (struct mds_encoding){ 0 };
    if (strncmp(text, MDS_ENCODING_ARRAY, array) == 0) {
        valid = mds_encoding_parse_array(text + array, out);
    } else if (strcmp(text, "bytes") == 0) {
        out->bytes = true;
        out->type = MDS_TYPE_INT64;
    } else {
        out->type =
            mds_encoding_type(strcmp(text, "int") == 0 ? "int64" : text);
        out->count = 1;
        valid = out->type != 0;
    }
    if (!valid)
        return err_set(ERR_DATA,
                       "column 'tokens' is '%.60s'; it has to be an array of "
                       "whole numbers in one dimension, such as "
                       "'ndarray:int32', or 'bytes'",
                       text);
    return ERR_OK;
}

/* Strip the shape; *count is what it says. */
static enum err mds_encoding_shape(const uint8_t **data, size_t *bytes,
                                   uint64_t *count)
{
    if (*bytes < 1)
        return err_set(ERR_DATA, "is damaged: its shape is missing");
    int dimensions = (*data)[0] >> 2;
    size_t width = (size_t)1 << ((*data)[0] & 3);
    if (dimensions != 1)
        return err_set(ERR_DATA,
                       "its tokens are an array of %d dimensions; write them "
                       "as an array of one",
                       dimensions);
    if (*bytes < 1 + width)
        return err_set(ERR_DATA, "is damaged: its shape is cut off");
    *count = 0;
    memcpy(count, *data + 1, width);
    *data += 1 + width;
    *bytes -= 1 + width;
    return ERR_OK;
}

enum err mds_encoding_decode(const struct mds_encoding *encoding,
                             const uint8_t *data, size_t bytes,
                             struct mds_values *out)
{
    int code = encoding->type;
    if (code == 0) {
        if (bytes < 1)
            return err_set(ERR_DATA, "is damaged: its type is missing");
        code = data[0];
        data++;
        bytes--;
    }
    const struct mds_type *type = mds_type_of_code(code);
    if (type == NULL)
        return err_set(ERR_DATA, "is damaged: there is no type %d", code);
    if (type->bytes == 0)
        return err_set(ERR_DATA,
                       "its tokens are %s; they have to be whole numbers",
                       type->name);
    size_t width = (size_t)type->bytes;
    uint64_t count = (uint64_t)encoding->count;
    if (encoding->bytes)
        count = bytes / width;
    else if (count == 0)
        TRY(mds_encoding_shape(&data, &bytes, &count));
    if (bytes % width != 0 && encoding->bytes)
        return err_set(ERR_DATA,
                       "its %zu bytes are no %s values; name their type with "
                       "tessera-data adopt --token-type",
                       bytes, type->name);
    if (count == 0 || bytes % width != 0 || count != bytes / width)
        return err_set(ERR_DATA, "is damaged: its shape does not agree with "
                                 "its size");
    *out = (struct mds_values){ code, data, (int64_t)count };
    return ERR_OK;
}

/* A value of any type; those above INT64_MAX are negative. */
static int64_t mds_encoding_value(const struct mds_values *values, int64_t i)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        int64_t i64;
    } value;
    const uint8_t *data = values->data;
    switch (values->type) {
    case 8:
        return data[i];
    case 9:
        memcpy(&value.i8, data + i, 1);
        return value.i8;
    case 16:
        memcpy(&value.u16, data + 2 * i, 2);
        return value.u16;
    case 17:
        memcpy(&value.i16, data + 2 * i, 2);
        return value.i16;
    case 32:
        memcpy(&value.u32, data + 4 * i, 4);
        return value.u32;
    case MDS_TYPE_INT32:
        memcpy(&value.i32, data + 4 * i, 4);
        return value.i32;
    default:
        memcpy(&value.i64, data + 8 * i, 8);
        return value.i64;
    }
}

enum err mds_encoding_tokens(const struct mds_values *values, int64_t count,
                             int64_t vocab_size, int32_t *tokens)
{
    assert(count <= values->count && vocab_size <= INT32_MAX);
    bool inside = true;
    if (values->type == MDS_TYPE_INT32) {
        int outside = 0; /* without a branch, for vectors */
        memcpy(tokens, values->data, (size_t)count * sizeof *tokens);
        for (int64_t t = 0; t < count; t++)
            outside |= (uint32_t)tokens[t] >= (uint32_t)vocab_size;
        inside = outside == 0;
    } else {
        for (int64_t t = 0; t < count; t++) {
            int64_t value = mds_encoding_value(values, t);
            inside = inside && value >= 0 && value < vocab_size;
            tokens[t] = (int32_t)value;
        }
    }
    for (int64_t t = 0; t < count && !inside; t++) {
        int64_t value = mds_encoding_value(values, t);
        if (value < 0 && values->type == 64)
            return err_set(ERR_DATA,
                           "token %llu at position %lld is outside the "
                           "vocabulary [0, %lld)",
                           (unsigned long long)value, (long long)t,
                           (long long)vocab_size);
        if (value < 0 || value >= vocab_size)
            return err_set(ERR_DATA,
                           "token %lld at position %lld is outside the "
                           "vocabulary [0, %lld)",
                           (long long)value, (long long)t,
                           (long long)vocab_size);
    }
    return ERR_OK;
}
