/* Types of whole numbers, and their values as tokens. Where the values come
 * from, and which type they have, is the format's.
 *
 * Samples lie in a file at any byte, so values are copied out of it and never
 * pointed at as their type. Tokens become int32 whatever width they were stored
 * with, and all are compared with the vocabulary: an index into an embedding
 * that came from a file must not go unlooked at. int32, the common type, has a
 * way of its own without a branch. */
#include "src/data/set/values.h"

#include <assert.h>
#include <string.h>

#define VALUES_INT32 33
#define VALUES_UINT64 64

static const struct values_type values_types[] = {
    { "uint8", 8, 1, true },     { "int8", 9, 1, true },
    { "uint16", 16, 2, true },   { "int16", 17, 2, true },
    { "float16", 18, 2, false }, { "uint32", 32, 4, true },
    { "int32", 33, 4, true },    { "float32", 34, 4, false },
    { "uint64", 64, 8, true },   { "int64", 65, 8, true },
    { "float64", 66, 8, false },
};
#define VALUES_TYPES (sizeof values_types / sizeof values_types[0])

const struct values_type *values_type(int code)
{
    for (size_t t = 0; t < VALUES_TYPES; t++)
        if (values_types[t].code == code)
            return &values_types[t];
    return NULL;
}

const struct values_type *values_type_named(const char *name)
{
    for (size_t t = 0; t < VALUES_TYPES; t++)
        if (strcmp(values_types[t].name, name) == 0)
            return &values_types[t];
    return NULL;
}

int values_code(const char *name)
{
    const struct values_type *type = values_type_named(name);
    return type != NULL && type->whole ? type->code : 0;
}

int64_t values_whole(const struct values *values, int64_t i)
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
    case VALUES_INT32:
        memcpy(&value.i32, data + 4 * i, 4);
        return value.i32;
    default:
        memcpy(&value.i64, data + 8 * i, 8);
        return value.i64;
    }
}

enum err values_tokens(const struct values *values, int64_t count,
                       int64_t vocab_size, int32_t *tokens)
{
    const struct values_type *type = values_type(values->type);
    assert(type != NULL && type->whole && count >= 0);
    assert(count <= values->count && vocab_size <= INT32_MAX);
    bool inside = true;
    if (values->type == VALUES_INT32) {
        /* the sign of what is below 0 or above the last, without a branch */
        uint32_t outside = 0, last = (uint32_t)vocab_size - 1;
        memcpy(tokens, values->data, (size_t)count * sizeof *tokens);
        for (int64_t t = 0; t < count; t++)
            outside |= (uint32_t)tokens[t] | (last - (uint32_t)tokens[t]);
        inside = outside >> 31 == 0;
    } else {
        for (int64_t t = 0; t < count; t++) {
            int64_t value = values_whole(values, t);
            inside = inside && value >= 0 && value < vocab_size;
            tokens[t] = (int32_t)value;
        }
    }
    /* only where one is outside: which it is, for the message */
    for (int64_t t = 0; t < count && !inside; t++) {
        int64_t value = values_whole(values, t);
        if (value < 0 && values->type == VALUES_UINT64)
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
