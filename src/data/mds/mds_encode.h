/* Encode values for a column of an MDS data set: the bytes that Streaming's
 * MDSWriter makes. Each puts them behind what `out` holds. What has no function
 * here is its own bytes: numbers of a fixed type and int (little-endian), bytes,
 * str, jpeg, png, and the texts of str_int, str_float, str_decimal and json. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/base/buffer.h"

/* 'ndarray:TYPE': `count` > 0 values of a type of src/data/set/values.h in one
 * dimension. */
enum err mds_encode_ndarray(int type, const void *values, int64_t count,
                            struct buffer *out);
