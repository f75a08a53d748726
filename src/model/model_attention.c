/* The attention half of a block. */
#include <math.h>
#include <string.h>

#include "src/model/model_impl.h"

static struct attention attention_shape(const struct pass *pass)
{
    const struct model *model = pass->model;
    const struct model_config *config = &model->config;
    return (struct attention){
        .batch = pass->leaf->samples,
        .seq = pass->leaf->seq_len,
        .heads = config->n_heads,
        .kv_heads = config->n_kv_heads,
        .head_dim = model->head_dim,
        .scale = (float)(1.0 / sqrt((double)model->head_dim)),
        .alibi_slopes = model->slopes,
        .sequence_ids = pass->leaf->sequence_ids,
        .dropout = pass->training ? (float)config->dropout_attention : 0.0f,
        .random = { .seed = model->options.seed,
                    .stream = pass->layer->dropout_probs,
                    .first_sample = pass->leaf->first_sample },
    };
}

/* Of the queries, or of the keys, inside packed qkv. */
static struct norm qk_norm_shape(const struct pass *pass, int64_t heads)
{
    const struct model *model = pass->model;
    struct norm norm = model_norm_shape(pass);
    bool each = model->config.qk_norm == QK_NORM_HEAD;
    norm.groups = each ? heads : 1;
    norm.d = each ? model->head_dim : heads * model->head_dim;
    norm.stride = model->qkv_width;
    return norm;
}

static enum err rotate(struct pass *pass, bool inverse, float *qkv)
{
    const struct model *model = pass->model;
    const struct model_config *config = &model->config;
    if (model->rope == NULL)
        return ERR_OK;
    return model->kernels->rope(&model->ctx, DTYPE_F32, pass->n,
                                pass->leaf->seq_len,
                                config->n_heads + 2 * config->n_kv_heads,
                                config->n_heads + config->n_kv_heads,
                                model->head_dim, model->rope, inverse, qkv);
}

static enum err norm_heads(struct pass *pass, const float *qkv)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    struct workspace *ws = &model->ws;
    int64_t keys = model->config.n_heads * model->head_dim;
    struct norm q = qk_norm_shape(pass, model->config.n_heads);
    struct norm key = qk_norm_shape(pass, model->config.n_kv_heads);
    TRY(k->norm_forward(
        &model->ctx, DTYPE_F32, &q, qkv, pass_weight(pass, PARAM_Q_NORM_WEIGHT),
        pass_weight(pass, PARAM_Q_NORM_BIAS), ws->qkv, ws->q_mean, ws->q_rstd));
    TRY(k->norm_forward(&model->ctx, DTYPE_F32, &key, qkv + keys,
                        pass_weight(pass, PARAM_K_NORM_WEIGHT),
                        pass_weight(pass, PARAM_K_NORM_BIAS), ws->qkv + keys,
                        ws->k_mean, ws->k_rstd));
out:
    return rc;
}

/* SAVED_QKV as attention reads it: itself, rotated in place, or a copy. */
static enum err qkv_ready(struct pass *pass, const float **ready)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    const float *qkv = pass->layer->live[SAVED_QKV];
    *ready = qkv;
    if (model->ws.qkv == NULL)
        return ERR_OK;
    TRY(model->kernels->pack(&model->ctx, PACKING_NONE, pass->n,
                             model->qkv_width, qkv, model->ws.qkv));
    if (model->config.qk_norm != QK_NORM_NONE)
        TRY(norm_heads(pass, qkv));
    TRY(rotate(pass, false, model->ws.qkv));
    *ready = model->ws.qkv;
out:
    return rc;
}

/* SAVED_X -> SAVED_QKV, ATT, LSE. */
static enum err attend(struct pass *pass)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    const struct layer *layer = pass->layer;
    const struct model_config *config = &model->config;
    struct attention shape = attention_shape(pass);
    float *qkv = layer->live[SAVED_QKV];
    const float *ready = NULL;
    TRY(model_norm(pass, PARAM_NORM_1_WEIGHT, layer->live[SAVED_X]));
    TRY(model_linear(pass, model->qkv_width, config->d_model, model->ws.norm,
                     pass_weight(pass, PARAM_WQKV_WEIGHT),
                     pass_weight(pass, PARAM_WQKV_BIAS), qkv));
    if (config->clip_qkv > 0.0)
        TRY(model->kernels->clip_forward(&model->ctx, DTYPE_F32,
                                         pass->n * model->qkv_width,
                                         (float)config->clip_qkv, qkv));
    if (model->ws.qkv == NULL)
        TRY(rotate(pass, false, qkv));
    TRY(qkv_ready(pass, &ready));
    TRY(model->kernels->attention_forward(&model->ctx, DTYPE_F32, &shape, ready,
                                          layer->live[SAVED_ATT],
                                          layer->live[SAVED_LSE]));
out:
    return rc;
}

