/* zstd, by libzstd. Frames behind each other are one text. */
#include <zstd.h>

#include "src/data/codec/codec_ops.h"

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
    flow->in += in.pos;
    flow->in_bytes -= in.pos;
    flow->out += out.pos;
    flow->out_bytes -= out.pos;
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
