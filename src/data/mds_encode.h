/* Encode values for a column of an MDS data set: the bytes that Streaming's
 * MDSWriter makes. Each puts them behind what `out` holds. What has no function
 * here is its own bytes: numbers of a fixed type and int (little-endian), bytes,
 * str, jpeg, png, and the texts of str_int, str_float, str_decimal and json. */
#ifndef TESSERA_DATA_MDS_ENCODE_H
#define TESSERA_DATA_MDS_ENCODE_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/mds_buffer.h"

/* 'ndarray:TYPE': `count` > 0 values of a type of src/data/values.h in one
 * dimension. */
enum err mds_encode_ndarray(int type, const void *values, int64_t count,
                            struct mds_buffer *out);

/* Any 'ndarray': its type and shape, where the encoding does not have them.
 * size[dimensions], 0 < dimensions < 64, all > 0. */
struct mds_array {
    int type;
    int dimensions;
    const int64_t *size;
    const void *values; /* row by row */
};
enum err mds_encode_array(const char *encoding, const struct mds_array *array,
                          struct mds_buffer *out);

/* 'pil': an image of a mode of Pillow, "RGB", and its pixels. */
enum err mds_encode_pil(uint32_t width, uint32_t height, const char *mode,
                        const void *pixels, size_t bytes,
                        struct mds_buffer *out);

/* 'list[pil]', 'list[jpeg]', 'list[png]' and 'jpeg_array': images that were
 * encoded before, one behind the other in `data`. */
enum err mds_encode_images(const char *encoding, const uint32_t *bytes,
                           uint32_t count, const void *data,
                           struct mds_buffer *out);

#endif
