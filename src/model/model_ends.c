/* Both ends of the model: the embedding, and the head with the loss. */
#include "src/base/rng.h"
#include "src/model/model_impl.h"

/* --- embedding
 * ------------------------------------------------------------------- */

/* x = dropout(x), of the stream's first value or of its gradient. */
static enum err drop_embedding(struct pass *pass, float *x)
{
    const struct model *model = pass->model;
    float p = (float)model->config.dropout_embedding;
    struct random_place random = { .seed = model->options.seed,
                                   .stream = rng_stream("dropout/embedding"),
                                   .first_sample = pass->leaf->first_sample };
    if (!pass->training || p == 0.0f)
        return ERR_OK;
    return model->kernels->dropout(&model->ctx, DTYPE_F32, pass->leaf->samples,
                                   pass->leaf->seq_len * model->config.d_model,
                                   p, &random, 1.0f, x, x);
}

enum err model_embed(struct pass *pass)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    float *x = model->layers[0].live[SAVED_X];
    TRY(pass_enter(pass, 0, false));
    TRY(model->kernels->embedding_forward(
        &model->ctx, DTYPE_F32, pass->n, pass->leaf->seq_len,
        model->config.d_model, pass->leaf->tokens, pass_weight(pass, PARAM_WTE),
        pass_weight(pass, PARAM_WPE), x));
    TRY(drop_embedding(pass, x));
    TRY(pass_leave(pass));
out:
    return rc;
}

enum err model_embed_backward(struct pass *pass)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    const struct param_access *access = pass->access;
    pass->block = 0; /* its weights are not needed */
    TRY(access->gradient(access->arg, 0, &pass->gradient));
    TRY(drop_embedding(pass, model->ws.dx));
    TRY(model->kernels->embedding_backward(
        &model->ctx, DTYPE_F32, pass->n, pass->leaf->seq_len,
        model->config.d_model, pass->leaf->tokens, model->ws.dx,
        pass_gradient(pass, PARAM_WTE), pass_gradient(pass, PARAM_WPE)));
    TRY(access->gradient_done(access->arg, 0));
out:
    return rc;
}

/* --- head
 * -------------------------------------------------------------------------- */

/* Rows [first, first + rows) of the leaf: logits, losses and, with dweight,
 * their gradient into ws.dnorm and dweight. */
static enum err head_rows(struct pass *pass, int64_t first, int64_t rows,
                          const float *weight, float *dweight)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    struct workspace *ws = &model->ws;
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    int64_t d = model->config.d_model;
    int64_t v = model->config.vocab_size;
    struct gemm logits = { .form = GEMM_NT,
                           .m = rows,
                           .n = v,
                           .k = d,
                           .a = ws->norm + first * d,
                           .b = weight,
                           .c = ws->logits };
    struct gemm dx = { .form = GEMM_NN,
                       .m = rows,
                       .n = d,
                       .k = v,
                       .a = ws->logits,
                       .b = weight,
                       .c = ws->dnorm + first * d };
    struct gemm dw = { .form = GEMM_TN,
                       .m = v,
                       .n = d,
                       .k = rows,
                       .a = ws->logits,
                       .b = ws->norm + first * d,
                       .c = dweight,
                       .accumulate = true };
    TRY(k->gemm(ctx, DTYPE_F32, &logits));
    TRY(k->cross_entropy(
        ctx, DTYPE_F32, rows, v, (float)model->config.logit_scale, ws->logits,
        pass->leaf->labels + first, dweight != NULL, ws->losses + first));
    if (dweight != NULL) {
        TRY(k->gemm(ctx, DTYPE_F32, &dx));
        TRY(k->gemm(ctx, DTYPE_F32, &dw));
    }
out:
    return rc;
}

/* The matrix of the head and its gradient; when it is the embedding, that
 * block's weights are gathered too. The embedding's own gradient comes later:
 * its block is done only after model_embed_backward(). */
static enum err head_weight(struct pass *pass, bool gradient,
                            const float **weight, float **dweight)
{
    enum err rc = ERR_OK;
    const struct model *model = pass->model;
    const struct param_access *access = pass->access;
    int64_t wte = model->params->blocks[0].place[PARAM_WTE];
    *weight = pass_weight(pass, PARAM_LM_HEAD);
    *dweight = gradient ? pass_gradient(pass, PARAM_LM_HEAD) : NULL;
    if (!model->config.tied)
        return ERR_OK;
    TRY(access->gather(access->arg, 0, weight));
    *weight += wte;
    if (gradient) {
        TRY(access->gradient(access->arg, 0, dweight));
        *dweight += wte;
    }
out:
    return rc;
}

enum err model_head(struct pass *pass, bool gradient)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    struct workspace *ws = &model->ws;
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    int64_t d = model->config.d_model;
    const float *weight = NULL;
    float *dweight = NULL;
    TRY(pass_enter(pass, model->params->block_count - 1, gradient));
    TRY(head_weight(pass, gradient, &weight, &dweight));
    TRY(model_norm(pass, PARAM_NORM_F_WEIGHT, ws->x_last));
    int64_t most = model_logit_rows(model, pass->n);
    for (int64_t first = 0; first < pass->n; first += most) {
        int64_t rows = pass->n - first;
        if (rows > most)
            rows = most;
        TRY(head_rows(pass, first, rows, weight, dweight));
    }
    TRY(k->sum(ctx, pass->n, ws->losses, &pass->loss.cross_entropy));
    if (gradient) {
        TRY(k->zero(ctx, DTYPE_F32, pass->n * d, ws->dx));
        TRY(model_norm_backward(pass, PARAM_NORM_F_WEIGHT, ws->x_last,
                                ws->dnorm, ws->dx));
    }
    if (model->config.tied)
        TRY(pass->access->release(pass->access->arg, 0));
    TRY(pass_leave(pass));
out:
    return rc;
}
