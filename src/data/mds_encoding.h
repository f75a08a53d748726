/* How the column `tokens` of an MDS data set is written, and its values as
 * tokens. Whole numbers of every width are read, in these encodings:
 *
 *   ndarray[:TYPE[:N]]  an array of one dimension; what is not given is in the
 *                       sample: [u8 type code] [u8 ndim << 2 | k, then ndim
 *                       dimensions of 2^k bytes] values
 *   bytes               values only, of a type that no one tells: int64, as LLM
 *                       Foundry has it, unless the sidecar names another
 *   TYPE, int           one value a sample
 *
 * TYPE: int8, uint8, int16, ... uint64. Values are not aligned. */
#ifndef TESSERA_DATA_MDS_ENCODING_H
#define TESSERA_DATA_MDS_ENCODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

/* Streaming's code of a type is what a column of dynamic type has. */
#define MDS_TYPE_INT32 33
#define MDS_TYPE_INT64 65

struct mds_encoding {
    bool bytes;    /* without a type in the index or in the sample */
    int type;      /* code of the values; 0: the sample has it */
    int64_t count; /* values of a sample; 0: the sample has it */
};

struct mds_values {
    int type;
    const uint8_t *data;
    int64_t count; /* > 0 */
};

/* The code of "int32" and so on; 0: no type of whole numbers. */
int mds_encoding_type(const char *name);
const char *mds_encoding_type_name(int type);

/* A column_encodings entry. ERR_DATA for what can hold no tokens. */
enum err mds_encoding_parse(const char *text, struct mds_encoding *out);

/* Find the values in a sample's column. ERR_DATA says what is wrong, without
 * the place. */
enum err mds_encoding_decode(const struct mds_encoding *encoding,
                             const uint8_t *data, size_t bytes,
                             struct mds_values *out);

/* The first `count` values as tokens. ERR_DATA names the first one outside
 * [0, vocab_size), without the place. */
enum err mds_encoding_tokens(const struct mds_values *values, int64_t count,
                             int64_t vocab_size, int32_t *tokens);

#endif
