/* Rows through the embedding and the transformer blocks. What a block adds to
 * the residual stream is added by the norm that comes next. */
#include <assert.h>
#include <math.h>

#include "src/infer/infer_impl.h"

/* --- norms --- */

/* x += scale * branch; norm = norm(x). */
static enum err add_norm(struct infer *infer, int block, enum param_role role)
{
    struct infer_work *work = &infer->work;
    struct norm norm = block_norm(&infer->config, infer->n);
    struct kernel_ctx ctx = infer_ctx(infer, infer->n * norm.d);
    return infer->kernels->add_norm_forward(
        &ctx, DTYPE_F32, &norm, work->x, (float)infer->config.residual_scale,
        work->branch, work->x, infer_vector(infer, block, role),
        infer_vector(infer, block, role + 1), work->norm, work->mean,
        work->rstd);
}

/* The first block's input has nothing to add. */
static enum err first_norm(struct infer *infer, int block)
{
    struct infer_work *work = &infer->work;
    struct norm norm = block_norm(&infer->config, infer->n);
    struct kernel_ctx ctx = infer_ctx(infer, infer->n * norm.d);
    return infer->kernels->norm_forward(
        &ctx, DTYPE_F32, &norm, work->x,
        infer_vector(infer, block, PARAM_NORM_1_WEIGHT),
        infer_vector(infer, block, PARAM_NORM_1_BIAS), work->norm, work->mean,
        work->rstd);
}

/* --- attention --- */

/* The queries, or the keys, inside packed qkv, in place. */
static enum err norm_heads(struct infer *infer, int block, enum param_role role,
                           int64_t heads, float *x)
{
    struct norm norm = block_heads_norm(&infer->config, infer->n, heads);
    struct kernel_ctx ctx = infer_ctx(infer, infer->n * infer->qkv_width);
    return infer->kernels->norm_forward(&ctx, DTYPE_F32, &norm, x,
                                        infer_vector(infer, block, role),
                                        infer_vector(infer, block, role + 1), x,
                                        infer->work.mean, infer->work.rstd);
}

/* Queries and keys as attention reads them. */
static enum err prepare(struct infer *infer, int block)
{
    const struct model_config *config = &infer->config;
    const struct kernels *k = infer->kernels;
    float *qkv = infer->work.qkv;
    struct kernel_ctx ctx = infer_ctx(infer, infer->n * infer->qkv_width);
    if (config->clip_qkv > 0.0)
        TRY(k->clip_forward(&ctx, DTYPE_F32, infer->n * infer->qkv_width,
                            (float)config->clip_qkv, qkv));
    if (config->qk_norm != QK_NORM_NONE) {
        TRY(norm_heads(infer, block, PARAM_Q_NORM_WEIGHT, config->n_heads,
                       qkv));
        TRY(norm_heads(infer, block, PARAM_K_NORM_WEIGHT, config->n_kv_heads,
                       qkv + config->n_heads * infer->head_dim));
    }
    if (infer->rope == NULL)
        return ERR_OK;
    return k->rope(&ctx, DTYPE_F32, infer->n, infer->n,
                   config->n_heads + 2 * config->n_kv_heads,
                   config->n_heads + config->n_kv_heads, infer->head_dim,
                   infer->work.rotation, false, qkv);
}

