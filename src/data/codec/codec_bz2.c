/* bzip2, by libbz2, where the build has it. Streams behind each other are one
 * text. */
#include "src/data/codec/codec_ops.h"

#ifdef CODEC_bz2
#include <bzlib.h>
#include <stdlib.h>

#include "src/base/new.h"

/* libbz2 counts bytes with 32 bits. */
#define CODEC_BZ2_PART_BYTES ((size_t)1 << 30)

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

static size_t codec_bz2_part(size_t bytes)
{
    return bytes < CODEC_BZ2_PART_BYTES ? bytes : CODEC_BZ2_PART_BYTES;
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
    size_t in = codec_bz2_part(flow->in_bytes);
    size_t out = codec_bz2_part(flow->out_bytes);
    stream->next_in = (char *)flow->in;
    stream->avail_in = (unsigned)in;
    stream->next_out = (char *)flow->out;
    stream->avail_out = (unsigned)out;
    int rc = BZ2_bzDecompress(stream);
    if (rc == BZ_MEM_ERROR)
        return err_set(ERR_MEMORY, "no memory to unpack bz2");
    if (rc != BZ_OK && rc != BZ_STREAM_END)
        return err_set(ERR_DATA, "is no valid bz2 data");
    flow->in += in - stream->avail_in;
    flow->in_bytes -= in - stream->avail_in;
    flow->out += out - stream->avail_out;
    flow->out_bytes -= out - stream->avail_out;
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
