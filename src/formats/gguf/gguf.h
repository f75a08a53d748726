/* GGUF files, the format of ggml and llama.cpp, versions 2 and 3: keys with
 * values, then tensors. Read-only and checked as a whole when opened: every
 * count, length and offset lies in the file, no two tensors overlap, no name is
 * there twice. Whatever is not so is ERR_DATA with the file and the place.
 *
 * Keys, values and names lie in memory, as they are in the file (at most
 * GGUF_HEAD_BYTES_MAX); tensors are read in pieces. Several threads may read at
 * once. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/fsio.h"
#include "src/formats/gguf/gguf_blocks.h"

#define GGUF_MAGIC "GGUF"
#define GGUF_VERSION 3
#define GGUF_ALIGNMENT 32 /* where a file has no general.alignment */
#define GGUF_ALIGNMENT_KEY "general.alignment"
#define GGUF_DIMS_MAX 4
#define GGUF_NAME_BYTES_MAX 65535
#define GGUF_HEAD_BYTES_MAX ((uint64_t)256 << 20)
#define GGUF_NESTED_MAX 4 /* arrays in arrays */

/* Kinds of values; the numbers are those of files. */
enum gguf_kind {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12,
    GGUF_KINDS
};

/* Bytes of a number or bool; 0 for strings and arrays. */
size_t gguf_kind_bytes(enum gguf_kind kind);

/* A value, lent by the file: */
struct gguf_value {
    enum gguf_kind kind;
    enum gguf_kind item; /* of an array */
    const uint8_t *data; /* the number, the string, or the first item */
    uint64_t count;      /* 1, bytes of the string, or items of the array */
};

struct gguf_tensor {
    const char *name;
    enum gguf_blocks_type type;
    unsigned dims;
    uint64_t dim[GGUF_DIMS_MAX]; /* fastest first; 1 behind the last */
    uint64_t numbers, blocks, bytes;
    uint64_t offset; /* in the file */
};

/* A key; as a tensor, it begins with its name. */
struct gguf_key {
    const char *name;
    struct gguf_value value;
};

/* Read only. What `key` and `tensor` lend is in the order of the file. */
struct gguf {
    char path[FSIO_PATH_MAX];
    struct gguf_key *key;
    struct gguf_tensor *tensor;
    size_t keys, tensors;
    /* of gguf.c and gguf_head.c: */
    int fd;
    uint64_t file_bytes;
    uint8_t *data; /* the file's beginning */
    size_t at, read, capacity;
    uint32_t version;
    uint64_t alignment;
    const void **key_order, **tensor_order; /* pointers to them, by name */
};

enum err gguf_open(const char *path, struct gguf **out);
void gguf_close(struct gguf *gguf);

/* By name; NULL: there is none. */
const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf,
                                           const char *name);

/* The value of a key. ERR_DATA names the key: it is not there, or of another
 * kind. get_count takes any kind of whole number that is not negative, get_real
 * any kind of number. A string is not ended by a NUL. */
enum err gguf_get_count(const struct gguf *gguf, const char *key,
                        uint64_t *out);
enum err gguf_get_real(const struct gguf *gguf, const char *key, double *out);
enum err gguf_get_bool(const struct gguf *gguf, const char *key, bool *out);
enum err gguf_get_string(const struct gguf *gguf, const char *key,
                         const char **out, size_t *bytes);
/* An array with items of this kind. */
enum err gguf_get_array(const struct gguf *gguf, const char *key,
                        enum gguf_kind item, struct gguf_value *out);

/* A value that is a whole number; false: it is none. */
bool gguf_value_whole(const struct gguf_value *value, int64_t *out);
/* Take the next item off an array; false: none is left. */
bool gguf_value_next(struct gguf_value *array, struct gguf_value *item);

/* `count` blocks of a tensor from block `first` on, as floats; first + count <=
 * blocks. `scratch` holds the blocks' bytes. */
enum err gguf_read_floats(const struct gguf *gguf,
                          const struct gguf_tensor *tensor, uint64_t first,
                          size_t count, void *scratch, float *out);

/* Rotary position embedding turns pairs of rows of a head's q and k. Files of
 * the Llama family have the rows of a pair beside each other (0 1, 2 3, ..),
 * Hugging Face has the first rows of all pairs in the head's first half. Where
 * a row of one is in the other; head_dim is even. */
uint64_t gguf_row_to_halves(uint64_t row, uint64_t head_dim);
uint64_t gguf_row_to_pairs(uint64_t row, uint64_t head_dim);
