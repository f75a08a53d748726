/* Compressions that are one block, without a frame and a checksum, read by code of our
 * own: snappy as Streaming has it, lz4 as Parquet and Arrow. A block is taken whole, so
 * there is an `unpack` in place of steps.
 *
 * snappy: the unpacked length as a varint, then literals and copies of what came out
 * before. The length that a file claims is compared with the index's before memory is
 * touched: five bytes could ask for 4 GiB. lz4: a byte with two lengths of 4 bits, more
 * of the first, so many bytes as they are, two bytes that say how far back a copy
 * begins, more of its length; the last one has no copy. Arrow has such blocks in a frame,
 * each behind its length, with bit 31 where it is not packed; a copy may go back into
 * those before. Sums in it are not looked at. */
#include <string.h>

#include "src/data/codec/codec.h"

static enum err codec_wrong(const char *name)
{
    return err_set(ERR_DATA, "is no valid %s data", name);
}

/* `bytes` of what came out `back` bytes before, which may be what this makes; there
 * is `room` for so many. Most are short: eight at a time, beyond their end where
 * that is room. */
static void codec_copy(uint8_t *out, size_t back, size_t bytes, size_t room)
{
    for (size_t i = 0; back >= 8 && bytes + 8 <= room; i += 8) {
        if (i >= bytes)
            return;
        memcpy(out + i, out + i - back, 8);
    }
    for (; bytes > back; bytes -= back, out += back, back *= 2)
        memcpy(out, out - back, back);
    memcpy(out, out - back, bytes);
}

/* The next `bytes` as a number, the lowest first. */
static size_t codec_number(const uint8_t *data, size_t bytes)
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
            return codec_wrong("snappy");
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
            return codec_wrong("snappy");
        size_t number = codec_number(data + at, extra);
        at += extra;
        if (kind == 0) {
            length = extra > 0 ? number + 1 : length;
            if (length > bytes - at || length > out_bytes - done)
                return codec_wrong("snappy");
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
            return codec_wrong("snappy");
        codec_copy(out + done, number, length, out_bytes - done);
        done += length;
    }
    return done == out_bytes ? ERR_OK : codec_wrong("snappy");
}

const struct codec_ops codec_snappy_ops = { .unpack = codec_snappy_unpack };

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

/* A block, behind *done bytes that are there. */
static enum err lz4_block(const uint8_t *data, size_t bytes, uint8_t *out,
                          size_t *place, size_t out_bytes)
{
    size_t at = 0, done = *place;
    while (at < bytes) {
        uint8_t token = data[at++];
        size_t length = lz4_length(data, bytes, &at, token >> 4);
        if (length > bytes - at || length > out_bytes - done)
            return codec_wrong("lz4");
        if (length > 0)
            memcpy(out + done, data + at, length);
        at += length;
        done += length;
        if (at == bytes)
            break;
        if (bytes - at < 2)
            return codec_wrong("lz4");
        size_t back = (size_t)data[at] | (size_t)data[at + 1] << 8;
        at += 2;
        length = lz4_length(data, bytes, &at, token & 0xf) + 4;
        if (back == 0 || back > done || length > out_bytes - done)
            return codec_wrong("lz4");
        codec_copy(out + done, back, length, out_bytes - done);
        done += length;
    }
    *place = done;
    return ERR_OK;
}

static enum err codec_lz4_unpack(const uint8_t *data, size_t bytes,
                                 uint8_t *out, size_t out_bytes)
{
    size_t done = 0;
    TRY(lz4_block(data, bytes, out, &done, out_bytes));
    return done == out_bytes ? ERR_OK : codec_wrong("lz4");
}

const struct codec_ops codec_lz4_ops = { .unpack = codec_lz4_unpack };

static enum err codec_lz4_frame_unpack(const uint8_t *data, size_t bytes,
                                       uint8_t *out, size_t out_bytes)
{
    enum { KEYED = 1, SUM = 4, SIZE = 8, SUMS = 16 }; /* flags of its head */
    size_t at = 7, done = 0, length = 1;
    if (bytes < at || memcmp(data, "\4\x22\x4d\x18", 4) != 0 ||
        data[4] >> 6 != 1 || (data[4] & KEYED) != 0)
        return codec_wrong("lz4");
    const int flags = data[4];
    for (at += (flags & SIZE) != 0 ? 8 : 0; length > 0;) {
        if (at > bytes || bytes - at < 4)
            return codec_wrong("lz4");
        size_t head = codec_number(data + at, 4);
        length = head & 0x7fffffff;
        at += 4;
        if (length > bytes - at || (head > length && length > out_bytes - done))
            return codec_wrong("lz4");
        if (head == length)
            TRY(lz4_block(data + at, length, out, &done, out_bytes));
        else if (length > 0)
            memcpy(out + done, data + at, length);
        done += head > length ? length : 0;
        at += length + ((flags & SUMS) != 0 && length > 0 ? 4 : 0);
    }
    at += (flags & SUM) != 0 ? 4 : 0;
    return done == out_bytes && at == bytes ? ERR_OK : codec_wrong("lz4");
}

const struct codec_ops codec_lz4_frame_ops = { .unpack =
                                                   codec_lz4_frame_unpack };
