/* snappy, the format without frames, read by code of our own.
 *
 * That is one block: its unpacked length as a varint, then literals and copies of
 * what came out before, and no checksum. It is taken whole, so there is an
 * `unpack` in place of steps. The length that a file claims is compared with the
 * index's before memory is touched: five bytes could ask for 4 GiB. */
#include "src/data/codec/codec_ops.h"

static enum err snappy_wrong(void)
{
    return err_set(ERR_DATA, "is no valid snappy data");
}

/* The next `bytes` as a number, the lowest first. */
static size_t snappy_number(const uint8_t *data, size_t bytes)
{
    size_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (size_t)data[i] << 8 * i;
    return value;
}

static enum err codec_snappy_unpack(const uint8_t *data, size_t bytes,
                                    uint8_t *out, size_t out_bytes)
{
    size_t at = 0, done = 0, claimed = 0;
    do { /* 7 bits a byte */
        if (at == 5 || at == bytes)
            return snappy_wrong();
        claimed |= (size_t)(data[at] & 0x7f) << 7 * at;
    } while (data[at++] >= 0x80);
    if (claimed != out_bytes)
        return err_set(ERR_DATA, "unpacks to %zu bytes in place of %zu",
                       claimed, out_bytes);
    while (at < bytes) {
        uint8_t tag = data[at++];
        size_t kind = tag & 3, length = (size_t)(tag >> 2) + 1;
        /* bytes of the length of a long literal, or of the distance of a copy */
        size_t extra = kind != 0     ? (size_t)1 << (kind - 1)
                       : length > 60 ? length - 60
                                     : 0;
        if (extra > bytes - at)
            return snappy_wrong();
        size_t number = snappy_number(data + at, extra);
        at += extra;
        if (kind == 0) {
            length = extra > 0 ? number + 1 : length;
            if (length > bytes - at || length > out_bytes - done)
                return snappy_wrong();
            if (length <= 16 && bytes - at >= 16 && out_bytes - done >= 16)
                memcpy(out + done, data + at, 16);
            else
                memcpy(out + done, data + at, length);
            at += length;
            done += length;
            continue;
        }
        if (kind == 1) {
            length = (size_t)(tag >> 2 & 7) + 4;
            number |= (size_t)(tag >> 5) << 8;
        }
        if (number == 0 || number > done || length > out_bytes - done)
            return snappy_wrong();
        codec_copy(out + done, number, length, out_bytes - done);
        done += length;
    }
    return done == out_bytes ? ERR_OK : snappy_wrong();
}

const struct codec_ops codec_snappy_ops = { .unpack = codec_snappy_unpack };
