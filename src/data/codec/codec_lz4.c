/* lz4, the block without a frame, as Parquet has it, read by code of our own: a
 * byte with two lengths of 4 bits, more of the first, so many bytes as they are,
 * two bytes that say how far back a copy begins, more of its length. The last one
 * has no copy. There is no checksum. */
#include "src/data/codec/codec_ops.h"

static enum err lz4_wrong(void)
{
    return err_set(ERR_DATA, "is no valid lz4 data");
}

/* A length of 15 has more behind it, up to a byte that is not 255. */
static size_t lz4_length(const uint8_t *data, size_t bytes, size_t *at,
                         size_t length)
{
    while (length >= 15 && *at < bytes) {
        length += data[*at];
        if (data[(*at)++] != 255)
            break;
    }
    return length;
}

static enum err codec_lz4_unpack(const uint8_t *data, size_t bytes,
                                 uint8_t *out, size_t out_bytes)
{
    size_t at = 0, done = 0;
    while (at < bytes) {
        uint8_t token = data[at++];
        size_t length = lz4_length(data, bytes, &at, token >> 4);
        if (length > bytes - at || length > out_bytes - done)
            return lz4_wrong();
        if (length > 0)
            memcpy(out + done, data + at, length);
        at += length;
        done += length;
        if (at == bytes)
            break;
        if (bytes - at < 2)
            return lz4_wrong();
        size_t back = (size_t)data[at] | (size_t)data[at + 1] << 8;
        at += 2;
        length = lz4_length(data, bytes, &at, token & 0xf) + 4;
        if (back == 0 || back > done || length > out_bytes - done)
            return lz4_wrong();
        codec_copy(out + done, back, length, out_bytes - done);
        done += length;
    }
    return done == out_bytes ? ERR_OK : lz4_wrong();
}

const struct codec_ops codec_lz4_ops = { .unpack = codec_lz4_unpack };
