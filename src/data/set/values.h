/* Whole numbers of every width as tokens, whatever file they come from.
 *
 * TYPE: int8, uint8, int16, ... uint64, by the codes that Streaming's MDS has
 * for them, which are part of a data set's identity. Values are not aligned. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"

struct values {
    int type; /* its code */
    const uint8_t *data;
    int64_t count; /* 0: there are none, and nothing else is set */
};

struct values_type {
    const char *name;
    int code;
    int width; /* bytes */
    bool whole;
};

/* By its code; NULL: there is no such type. */
const struct values_type *values_type(int code);
/* By its name, "int32"; NULL: there is no such type. */
const struct values_type *values_type_named(const char *name);
/* The code of "int32" and so on; 0: no type of whole numbers. */
int values_code(const char *name);

/* One value of a type of whole numbers; of uint64 by its bits. */
int64_t values_whole(const struct values *values, int64_t i);

/* The first `count` values as tokens. ERR_DATA names the first one outside
 * [0, vocab_size), without the place. */
enum err values_tokens(const struct values *values, int64_t count,
                       int64_t vocab_size, int32_t *tokens);