static enum err attend(struct infer *infer, int layer)
{
    const struct model_config *config = &infer->config;
    int64_t cache = infer->options.sequences * config->n_kv_heads *
                    infer->capacity * infer->head_dim;
    const struct attention_cached shape = {
        .rows = infer->n,
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
    return infer->kernels->attention_cached(
        &infer->ctx, &shape, infer->work.qkv, infer->work.attended);
}

static enum err attention(struct infer *infer, int layer, int block)
{
    struct infer_work *work = &infer->work;
    TRY(layer == 0 ? first_norm(infer, block)
                   : add_norm(infer, block, PARAM_NORM_1_WEIGHT));
    TRY(infer_linear(infer, block, LINEAR_QKV, work->norm, work->qkv));
    TRY(prepare(infer, block));
    TRY(attend(infer, layer));
    TRY(infer_linear(infer, block, LINEAR_OUT, work->attended, work->branch));
    return add_norm(infer, block, PARAM_NORM_2_WEIGHT);
}

/* --- the other half --- */

/* hidden to act, of `rows` rows. */
static enum err activate(struct infer *infer, int64_t rows, bool apart)
{
    struct infer_work *work = &infer->work;
    struct kernel_ctx ctx = infer_ctx(infer, rows * infer->config.ffn_width);
    return block_activate(&infer->config, infer->kernels, &ctx, DTYPE_F32, rows,
                          apart, work->hidden, work->act);
}

static enum err mlp(struct infer *infer, int block)
{
    struct infer_work *work = &infer->work;
    TRY(infer_linear(infer, block, LINEAR_HIDDEN, work->norm, work->hidden));
    TRY(activate(infer, infer->n, false));
    return infer_linear(infer, block, LINEAR_DOWN, work->act, work->branch);
}

static enum err choose(struct infer *infer, int block,
                       const struct route *route)
{
    struct infer_work *work = &infer->work;
    const struct kernels *k = infer->kernels;
    TRY(infer_linear(infer, block, LINEAR_ROUTER, work->norm, work->probs));
    TRY(k->route_forward(&infer->ctx, route, work->probs, work->chosen,
                         work->weights));
    return k->route_sort(&infer->ctx, route, work->chosen, work->offsets,
                         work->place, work->source);
}

static enum err experts(struct infer *infer, int block)
{
    const struct model_config *config = &infer->config;
    struct infer_work *work = &infer->work;
    const struct route route = { .n = infer->n,
                                 .experts = (int)config->experts,
                                 .top_k = (int)config->experts_top_k,
                                 .normalize = (float)config->router_normalize };
    int64_t d = config->d_model, f = config->ffn_width;
    int64_t rows = infer->n * config->experts_top_k;
    bool gated = config->ffn == FFN_GLU;
    float *up = block_up(config, DTYPE_F32, rows, true, work->hidden);
    TRY(choose(infer, block, &route));
    TRY(infer->kernels->expert_gather(&infer->ctx, DTYPE_F32, &route, d,
                                      work->source, work->norm, work->sorted));
    if (gated)
        TRY(infer_experts_linear(infer, block, PARAM_EXPERTS_GATE, rows, f, d,
                                 work->sorted, work->hidden));
    TRY(infer_experts_linear(infer, block, PARAM_EXPERTS_UP, rows, f, d,
                             work->sorted, up));
    TRY(activate(infer, rows, true));
    TRY(infer_experts_linear(infer, block, PARAM_EXPERTS_DOWN, rows, d, f,
                             work->act, work->sorted));
    return infer->kernels->expert_combine(&infer->ctx, DTYPE_F32, &route, d,
                                          work->place, work->weights,
                                          work->sorted, work->branch);
}

enum err infer_blocks(struct infer *infer)
{
    const struct params *params = infer->params;
    for (int layer = 0; layer < infer->config.n_layers; layer++) {
        int block = params_layer_block(params, layer);
        TRY(infer_enter(infer, block, params->layer_blocks, 0));
        TRY(attention(infer, layer, block));
        TRY(infer->config.experts > 0 ? experts(infer, block)
                                      : mlp(infer, block));
        TRY(infer_leave(infer, block, params->layer_blocks));
    }
    return ERR_OK;
}

/* --- the embedding --- */

/* Rows of a table by the rows' positions. */
static enum err by_position(struct infer *infer, int64_t width,
                            const float *table, float *out)
{
    struct kernel_ctx ctx = infer_ctx(infer, infer->n * width);
    return infer->kernels->embedding_forward(
        &ctx, DTYPE_F32, infer->n, infer->n, width, infer->work.positions,
        table, NULL, out);
}

enum err infer_embed(struct infer *infer)
{
    struct infer_work *work = &infer->work;
    int64_t d = infer->config.d_model;
    struct kernel_ctx ctx = infer_ctx(infer, infer->n * d);
    TRY(infer_enter(infer, 0, 1, 0));
    TRY(infer_embedding(infer, infer->n, work->tokens, work->x));
    const float *wpe = infer_vector(infer, 0, PARAM_WPE);
    if (wpe != NULL) {
        TRY(by_position(infer, d, wpe, work->norm));
        TRY(infer->kernels->add(&ctx, DTYPE_F32, infer->n * d, work->x, 1.0f,
                                work->norm, work->x));
    }
    if (infer->rope != NULL)
        TRY(by_position(infer, infer->head_dim, infer->rope, work->rotation));
    return infer_leave(infer, 0, 1);
}
