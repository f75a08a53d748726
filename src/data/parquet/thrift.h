/* Thrift's compact protocol, in which Parquet's footers and the heads of its pages
 * are written, read where it lies. What is damaged or cut short sets `bad`: then
 * there is no next field, and values are 0. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct thrift {
    const uint8_t *at, *end;
    bool bad;
    int depth;
};

enum thrift_type {
    THRIFT_TRUE = 1,
    THRIFT_FALSE,
    THRIFT_I8,
    THRIFT_I16,
    THRIFT_I32,
    THRIFT_I64,
    THRIFT_DOUBLE,
    THRIFT_BINARY,
    THRIFT_LIST,
    THRIFT_SET,
    THRIFT_STRUCT = 12,
};

/* Zeros before the first one of a structure. */
struct thrift_field {
    int64_t id;
    int type;
};

/* The next field of a structure, whose value has to be read or skipped; false:
 * its end. */
bool thrift_next(struct thrift *thrift, struct thrift_field *field);

/* Leave the value out. */
void thrift_skip(struct thrift *thrift, const struct thrift_field *field);
/* A whole number or a truth; anything else is bad. */
int64_t thrift_int(struct thrift *thrift, const struct thrift_field *field);
struct thrift_text {
    const uint8_t *data; /* lent */
    size_t bytes;
};
/* All of a structure: number[id] of those fields below `count` that are such, its
 * last text, if it is not NULL; they stay where there is none, and what else there
 * is is left out. */
void thrift_struct(struct thrift *thrift, int64_t *number, int64_t count,
                   struct thrift_text *text);
/* How many elements of this type follow, each of them a byte at least. */
size_t thrift_list(struct thrift *thrift, const struct thrift_field *field,
                   enum thrift_type type);

/* A whole number of 7 bits a byte, the lowest first. */
uint64_t thrift_varint(struct thrift *thrift);
/* The same with its sign in the lowest bit. */
int64_t thrift_zigzag(struct thrift *thrift);
