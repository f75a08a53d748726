/* Forward through embedding and blocks, and the head with the loss. */
#include <math.h>

#include "src/model/model_impl.h"

struct attention model_attention(const struct model *model,
                                 const struct leaf *leaf)
{
    int64_t head_dim = model->config.d_model / model->config.n_heads;
    return (struct attention){
        .batch = leaf->samples,
        .seq = leaf->seq_len,
        .heads = model->config.n_heads,
        .kv_heads = model->config.n_heads,
        .head_dim = head_dim,
        .scale = (float)(1.0 / sqrt((double)head_dim)),
        .sequence_ids = leaf->sequence_ids,
    };
}

/* saved->x -> `out`, the next block's input. */
static enum err forward_layer(struct model *model, const struct leaf *leaf,
                              int layer, const float *weights, float *out)
{
    enum err rc = ERR_OK;
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    struct layer_saved *saved = &model->layers[layer];
    int64_t n = leaf->samples * leaf->seq_len;
    int64_t d = model->config.d_model;
    int64_t f = model->config.expansion_ratio * d;
    struct norm norm = model_norm(model, n);
    struct attention shape = model_attention(model, leaf);
    const float *w[LAYER_TENSORS];
    for (int t = 0; t < LAYER_TENSORS; t++)
        w[t] = weights + layer_offset(model->params, layer, t);

    TRY(k->norm_forward(ctx, DTYPE_F32, &norm, saved->x, w[NORM_1_WEIGHT],
                        w[NORM_1_BIAS], model->norm, saved->mean_1,
                        saved->rstd_1));
    TRY(model_gemm(model, GEMM_NT, n, 3 * d, d, model->norm, w[WQKV_WEIGHT],
                   saved->qkv, w[WQKV_BIAS]));
    TRY(k->attention_forward(ctx, DTYPE_F32, &shape, saved->qkv, saved->att,
                             saved->lse));
    TRY(model_gemm(model, GEMM_NT, n, d, d, saved->att, w[OUT_PROJ_WEIGHT],
                   model->branch, w[OUT_PROJ_BIAS]));
    TRY(k->add(ctx, DTYPE_F32, n * d, saved->x, 1.0f, model->branch,
               saved->mid));

    TRY(k->norm_forward(ctx, DTYPE_F32, &norm, saved->mid, w[NORM_2_WEIGHT],
                        w[NORM_2_BIAS], model->norm, saved->mean_2,
                        saved->rstd_2));
    TRY(model_gemm(model, GEMM_NT, n, f, d, model->norm, w[UP_PROJ_WEIGHT],
                   saved->up, w[UP_PROJ_BIAS]));
    TRY(k->activation_forward(ctx, DTYPE_F32, ACTIVATION_GELU, n * f, saved->up,
                              model->act));
    TRY(model_gemm(model, GEMM_NT, n, d, f, model->act, w[DOWN_PROJ_WEIGHT],
                   model->branch, w[DOWN_PROJ_BIAS]));
    TRY(k->add(ctx, DTYPE_F32, n * d, saved->mid, 1.0f, model->branch, out));
out:
    return rc;
}

enum err model_forward(struct model *model, const struct param_access *access,
                       const struct leaf *leaf)
{
    enum err rc = ERR_OK;
    const float *weights = NULL;
    int layers = (int)model->config.n_layers;
    int64_t n = leaf->samples * leaf->seq_len;
    TRY(access->gather(access->arg, 0, &weights));
    TRY(model->kernels->embedding_forward(
        &model->ctx, DTYPE_F32, n, leaf->seq_len, model->config.d_model,
        leaf->tokens, weights, weights + wpe_offset(model->params),
        model->layers[0].x));
    TRY(access->release(access->arg, 0));
    for (int layer = 0; layer < layers; layer++) {
        float *next =
            layer + 1 < layers ? model->layers[layer + 1].x : model->x_last;
        TRY(access->gather(access->arg, layer + 1, &weights));
        TRY(forward_layer(model, leaf, layer, weights, next));
        TRY(access->release(access->arg, layer + 1));
    }
out:
    return rc;
}

/* Rows [first, first + rows) of the leaf: logits, losses and, with dwte, their
 * gradient into dnorm and dwte. */
static enum err head_rows(struct model *model, const struct leaf *leaf,
                          int64_t first, int64_t rows, const float *wte,
                          float *dwte)
{
    enum err rc = ERR_OK;
    int64_t d = model->config.d_model;
    int64_t v = model->config.vocab_size;
    const float *x = model->norm + first * d;
    TRY(model_gemm(model, GEMM_NT, rows, v, d, x, wte, model->logits, NULL));
    TRY(model->kernels->cross_entropy(&model->ctx, DTYPE_F32, rows, v, 1.0f,
                                      model->logits, leaf->labels + first,
                                      dwte != NULL, model->losses + first));
    if (dwte != NULL) {
        TRY(model_gemm(model, GEMM_NN, rows, d, v, model->logits, wte,
                       model->dnorm + first * d, NULL));
        TRY(model_gemm_add(model, GEMM_TN, v, d, rows, model->logits, x, dwte));
    }
out:
    return rc;
}

enum err model_head(struct model *model, const struct param_access *access,
                    const struct leaf *leaf, bool gradient, double *loss_sum)
{
    enum err rc = ERR_OK;
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    int last = model->params->block_count - 1;
    int64_t n = leaf->samples * leaf->seq_len;
    int64_t d = model->config.d_model;
    int64_t bias = norm_f_bias_offset(model->params);
    struct norm norm = model_norm(model, n);
    const float *norm_f = NULL;
    const float *wte = NULL;
    float *dnorm_f = NULL;
    float *dwte = NULL;

    TRY(access->gather(access->arg, last, &norm_f));
    TRY(access->gather(access->arg, 0, &wte));
    if (gradient)
        TRY(access->gradient(access->arg, 0, &dwte));
    TRY(k->norm_forward(ctx, DTYPE_F32, &norm, model->x_last, norm_f,
                        norm_f + bias, model->norm, model->mean_f,
                        model->rstd_f));
    for (int64_t first = 0; first < n; first += MODEL_LOGIT_ROWS) {
        int64_t rows = n - first;
        if (rows > MODEL_LOGIT_ROWS)
            rows = MODEL_LOGIT_ROWS;
        TRY(head_rows(model, leaf, first, rows, wte, dwte));
    }
    TRY(k->sum(ctx, n, model->losses, loss_sum));
    if (gradient) {
        TRY(access->gradient(access->arg, last, &dnorm_f));
        TRY(k->zero(ctx, DTYPE_F32, n * d, model->dx));
        TRY(k->norm_backward(ctx, DTYPE_F32, &norm, model->dnorm, model->x_last,
                             norm_f, model->mean_f, model->rstd_f, true,
                             model->dx, dnorm_f, dnorm_f + bias));
        TRY(access->gradient_done(access->arg, last));
    }
    TRY(access->release(access->arg, 0));
    TRY(access->release(access->arg, last));
out:
    return rc;
}
