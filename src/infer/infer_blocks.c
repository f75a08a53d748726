/* Rows through the embedding and the transformer blocks (block.h). What a block
 * adds to the residual stream is added by the norm that comes next.
 *
 * Of a block only attention knows that rows belong to texts. Each row writes its
 * key and value to its position of its slot's cache and then looks at all of that
 * slot up to itself, in one fixed order: whether its neighbours of the same text
 * are in this pass, in an earlier call, or were copied makes no difference to a
 * bit of it. Everything else is row by row. */
#include <assert.h>
#include <math.h>

#include "src/infer/infer_impl.h"

static enum err attend(struct infer *infer, int layer)
{
    const struct model_config *config = &infer->config;
    int64_t cache = infer->options.sequences * config->n_kv_heads *
                    infer->capacity * infer->head_dim;
    const struct attention_cached shape = {
        .rows = infer->b.n,
        .heads = config->n_heads,
        .kv_heads = config->n_kv_heads,
        .head_dim = infer->head_dim,
        .scale = (float)(1.0 / sqrt((double)infer->head_dim)),
        .alibi_slopes = infer->slopes,
        .slots = infer->work.slots,
        .positions = infer->work.positions,
        .capacity = infer->capacity,
        .keys = infer->keys + layer * cache,
        .values = infer->values + layer * cache,
    };
    return infer->kernels->attention_cached(&infer->ctx, &shape, infer->b.ready,
                                            infer->b.attended);
}

enum err infer_blocks(struct infer *infer)
{
    const struct params *params = infer->params;
    struct block *b = &infer->b;
    for (int layer = 0; layer < infer->config.n_layers; layer++) {
        b->number = params_layer_block(params, layer);
        b->owes = layer > 0;
        TRY(infer_enter(infer, b->number, params->layer_blocks, 0));
        TRY(block_before(b));
        TRY(attend(infer, layer));
        TRY(block_after(b));
        TRY(block_ffn(b));
        TRY(infer_leave(infer, b->number, params->layer_blocks));
    }
    return ERR_OK;
}

/* --- the embedding --- */

/* Rows of a table by the rows' positions. */
static enum err by_position(struct infer *infer, int64_t width,
                            const float *table, float *out)
{
    struct kernel_ctx ctx = infer_ctx(infer, infer->b.n * width);
    return infer->kernels->embedding_forward(
        &ctx, DTYPE_F32, infer->b.n, infer->b.n, width, infer->work.positions,
        table, NULL, out);
}

enum err infer_embed(struct infer *infer)
{
    struct infer_work *work = &infer->work;
    struct block *b = &infer->b;
    int64_t d = infer->config.d_model;
    struct kernel_ctx ctx = infer_ctx(infer, infer->b.n * d);
    b->seq = b->n;
    TRY(infer_enter(infer, 0, 1, 0));
    TRY(infer_embedding(infer, infer->b.n, work->tokens, b->x));
    const float *wpe = infer_vector(infer, 0, PARAM_WPE);
    if (wpe != NULL) {
        TRY(by_position(infer, d, wpe, b->norm));
        TRY(infer->kernels->add(&ctx, DTYPE_F32, infer->b.n * d, b->x, 1.0f,
                                b->norm, b->x));
    }
    if (infer->rope != NULL)
        TRY(by_position(infer, infer->head_dim, infer->rope, work->rotation));
    return infer_leave(infer, 0, 1);
}
