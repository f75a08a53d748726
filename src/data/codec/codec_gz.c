/* gzip, by zlib: members behind each other are one text, zeros behind the last
 * one are padding, as tapes and block devices leave them.
 *
 * A member (RFC 1952) is a header of 10 bytes, deflate's bits (RFC 1951), and a
 * trailer: CRC-32 of the text and its length modulo 2^32. zlib reads all three
 * by itself and checks the sums. */
#include <stdlib.h>
#include <zlib.h>

#include "src/data/codec/codec_ops.h"

#define CODEC_GZ_WINDOW_BITS 15
#define CODEC_GZ_WRAPPER 16 /* added to the window's: a gzip header */
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

const struct codec_ops codec_gz_ops = {
    .open = codec_gz_open,
    .close = codec_gz_close,
    .step = codec_gz_step,
};
