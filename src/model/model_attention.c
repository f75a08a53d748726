/* The attention half of a block: norm, projections, attention of one chunk,
 * residual sum. Attention across chunks is model_sequence.c, the op itself a
 * kernel's. */
#include <assert.h>
#include <math.h>
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
        .scale = (float)(1.0 / sqrt((double)model->head_dim)),
        .alibi_slopes = model->slopes,
        .sequence_ids = pass->leaf.sequence_ids,
        .dropout = (float)dropout,
        .random = model_random(pass, dropout, pass->layer->dropout_probs),
    };
}

static enum err rotate(struct pass *pass, bool inverse, void *qkv)
{
    const struct model *model = pass->model;
    const struct model_config *config = &model->config;
    if (model->rope == NULL)
        return ERR_OK;
    assert(pass->first + pass->leaf.seq_len <= model->options.seq_len);
    return model->kernels->rope(
        &model->ctx, model->options.dtype, pass->n, pass->leaf.seq_len,
        config->n_heads + 2 * config->n_kv_heads,
        config->n_heads + config->n_kv_heads, model->head_dim,
        model->rope + pass->first * model->head_dim, inverse, qkv);
}

static enum err norm_heads(struct pass *pass, const void *qkv)
{
    struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    int64_t keys = model->config.n_heads * model->head_dim;
    struct norm q =
        block_heads_norm(&model->config, pass->n, model->config.n_heads);
    struct norm key =
        block_heads_norm(&model->config, pass->n, model->config.n_kv_heads);
    TRY(k->norm_forward(&model->ctx, model->options.dtype, &q, qkv,
                        pass_weight(pass, PARAM_Q_NORM_WEIGHT),
                        pass_weight(pass, PARAM_Q_NORM_BIAS), pass->qkv,
                        pass->q_mean, pass->q_rstd));
    return k->norm_forward(
        &model->ctx, model->options.dtype, &key, at(model, qkv, keys),
        pass_weight(pass, PARAM_K_NORM_WEIGHT),
        pass_weight(pass, PARAM_K_NORM_BIAS), at(model, pass->qkv, keys),
        pass->k_mean, pass->k_rstd);
}

/* SAVED_QKV as attention reads it: itself, rotated in place, or a copy. */
static enum err make_ready(struct pass *pass)
{
    struct model *model = pass->model;
    const void *qkv = pass->layer->live[SAVED_QKV];
    pass->ready = qkv;
    if (pass->qkv == NULL)
        return ERR_OK;
    TRY(model->kernels->copy_rows(&model->ctx, model->options.dtype, pass->n,
                                  model->qkv_width, model->qkv_width, qkv,
                                  model->qkv_width, pass->qkv));
    if (model->config.qk_norm != QK_NORM_NONE)
        TRY(norm_heads(pass, qkv));
    TRY(rotate(pass, false, pass->qkv));
    pass->ready = pass->qkv;
    return ERR_OK;
}

enum err model_attention_before(struct pass *pass)
{
    struct model *model = pass->model;
    const struct layer *layer = pass->layer;
    const struct model_config *config = &model->config;
    void *qkv = layer->live[SAVED_QKV];
    TRY(model_norm(pass, PARAM_NORM_1_WEIGHT, layer->live[SAVED_X]));
    TRY(model_linear(pass, LINEAR_QKV, model->ws.norm, qkv));
    if (config->clip_qkv > 0.0)
        TRY(model->kernels->clip_forward(&model->ctx, model->options.dtype,
                                         pass->n * model->qkv_width,
                                         (float)config->clip_qkv, qkv));
    if (pass->qkv == NULL)
        TRY(rotate(pass, false, qkv));
    return make_ready(pass);
}

enum err model_attention_forward(struct model *model)
{
    const struct pass *pass = &model->passes[0];
    struct attention shape = model_attention_shape(pass);
    if (model->options.chunks > 1)
        return model_sequence_forward(model);
    return model->kernels->attention_forward(
        &model->ctx, model->options.dtype, &shape, pass->ready,
        pass->layer->live[SAVED_ATT], pass->layer->live[SAVED_LSE]);
}

