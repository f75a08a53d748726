/* gzip, by zlib: members behind each other are one text, zeros behind the last
 * one are padding, as tapes and block devices leave them.
 *
 * A member (RFC 1952) is a header of 10 bytes, deflate's bits (RFC 1951), and a
 * trailer: CRC-32 of the text and its length modulo 2^32. zlib reads all three
 * by itself and checks the sums. Writing, it would make a header of its own; so
 * packing takes bare deflate (negative window bits) and puts Python's header
 * and the trailer around it, but for the time, which is 0: the same data are
 * the same file. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "src/data/codec/codec_ops.h"

#define CODEC_GZ_HEADER_BYTES 10
#define CODEC_GZ_WINDOW_BITS 15
#define CODEC_GZ_WRAPPER 16 /* added to the window's: a gzip header */
#define CODEC_GZ_MEMORY_LEVEL 8
/* zlib counts bytes with 32 bits. */
#define CODEC_GZ_PART_BYTES ((size_t)1 << 30)

static enum err codec_gz_open(void **state)
{
    z_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL ||
        inflateInit2(stream, CODEC_GZ_WINDOW_BITS + CODEC_GZ_WRAPPER) != Z_OK) {
        free(stream);
        return err_set(ERR_MEMORY, "no memory to unpack gz");
    }
    *state = stream;
    return ERR_OK;
}

static void codec_gz_close(void *state)
{
    inflateEnd(state);
    free(state);
}

static enum err codec_gz_step(void *state, struct codec_flow *flow)
{
    z_stream *stream = state;
    while (flow->complete && flow->in_bytes > 0 && flow->in[0] == 0) {
        flow->in++;
        flow->in_bytes--;
    }
    if (flow->in_bytes == 0 && flow->complete)
        return ERR_OK;
    /* another member begins */
    if (flow->complete && inflateReset(stream) != Z_OK)
        return err_set(ERR_INTERNAL, "zlib refused to begin again");
    flow->complete = false;
    size_t in = flow->in_bytes < CODEC_GZ_PART_BYTES ? flow->in_bytes
                                                     : CODEC_GZ_PART_BYTES;
    size_t out = flow->out_bytes < CODEC_GZ_PART_BYTES ? flow->out_bytes
                                                       : CODEC_GZ_PART_BYTES;
    stream->next_in = (z_const Bytef *)flow->in;
    stream->avail_in = (uInt)in;
    stream->next_out = flow->out;
    stream->avail_out = (uInt)out;
    int rc = inflate(stream, Z_NO_FLUSH);
    if (rc == Z_MEM_ERROR)
        return err_set(ERR_MEMORY, "no memory to unpack gz");
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
        return err_set(ERR_DATA, "is no valid gz data: %s",
                       stream->msg != NULL ? stream->msg : "damaged");
    flow->in += in - stream->avail_in;
    flow->in_bytes -= in - stream->avail_in;
    flow->out += out - stream->avail_out;
    flow->out_bytes -= out - stream->avail_out;
    flow->complete = rc == Z_STREAM_END;
    return ERR_OK;
}

/* As deflate's own, but for level 0, and without a system. */
static void codec_gz_header(int level, uint8_t header[CODEC_GZ_HEADER_BYTES])
{
    static const uint8_t start[] = { 0x1f, 0x8b, 8 };
    memset(header, 0, CODEC_GZ_HEADER_BYTES);
    memcpy(header, start, sizeof start);
    /* XFL: 2 for the best, 4 for the fastest; OS: 255, not known */
    header[8] = level == 9 ? 2 : level == 1 ? 4 : 0;
    header[9] = 255;
}

static enum err codec_gz_deflate(z_stream *stream, const uint8_t *data,
                                 size_t bytes, struct buffer *out)
{
    int rc = Z_OK;
    while (rc != Z_STREAM_END) {
        size_t in = bytes < CODEC_GZ_PART_BYTES ? bytes : CODEC_GZ_PART_BYTES;
        TRY(buffer_reserve(out, in / 2 + (1 << 16)));
        size_t room = out->capacity - out->bytes;
        room = room < CODEC_GZ_PART_BYTES ? room : CODEC_GZ_PART_BYTES;
        stream->next_in = (z_const Bytef *)data;
        stream->avail_in = (uInt)in;
        stream->next_out = out->data + out->bytes;
        stream->avail_out = (uInt)room;
        rc = deflate(stream, in == bytes ? Z_FINISH : Z_NO_FLUSH);
        if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
            return err_set(ERR_INTERNAL, "zlib refused to pack: %d", rc);
        data += in - stream->avail_in;
        bytes -= in - stream->avail_in;
        out->bytes += room - stream->avail_out;
    }
    return ERR_OK;
}

static enum err codec_gz_pack(int level, const uint8_t *data, size_t bytes,
                              struct buffer *out)
{
    enum err rc = ERR_OK;
    z_stream stream = { 0 };
    uint32_t trailer[2] = { (uint32_t)crc32_z(0, data, bytes),
                            (uint32_t)bytes };
    TRY(buffer_reserve(out, CODEC_GZ_HEADER_BYTES));
    codec_gz_header(level, out->data);
    out->bytes = CODEC_GZ_HEADER_BYTES;
    if (deflateInit2(&stream, level, Z_DEFLATED, -CODEC_GZ_WINDOW_BITS,
                     CODEC_GZ_MEMORY_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
        return err_set(ERR_MEMORY, "no memory to pack gz");
    TRY_OUT(codec_gz_deflate(&stream, data, bytes, out));
    TRY_OUT(buffer_reserve(out, sizeof trailer));
    memcpy(out->data + out->bytes, trailer, sizeof trailer);
    out->bytes += sizeof trailer;
out:
    deflateEnd(&stream);
    return rc;
}

const struct codec_ops codec_gz_ops = {
    .open = codec_gz_open,
    .close = codec_gz_close,
    .step = codec_gz_step,
    .pack = codec_gz_pack,
};
