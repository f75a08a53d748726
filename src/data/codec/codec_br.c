/* brotli, by libbrotli, where the build has it. */
#include "src/data/codec/codec_ops.h"

#ifdef CODEC_brotlidec
#include <brotli/decode.h>

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
