/* Attention of one chunk, and the way back through its half of a block
 * (block.h). Attention across chunks is model_sequence.c, the op itself a
 * kernel's. */
#include <assert.h>
#include <string.h>

#include "src/model/model_impl.h"

struct attention model_attention_shape(const struct pass *pass)
{
    const struct model *model = pass->model;
    const struct model_config *config = &model->config;
    double dropout = pass->training ? config->dropout_attention : 0.0;
    return (struct attention){
        .batch = pass->leaf.samples,
        .seq = pass->leaf.seq_len,
        .heads = config->n_heads,
        .kv_heads = config->n_kv_heads,
        .head_dim = model->head_dim,
        .window = model_config_window(config, pass->number),
        .scale = model_config_attention_scale(config),
        .alibi_slopes = model->tables.slopes,
        .sequence_ids = pass->leaf.sequence_ids,
        .dropout = (float)dropout,
        .random = model_random(pass, dropout, pass->layer->dropout_probs),
    };
}

enum err model_attention_forward(struct model *model)
{
    const struct pass *pass = &model->passes[0];
    struct attention shape = model_attention_shape(pass);
    if (model->options.chunks > 1)
        return model_sequence_forward(model);
    return model->kernels->attention_forward(
        &model->ctx, model->options.dtype, &shape, pass_ready(pass),
        pass->layer->live[SAVED_ATT], pass->layer->live[SAVED_LSE]);
}

/* The queries, or the keys, `first` elements inside packed qkv. */
static enum err heads_backward(struct pass *pass, enum param_role role,
                               int64_t heads, int64_t first, const float *mean,
                               const float *rstd)
{
    struct model *model = pass->model;
    struct norm norm = block_heads_norm(&model->config, pass->n, heads);
    void *d = at(model, pass->dqkv, first);
    assert(first >= 0 && first < model->qkv_width);
    return model->kernels->norm_backward(
        &model->ctx, model->options.dtype, &norm, d,
        at(model, pass->layer->live[SAVED_QKV], first), pass_weight(pass, role),
        mean, rstd, false, d, pass_norm_gradient(pass, role),
        pass_gradient(pass, role + 1));
}

/* The bound of |qkv| as it comes back: bf16, in which SAVED_QKV is packed, may
 * have rounded it down, and what was clipped would pass for what was not. */
static float kept_bound(const struct pass *pass)
{
    float bound = (float)pass->model->config.clip_qkv;
    uint32_t bits;
    if (pass->layer->packed[SAVED_QKV] == NULL)
        return bound;
    memcpy(&bits, &bound, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&bound, &bits, sizeof bound);
    return bound;
}

/* dqkv from the gradient of what attention read to that of the linear
 * layer's output. */
static enum err qkv_backward(struct pass *pass)
{
    struct model *model = pass->model;
    struct block b = model_block(pass);
    TRY(block_rotate(&b, true, pass->dqkv));
    if (model->config.qk_norm != QK_NORM_NONE) {
        TRY(heads_backward(pass, PARAM_Q_NORM_WEIGHT, model->config.n_heads, 0,
                           b.q_mean, b.q_rstd));
        TRY(heads_backward(pass, PARAM_K_NORM_WEIGHT, model->config.n_kv_heads,
                           model_config_queries(&model->config), b.k_mean,
                           b.k_rstd));
    }
    if (model->config.clip_qkv > 0.0)
        TRY(model->kernels->clip_backward(&model->ctx, model->options.dtype,
                                          pass->n * model->qkv_width,
                                          kept_bound(pass), b.qkv, pass->dqkv));
    return ERR_OK;
}

enum err model_attention_after_backward(struct pass *pass)
{
    struct block b = model_block(pass);
    const void *dbranch = NULL;
    TRY(model_branch_gradient(pass, pass->layer->dropout_attention, &dbranch));
    TRY(model_branch_norm_backward(pass, PARAM_NORM_1_WEIGHT, LINEAR_OUT,
                                   b.attended, &dbranch));
    TRY(model_linear_backward(pass, LINEAR_OUT, dbranch, b.attended,
                              pass->x_last));
    return b.ready != b.qkv ? block_make_ready(&b) : ERR_OK;
}

enum err model_attention_backward(struct model *model)
{
    const struct pass *pass = &model->passes[0];
    struct attention shape = model_attention_shape(pass);
    if (model->options.chunks > 1)
        return model_sequence_backward(model);
    return model->kernels->attention_backward(
        &model->ctx, model->options.dtype, &shape, pass_ready(pass),
        pass->layer->live[SAVED_ATT], pass->layer->live[SAVED_LSE],
        pass->x_last, pass->dqkv);
}

enum err model_attention_before_backward(struct pass *pass)
{
    struct block b = model_block(pass);
    TRY(qkv_backward(pass));
    TRY(model_input_again(&b, PARAM_NORM_1_WEIGHT, b.x));
    TRY(model_linear_backward(pass, LINEAR_QKV, pass->dqkv,
                              block_input(&b, b.x), pass->model->ws.dnorm));
    return model_input_backward(pass, PARAM_NORM_1_WEIGHT, b.x);
}
