/* Compressions that are streams, each by its library; bz2 and br where the build has
 * them.
 *
 * Frames of zstd, members of gzip and streams of bzip2 behind each other are one text.
 * Zeros behind the last member of gzip are padding, as tapes and block devices leave
 * them. A member (RFC 1952) is a header of 10 bytes, deflate's bits (RFC 1951), and a
 * trailer: CRC-32 of the text and its length modulo 2^32. zlib reads all three by
 * itself and checks the sums. */
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

#include "src/base/new.h"
#include "src/data/codec/codec.h"

#ifdef CODEC_bz2
#include <bzlib.h>
#endif
#ifdef CODEC_brotlidec
#include <brotli/decode.h>
#endif

/* zlib and libbz2 count bytes with 32 bits. */
static size_t codec_part(size_t bytes)
{
    return bytes < (size_t)1 << 30 ? bytes : (size_t)1 << 30;
}

static void codec_took(struct codec_flow *flow, size_t in, size_t out)
{
    flow->in += in;
    flow->in_bytes -= in;
    flow->out += out;
    flow->out_bytes -= out;
}

/* --- zstd --- */

static enum err codec_zstd_open(void **state)
{
    *state = ZSTD_createDStream();
    return *state != NULL ? ERR_OK
                          : err_set(ERR_MEMORY, "no memory to unpack zstd");
}

static void codec_zstd_close(void *state)
{
    ZSTD_freeDStream(state);
}

static enum err codec_zstd_step(void *state, struct codec_flow *flow)
{
    ZSTD_inBuffer in = { flow->in, flow->in_bytes, 0 };
    ZSTD_outBuffer out = { flow->out, flow->out_bytes, 0 };
    size_t rc = ZSTD_decompressStream(state, &out, &in);
    if (ZSTD_isError(rc))
        return err_set(ERR_DATA, "is no valid zstd data: %s",
                       ZSTD_getErrorName(rc));
    codec_took(flow, in.pos, out.pos);
    /* 0 is the end of a frame, if anything moved: a call without input gives a
     * hint of how much it would like */
    if (in.pos > 0 || out.pos > 0)
        flow->complete = rc == 0;
    return ERR_OK;
}

const struct codec_ops codec_zstd_ops = {
    .open = codec_zstd_open,
    .close = codec_zstd_close,
    .step = codec_zstd_step,
};

/* --- gzip --- */

#define CODEC_GZ_WINDOW_BITS 15
#define CODEC_GZ_WRAPPER 16 /* added to the window's: a gzip header */

static enum err codec_gz_open(void **state)
{
    z_stream *stream = NULL;
    TRY(new_zeroed(&stream, 1));
    enum err rc =
        inflateInit2(stream, CODEC_GZ_WINDOW_BITS + CODEC_GZ_WRAPPER) == Z_OK
            ? ERR_OK
            : err_set(ERR_MEMORY, "no memory to unpack gz");
    return new_or_none(rc, stream, state, free);
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
    size_t in = codec_part(flow->in_bytes), out = codec_part(flow->out_bytes);
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
    codec_took(flow, in - stream->avail_in, out - stream->avail_out);
    flow->complete = rc == Z_STREAM_END;
    return ERR_OK;
}

const struct codec_ops codec_gz_ops = {
    .open = codec_gz_open,
    .close = codec_gz_close,
    .step = codec_gz_step,
};

/* --- bzip2 --- */

#ifdef CODEC_bz2
static enum err codec_bz2_begin(bz_stream *stream)
{
    int rc = BZ2_bzDecompressInit(stream, 0, 0);
    return rc == BZ_OK ? ERR_OK
                       : err_set(ERR_MEMORY, "no memory to unpack bz2");
}

static enum err codec_bz2_open(void **state)
{
    bz_stream *stream = NULL;
    TRY(new_zeroed(&stream, 1));
    enum err rc = codec_bz2_begin(stream);
    return new_or_none(rc, stream, state, free);
}

static void codec_bz2_close(void *state)
{
    BZ2_bzDecompressEnd(state);
    free(state);
}

static enum err codec_bz2_step(void *state, struct codec_flow *flow)
{
    bz_stream *stream = state;
    if (flow->in_bytes == 0 && flow->complete)
        return ERR_OK;
    /* what follows the end of a stream is another one (pbzip2 writes many), and
     * a state of libbz2 is good for one */
    if (flow->complete) {
        BZ2_bzDecompressEnd(stream);
        TRY(codec_bz2_begin(stream));
    }
    size_t in = codec_part(flow->in_bytes), out = codec_part(flow->out_bytes);
    stream->next_in = (char *)flow->in;
    stream->avail_in = (unsigned)in;
    stream->next_out = (char *)flow->out;
    stream->avail_out = (unsigned)out;
    int rc = BZ2_bzDecompress(stream);
    if (rc == BZ_MEM_ERROR)
        return err_set(ERR_MEMORY, "no memory to unpack bz2");
    if (rc != BZ_OK && rc != BZ_STREAM_END)
        return err_set(ERR_DATA, "is no valid bz2 data");
    codec_took(flow, in - stream->avail_in, out - stream->avail_out);
    flow->complete = rc == BZ_STREAM_END;
    return ERR_OK;
}

const struct codec_ops codec_bz2_ops = {
    .open = codec_bz2_open,
    .close = codec_bz2_close,
    .step = codec_bz2_step,
};
#else
const struct codec_ops codec_bz2_ops = { NULL };
#endif

/* --- brotli --- */

#ifdef CODEC_brotlidec
static enum err codec_br_open(void **state)
{
    *state = BrotliDecoderCreateInstance(NULL, NULL, NULL);
    return *state != NULL ? ERR_OK
                          : err_set(ERR_MEMORY, "no memory to unpack br");
}

static void codec_br_close(void *state)
{
    BrotliDecoderDestroyInstance(state);
}

static enum err codec_br_step(void *state, struct codec_flow *flow)
{
    BrotliDecoderResult rc = BrotliDecoderDecompressStream(
        state, &flow->in_bytes, &flow->in, &flow->out_bytes, &flow->out, NULL);
    if (rc == BROTLI_DECODER_RESULT_ERROR) {
        BrotliDecoderErrorCode code = BrotliDecoderGetErrorCode(state);
        const char *text = BrotliDecoderErrorString(code);
        /* the library numbers what it had no memory for one after the other */
        return code <= BROTLI_DECODER_ERROR_ALLOC_CONTEXT_MODES &&
                       code >= BROTLI_DECODER_ERROR_ALLOC_BLOCK_TYPE_TREES
                   ? err_set(ERR_MEMORY, "no memory to unpack br: %s", text)
                   : err_set(ERR_DATA, "is no valid br data: %s", text);
    }
    /* one stream is all there is: brotli knows none behind each other */
    flow->complete = rc == BROTLI_DECODER_RESULT_SUCCESS;
    if (flow->complete && flow->in_bytes > 0)
        return err_set(ERR_DATA, "has more behind the end of its br data");
    return ERR_OK;
}

const struct codec_ops codec_br_ops = {
    .open = codec_br_open,
    .close = codec_br_close,
    .step = codec_br_step,
};
#else
const struct codec_ops codec_br_ops = { NULL };
#endif
