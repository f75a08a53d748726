/* How a column of an MDS data set is written, by the names that Streaming gives
 * its encodings. Numbers:
 *
 *   ndarray[:TYPE[:N,...]]  an array; what is not given is in the sample: [u8
 *                       type code] [u8 ndim << 2 | k, then ndim dimensions of
 *                       2^k bytes] values. Those of more than one dimension are
 *                       taken row by row
 *   TYPE, int           one value a sample
 *   bytes               of tokens: values only, of a type that no one tells:
 *                       int64, as LLM Foundry has it, unless the sidecar names
 *                       another
 *
 * TYPE: int8, uint8, int16, ... uint64, float16, float32, float64. Values are
 * not aligned. Tokens are whole numbers. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "src/base/array.h"
#include "src/base/err.h"
#include "src/data/set/values.h"

#define MDS_ENCODING_VARIABLE (-1)
/* Most dimensions of an array. */
#define MDS_ENCODING_DIMENSIONS_MAX 63

enum mds_kind {
    MDS_UNKNOWN, /* a column that can be skipped but not read */
    MDS_BYTES,
    MDS_STR,
    MDS_SCALAR,
    MDS_ARRAY,
    MDS_NUMBER_TEXT, /* str_int, str_float, str_decimal */
    MDS_JSON,
    MDS_IMAGE, /* pil, jpeg, png, and several of them */
    MDS_PICKLE,
};

struct mds_encoding {
    enum mds_kind kind;
    int type;      /* of numbers, src/data/set/values.h; 0: the sample has it */
    int64_t count; /* values of a sample; 0: the sample has it */
};

/* A column_encodings entry; what is not known is MDS_UNKNOWN. */
void mds_encoding_parse(const char *text, struct mds_encoding *out);

/* Bytes of its column in every sample, or MDS_ENCODING_VARIABLE. */
int64_t mds_encoding_bytes(const struct mds_encoding *encoding);

/* ERR_DATA for what can hold no tokens. `text` is its name. */
enum err mds_encoding_check_tokens(const struct mds_encoding *encoding,
                                   const char *text);

/* Find the numbers in a sample's column of kind MDS_BYTES, MDS_SCALAR or
 * MDS_ARRAY. ERR_DATA says what is wrong, without the place. */
enum err mds_encoding_decode(const struct mds_encoding *encoding,
                             const uint8_t *data, size_t bytes,
                             struct values *out);

/* Encode for a column of an MDS data set: the bytes that Streaming's MDSWriter
 * makes, behind what `out` holds. What has no function here is its own bytes:
 * numbers of a fixed type and int (little-endian), bytes, str, jpeg, png, and
 * the texts of str_int, str_float, str_decimal and json.
 *
 * 'ndarray:TYPE': `count` > 0 values of a type of src/data/set/values.h in one
 * dimension. */
enum err mds_encode_ndarray(int type, const void *values, int64_t count,
                            struct buffer *out);