/* SAVED_X, ATT -> SAVED_MID and its norm_2. */
static enum err project(struct pass *pass)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    struct workspace *ws = &model->ws;
    const struct layer *layer = pass->layer;
    int64_t d = model->config.d_model;
    struct norm norm = model_norm_shape(pass);
    TRY(model_linear(pass, d, d, layer->live[SAVED_ATT],
                     pass_weight(pass, PARAM_OUT_WEIGHT),
                     pass_weight(pass, PARAM_OUT_BIAS), ws->branch));
    TRY(model_drop_branch(pass, layer->dropout_attention));
    TRY(model->kernels->add_norm_forward(
        &model->ctx, DTYPE_F32, &norm, layer->live[SAVED_X],
        (float)model->config.residual_scale, ws->branch, layer->live[SAVED_MID],
        pass_weight(pass, PARAM_NORM_2_WEIGHT),
        pass_weight(pass, PARAM_NORM_2_BIAS), ws->norm, ws->mean, ws->rstd));
out:
    return rc;
}

enum err model_attention_forward(struct pass *pass)
{
    enum err rc = ERR_OK;
    TRY(attend(pass));
    TRY(project(pass));
out:
    return rc;
}

enum err model_attention_recompute(struct pass *pass, bool mid)
{
    enum err rc = ERR_OK;
    TRY(attend(pass));
    if (mid)
        TRY(project(pass));
out:
    return rc;
}

static enum err norm_heads_backward(struct pass *pass, const float *qkv)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    struct workspace *ws = &model->ws;
    int64_t keys = model->config.n_heads * model->head_dim;
    struct norm q = qk_norm_shape(pass, model->config.n_heads);
    struct norm key = qk_norm_shape(pass, model->config.n_kv_heads);
    TRY(k->norm_backward(&model->ctx, DTYPE_F32, &q, ws->dqkv, qkv,
                         pass_weight(pass, PARAM_Q_NORM_WEIGHT), ws->q_mean,
                         ws->q_rstd, false, ws->dqkv,
                         pass_gradient(pass, PARAM_Q_NORM_WEIGHT),
                         pass_gradient(pass, PARAM_Q_NORM_BIAS)));
    TRY(k->norm_backward(&model->ctx, DTYPE_F32, &key, ws->dqkv + keys,
                         qkv + keys, pass_weight(pass, PARAM_K_NORM_WEIGHT),
                         ws->k_mean, ws->k_rstd, false, ws->dqkv + keys,
                         pass_gradient(pass, PARAM_K_NORM_WEIGHT),
                         pass_gradient(pass, PARAM_K_NORM_BIAS)));
out:
    return rc;
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

/* ws.dqkv from the gradient of what attention read to that of the linear
 * layer's output. */
static enum err qkv_backward(struct pass *pass)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    const float *qkv = pass->layer->live[SAVED_QKV];
    TRY(rotate(pass, true, model->ws.dqkv));
    if (model->config.qk_norm != QK_NORM_NONE)
        TRY(norm_heads_backward(pass, qkv));
    if (model->config.clip_qkv > 0.0)
        TRY(model->kernels->clip_backward(
            &model->ctx, DTYPE_F32, pass->n * model->qkv_width,
            kept_bound(pass), qkv, model->ws.dqkv));
out:
    return rc;
}

enum err model_attention_backward(struct pass *pass)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    struct workspace *ws = &model->ws;
    const struct layer *layer = pass->layer;
    int64_t d = model->config.d_model;
    struct attention shape = attention_shape(pass);
    const float *dbranch = NULL;
    const float *ready = NULL;
    float *datt = ws->branch;
    TRY(model_branch_gradient(pass, layer->dropout_attention, &dbranch));
    TRY(model_linear_backward(pass, d, d, dbranch, layer->live[SAVED_ATT],
                              pass_weight(pass, PARAM_OUT_WEIGHT), datt,
                              pass_gradient(pass, PARAM_OUT_WEIGHT),
                              pass_gradient(pass, PARAM_OUT_BIAS)));
    TRY(qkv_ready(pass, &ready));
    TRY(model->kernels->attention_backward(
        &model->ctx, DTYPE_F32, &shape, ready, layer->live[SAVED_ATT],
        layer->live[SAVED_LSE], datt, ws->dqkv));
    TRY(qkv_backward(pass));
    TRY(model_norm(pass, PARAM_NORM_1_WEIGHT, layer->live[SAVED_X]));
    TRY(model_linear_backward(pass, model->qkv_width, d, ws->dqkv, ws->norm,
                              pass_weight(pass, PARAM_WQKV_WEIGHT), ws->dnorm,
                              pass_gradient(pass, PARAM_WQKV_WEIGHT),
                              pass_gradient(pass, PARAM_WQKV_BIAS)));
    TRY(model_norm_backward(pass, PARAM_NORM_1_WEIGHT, layer->live[SAVED_X],
                            ws->dnorm, ws->dx));
out:
    return rc;
}
