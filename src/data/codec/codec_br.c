/* brotli, by libbrotli, where the build has it. */
#include "src/data/codec/codec_ops.h"

#ifdef CODEC_brotlidec
#include <brotli/decode.h>
#include <brotli/encode.h>

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

/* All input first, then the end: with the end at once the bytes are others
 * than those of Python's module. */
static enum err codec_br_pack(int level, const uint8_t *data, size_t bytes,
                              struct buffer *out)
{
    enum err rc = ERR_OK;
    BrotliEncoderState *state = BrotliEncoderCreateInstance(NULL, NULL, NULL);
    if (state == NULL ||
        BrotliEncoderSetParameter(state, BROTLI_PARAM_QUALITY,
                                  (uint32_t)level) != BROTLI_TRUE) {
        rc = err_set(ERR_MEMORY, "no memory to pack br");
        goto out;
    }
    while (BrotliEncoderIsFinished(state) != BROTLI_TRUE) {
        BrotliEncoderOperation step =
            bytes > 0 ? BROTLI_OPERATION_PROCESS : BROTLI_OPERATION_FINISH;
        TRY_OUT(buffer_reserve(out, bytes / 2 + (1 << 16)));
        uint8_t *next = out->data + out->bytes;
        size_t room = out->capacity - out->bytes;
        if (BrotliEncoderCompressStream(state, step, &bytes, &data, &room,
                                        &next, NULL) != BROTLI_TRUE) {
            rc = err_set(ERR_MEMORY, "no memory to pack br");
            goto out;
        }
        out->bytes = out->capacity - room;
    }
out:
    BrotliEncoderDestroyInstance(state);
    return rc;
}

const struct codec_ops codec_br_ops = {
    .open = codec_br_open,
    .close = codec_br_close,
    .step = codec_br_step,
    .pack = codec_br_pack,
};
#else
const struct codec_ops codec_br_ops = { NULL };
#endif
