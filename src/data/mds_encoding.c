/* Reads the name of a column's encoding, and turns a sample's bytes into
 * tokens. */
#include "src/data/mds_encoding.h"

#include <stdlib.h>
#include <string.h>

#define MDS_ENCODING_ARRAY "ndarray"
/* No sample is larger: a shard's offsets have 32 bits. */
#define MDS_ENCODING_COUNT_MAX ((long long)UINT32_MAX)

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
    out->type = values_code(name);
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
        out->type = values_code("int64");
    } else {
        out->type = values_code(strcmp(text, "int") == 0 ? "int64" : text);
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
                             struct values *out)
{
    int code = encoding->type;
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
    if (type->width == 0)
        return err_set(ERR_DATA,
                       "its tokens are %s; they have to be whole numbers",
                       type->name);
    size_t width = (size_t)type->width;
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
    *out = (struct values){ code, data, (int64_t)count };
    return ERR_OK;
}
