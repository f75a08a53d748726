/* What the parts of the Parquet reader (parquet.c) share: the footer (parquet_meta.c), a
 * column's pages and values (parquet_column.c), and numbers as they are packed
 * (parquet_runs.c, with the protocol that footers and heads are written in). */
#pragma once

#include "src/base/array.h"
#include "src/data/columns/columns_format.h"

/* --- Thrift's compact protocol, in which Parquet's footers and the heads of its pages
 * are written, read where it lies. What is damaged or cut short sets `bad`: then
 * there is no next field, and values are 0. --- */

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

/* --- the reader --- */

/* No page is larger, packed or not. */
#define PARQUET_PAGE_BYTES_MAX ((int64_t)512 << 20)

/* The part of a column that a row group has. */
struct parquet_chunk {
    int64_t begin, end; /* in the file */
    int64_t values, codec;
};

struct parquet_meta {
    struct columns_file file;
    int64_t bytes; /* of the file before the footer */
    struct buffer footer;
    struct parquet_chunk *chunk; /* [groups][columns chosen] */
};

/* Open a file, in zeros, and read which columns it has; _choose: where some lie. */
enum err parquet_meta_open(const char *path, struct parquet_meta *meta);
enum err parquet_meta_choose(struct parquet_meta *meta,
                             const struct columns_leaf *const *chosen,
                             size_t count);

/* RLE: runs of one number, or of numbers of `width` bits one behind the other. */
struct parquet_runs {
    struct thrift bytes; /* what is left of them */
    int width;           /* up to 32 */
    uint64_t left;       /* numbers of the run at hand */
    bool packed;
    uint32_t value;
    uint64_t bits; /* read and not yet given, `have` of them */
    int have;
};

/* The next one; 0 where there is none, which sets bytes.bad. */
uint32_t parquet_runs_next(struct parquet_runs *runs);

struct parquet_lengths {
    uint32_t *length;
    size_t count, capacity;
};

/* DELTA_BINARY_PACKED: at most `most` of them. ERR_DATA without the place. */
enum err parquet_runs_lengths(struct thrift *bytes, size_t most,
                              struct parquet_lengths *out);

struct parquet_column {
    const struct parquet_meta *meta; /* lent, as is the leaf */
    const struct columns_leaf *leaf;
    /* what of a row group's is left, which begins with no values and entries */
    struct parquet_chunk chunk;
    struct buffer head, packed, page, dictionary;
    struct thrift_text *entry; /* of the dictionary */
    size_t entries, entries_capacity;
    /* the page at hand */
    int64_t values; /* left */
    int64_t encoding;
    struct parquet_runs repeated, defined, places;
    struct thrift data;
    struct parquet_lengths lengths, prefixes; /* of the delta encodings */
    size_t at;                                /* of them */
    struct buffer last; /* text, of which the next one has a beginning */
};

void parquet_column_release(struct parquet_column *column);
/* *more false: the row group's end. */
enum err parquet_column_next(struct parquet_column *column,
                             struct columns_value *out, bool *more);
