/* snappy, by libsnappy, where the build has it: the format without frames.
 *
 * That is one block: its unpacked length as a varint, then literals and copies,
 * and no checksum. The library takes it whole, so there is an `unpack` in place
 * of steps. The length that a file claims is compared with the index's before
 * memory is touched: five bytes could ask for 4 GiB. */
#include "src/data/codec/codec_ops.h"

#ifdef CODEC_snappy
#include <snappy-c.h>

static enum err codec_snappy_unpack(const uint8_t *data, size_t bytes,
                                    uint8_t *out, size_t out_bytes)
{
    size_t claimed = 0;
    if (snappy_uncompressed_length((const char *)data, bytes, &claimed) !=
        SNAPPY_OK)
        return err_set(ERR_DATA, "is no valid snappy data");
    if (claimed != out_bytes)
        return err_set(ERR_DATA, "unpacks to %zu bytes in place of %zu",
                       claimed, out_bytes);
    if (snappy_uncompress((const char *)data, bytes, (char *)out, &claimed) !=
        SNAPPY_OK)
        return err_set(ERR_DATA, "is no valid snappy data");
    return ERR_OK;
}

const struct codec_ops codec_snappy_ops = { .unpack = codec_snappy_unpack };
#else
const struct codec_ops codec_snappy_ops = { NULL };
#endif
