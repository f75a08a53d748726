/* How the column `tokens` of an MDS data set is written. Whole numbers of every
 * width are read, in these encodings:
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
#include "src/data/values.h"

struct mds_encoding {
    bool bytes;    /* without a type in the index or in the sample */
    int type;      /* src/data/values.h; 0: the sample has it */
    int64_t count; /* values of a sample; 0: the sample has it */
};

/* A column_encodings entry. ERR_DATA for what can hold no tokens. */
enum err mds_encoding_parse(const char *text, struct mds_encoding *out);

/* Find the values in a sample's column. ERR_DATA says what is wrong, without
 * the place. */
enum err mds_encoding_decode(const struct mds_encoding *encoding,
                             const uint8_t *data, size_t bytes,
                             struct values *out);

#endif