enum err model_attention_after(struct pass *pass)
{
    struct model *model = pass->model;
    struct workspace *ws = &model->ws;
    const struct layer *layer = pass->layer;
    struct norm norm = block_norm(&model->config, pass->n);
    TRY(model_linear(pass, LINEAR_OUT, layer->live[SAVED_ATT], ws->branch));
    TRY(model_drop_branch(pass, layer->dropout_attention));
    return model->kernels->add_norm_forward(
        &model->ctx, model->options.dtype, &norm, layer->live[SAVED_X],
        (float)model->config.residual_scale, ws->branch, layer->live[SAVED_MID],
        pass_weight(pass, PARAM_NORM_2_WEIGHT),
        pass_weight(pass, PARAM_NORM_2_BIAS), ws->norm, ws->mean, ws->rstd);
}

static enum err norm_heads_backward(struct pass *pass, const void *qkv)
{
    struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    int64_t keys = model->config.n_heads * model->head_dim;
    struct norm q =
        block_heads_norm(&model->config, pass->n, model->config.n_heads);
    struct norm key =
        block_heads_norm(&model->config, pass->n, model->config.n_kv_heads);
    TRY(k->norm_backward(&model->ctx, model->options.dtype, &q, pass->dqkv, qkv,
                         pass_weight(pass, PARAM_Q_NORM_WEIGHT), pass->q_mean,
                         pass->q_rstd, false, pass->dqkv,
                         pass_norm_gradient(pass, PARAM_Q_NORM_WEIGHT),
                         pass_gradient(pass, PARAM_Q_NORM_BIAS)));
    return k->norm_backward(
        &model->ctx, model->options.dtype, &key, at(model, pass->dqkv, keys),
        at(model, qkv, keys), pass_weight(pass, PARAM_K_NORM_WEIGHT),
        pass->k_mean, pass->k_rstd, false, at(model, pass->dqkv, keys),
        pass_norm_gradient(pass, PARAM_K_NORM_WEIGHT),
        pass_gradient(pass, PARAM_K_NORM_BIAS));
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
    const void *qkv = pass->layer->live[SAVED_QKV];
    TRY(rotate(pass, true, pass->dqkv));
    if (model->config.qk_norm != QK_NORM_NONE)
        TRY(norm_heads_backward(pass, qkv));
    if (model->config.clip_qkv > 0.0)
        TRY(model->kernels->clip_backward(&model->ctx, model->options.dtype,
                                          pass->n * model->qkv_width,
                                          kept_bound(pass), qkv, pass->dqkv));
    return ERR_OK;
}

enum err model_attention_after_backward(struct pass *pass)
{
    const struct layer *layer = pass->layer;
    const void *dbranch = NULL;
    TRY(model_branch_gradient(pass, layer->dropout_attention, &dbranch));
    TRY(model_linear_backward(pass, LINEAR_OUT, dbranch, layer->live[SAVED_ATT],
                              pass->x_last));
    return make_ready(pass);
}

enum err model_attention_backward(struct model *model)
{
    const struct pass *pass = &model->passes[0];
    struct attention shape = model_attention_shape(pass);
    if (model->options.chunks > 1)
        return model_sequence_backward(model);
    return model->kernels->attention_backward(
        &model->ctx, model->options.dtype, &shape, pass->ready,
        pass->layer->live[SAVED_ATT], pass->layer->live[SAVED_LSE],
        pass->x_last, pass->dqkv);
}

enum err model_attention_before_backward(struct pass *pass)
{
    struct workspace *ws = &pass->model->ws;
    const struct layer *layer = pass->layer;
    TRY(qkv_backward(pass));
    TRY(model_norm(pass, PARAM_NORM_1_WEIGHT, layer->live[SAVED_X]));
    TRY(model_linear_backward(pass, LINEAR_QKV, pass->dqkv, ws->norm,
                              ws->dnorm));
    return model_norm_backward(pass, PARAM_NORM_1_WEIGHT, layer->live[SAVED_X],
                               ws->dnorm, pass->dx);
}
