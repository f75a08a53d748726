/* Backward through the blocks and the embedding. */
#include "src/model/model_impl.h"

/* Gradients of y = x W^T + b: dx = dy W, dW += dy^T x, db += column sums. */
static enum err backward_linear(struct model *model, int64_t n, int64_t out,
                                int64_t in, const float *dy, const float *x,
                                const float *w, float *dx, float *dw, float *db)
{
    enum err rc = ERR_OK;
    TRY(model_gemm(model, GEMM_NN, n, in, out, dy, w, dx, NULL));
    TRY(model_gemm_add(model, GEMM_TN, out, in, n, dy, x, dw));
    TRY(model->kernels->bias_backward(&model->ctx, DTYPE_F32, n, out, dy, db));
out:
    return rc;
}

/* The MLP's branch: model->dx is the gradient of the block's output and
 * becomes that of saved->mid. */
static enum err backward_mlp(struct model *model, int64_t n,
                             const struct layer_saved *saved,
                             const float *const *w, float *const *dw)
{
    enum err rc = ERR_OK;
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    int64_t d = model->config.d_model;
    int64_t f = model->config.expansion_ratio * d;
    struct norm norm = model_norm(model, n);
    TRY(k->activation_forward(ctx, DTYPE_F32, ACTIVATION_GELU, n * f, saved->up,
                              model->act));
    TRY(backward_linear(model, n, d, f, model->dx, model->act,
                        w[DOWN_PROJ_WEIGHT], model->dup, dw[DOWN_PROJ_WEIGHT],
                        dw[DOWN_PROJ_BIAS]));
    TRY(k->activation_backward(ctx, DTYPE_F32, ACTIVATION_GELU, n * f,
                               saved->up, model->dup, model->dup));
    TRY(k->norm_forward(ctx, DTYPE_F32, &norm, saved->mid, w[NORM_2_WEIGHT],
                        w[NORM_2_BIAS], model->norm, saved->mean_2,
                        saved->rstd_2));
    TRY(backward_linear(model, n, f, d, model->dup, model->norm,
                        w[UP_PROJ_WEIGHT], model->dnorm, dw[UP_PROJ_WEIGHT],
                        dw[UP_PROJ_BIAS]));
    TRY(k->norm_backward(ctx, DTYPE_F32, &norm, model->dnorm, saved->mid,
                         w[NORM_2_WEIGHT], saved->mean_2, saved->rstd_2, true,
                         model->dx, dw[NORM_2_WEIGHT], dw[NORM_2_BIAS]));
out:
    return rc;
}

/* The attention branch: from the gradient of saved->mid to that of saved->x. */
static enum err backward_attention(struct model *model, const struct leaf *leaf,
                                   const struct layer_saved *saved,
                                   const float *const *w, float *const *dw)
{
    enum err rc = ERR_OK;
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    int64_t n = leaf->samples * leaf->seq_len;
    int64_t d = model->config.d_model;
    struct norm norm = model_norm(model, n);
    struct attention shape = model_attention(model, leaf);
    float *datt = model->branch;
    TRY(backward_linear(model, n, d, d, model->dx, saved->att,
                        w[OUT_PROJ_WEIGHT], datt, dw[OUT_PROJ_WEIGHT],
                        dw[OUT_PROJ_BIAS]));
    TRY(k->attention_backward(ctx, DTYPE_F32, &shape, saved->qkv, saved->att,
                              saved->lse, datt, model->dqkv));
    TRY(k->norm_forward(ctx, DTYPE_F32, &norm, saved->x, w[NORM_1_WEIGHT],
                        w[NORM_1_BIAS], model->norm, saved->mean_1,
                        saved->rstd_1));
    TRY(backward_linear(model, n, 3 * d, d, model->dqkv, model->norm,
                        w[WQKV_WEIGHT], model->dnorm, dw[WQKV_WEIGHT],
                        dw[WQKV_BIAS]));
    TRY(k->norm_backward(ctx, DTYPE_F32, &norm, model->dnorm, saved->x,
                         w[NORM_1_WEIGHT], saved->mean_1, saved->rstd_1, true,
                         model->dx, dw[NORM_1_WEIGHT], dw[NORM_1_BIAS]));
out:
    return rc;
}

static enum err backward_layer(struct model *model, const struct leaf *leaf,
                               int layer, const float *weights, float *gradient)
{
    enum err rc = ERR_OK;
    const struct layer_saved *saved = &model->layers[layer];
    const float *w[LAYER_TENSORS];
    float *dw[LAYER_TENSORS];
    for (int t = 0; t < LAYER_TENSORS; t++) {
        int64_t at = layer_offset(model->params, layer, t);
        w[t] = weights + at;
        dw[t] = gradient + at;
    }
    TRY(backward_mlp(model, leaf->samples * leaf->seq_len, saved, w, dw));
    TRY(backward_attention(model, leaf, saved, w, dw));
out:
    return rc;
}

enum err model_backward(struct model *model, const struct param_access *access,
                        const struct leaf *leaf)
{
    enum err rc = ERR_OK;
    const float *weights = NULL;
    float *gradient = NULL;
    for (int layer = (int)model->config.n_layers - 1; layer >= 0; layer--) {
        TRY(access->gather(access->arg, layer + 1, &weights));
        TRY(access->gradient(access->arg, layer + 1, &gradient));
        TRY(backward_layer(model, leaf, layer, weights, gradient));
        TRY(access->gradient_done(access->arg, layer + 1));
        TRY(access->release(access->arg, layer + 1));
    }
    TRY(access->gradient(access->arg, 0, &gradient));
    TRY(model->kernels->embedding_backward(
        &model->ctx, DTYPE_F32, leaf->samples * leaf->seq_len, leaf->seq_len,
        model->config.d_model, leaf->tokens, model->dx, gradient,
        gradient + wpe_offset(model->params)));
    TRY(access->gradient_done(access->arg, 0));
out:
    return rc;
}
