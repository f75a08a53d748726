/* Both ends of the model: the embedding, and the head with the loss. The blocks
 * in between are model_blocks.c. */
#include "src/model/model_impl.h"

#include <assert.h>

/* --- embedding
 * ------------------------------------------------------------------- */

/* x = dropout(x), of the stream's first value or of its gradient. */
static enum err drop_embedding(struct pass *pass, void *x)
{
    const struct model *model = pass->model;
    float p = (float)model->config.dropout_embedding;
    struct random_place random = { .seed = model->options.seed,
                                   .stream = pass->dropout_embedding,
                                   .first_sample = pass->leaf.first_sample };
    if (!pass->training || p == 0.0f)
        return ERR_OK;
    return model->kernels->dropout(
        &model->ctx, model->options.dtype, pass->leaf.samples,
        pass->leaf.seq_len * model->config.d_model, p, &random, 1.0f, x, x);
}

static enum err embed(struct pass *pass)
{
    struct model *model = pass->model;
    int64_t d = model->config.d_model;
    const void *wpe = pass_weight(pass, PARAM_WPE);
    void *x = pass->layers[0].live[SAVED_X];
    assert(pass->first + pass->leaf.seq_len <= model->config.max_seq_len);
    TRY(model->kernels->embedding_forward(
        &model->ctx, model->options.dtype, pass->n, pass->leaf.seq_len, d,
        pass->leaf.tokens, pass_weight(pass, PARAM_WTE),
        wpe != NULL ? at(model, wpe, pass->first * d) : NULL, x));
    return drop_embedding(pass, x);
}

enum err model_embed(struct model *model)
{
    TRY(model_enter(model, 0, false));
    for (int i = 0; i < model->options.own_chunks; i++)
        TRY(embed(&model->passes[i]));
    return model_leave(model);
}

static enum err embed_backward(struct pass *pass)
{
    struct model *model = pass->model;
    int64_t d = model->config.d_model;
    float *dwte = pass_gradient(pass, PARAM_WTE);
    float *dwpe = pass_gradient(pass, PARAM_WPE);
    if (dwpe != NULL)
        dwpe += pass->first * d;
    TRY(drop_embedding(pass, pass->dx));
    if (model->staged.open && !model->config.tied)
        model_staged_rows_take_tokens(pass, dwte);
    if (model->staged.open)
        model_staged_rows_take_positions(pass, dwpe);
    TRY(model->kernels->embedding_backward(
        &model->ctx, model->options.dtype, pass->n, pass->leaf.seq_len, d,
        pass->leaf.tokens, pass->dx, dwte, dwpe));
    if (model->staged.open)
        TRY(model_staged_rows_add(pass, dwte, dwpe));
    return ERR_OK;
}

static bool adds_once(const struct model *model, int block)
{
    const struct param_access *access = model->passes[0].access;
    return access->once != NULL && access->once(access->arg, block);
}

enum err model_embed_backward(struct model *model)
{
    const struct param_access *access = model->passes[0].access;
    if (!model->config.tied)
        model->staged.open =
            model_staged_rows_fit(model) && adds_once(model, 0);
    TRY(model_enter_gradient(model, 0));
    for (int i = 0; i < model->options.own_chunks; i++)
        TRY(embed_backward(&model->passes[i]));
    return access->gradient_done(access->arg, 0);
}

/* --- head
 * -------------------------------------------------------------------------- */

/* Rows [first, first + rows) of the chunk: logits, losses and, with dweight,
 * their gradient into ws.dnorm and dweight. */
static enum err head_rows(struct pass *pass, int64_t first, int64_t rows,
                          const void *weight, float *dweight)
{
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
                           .a = at(model, ws->norm, first * d),
                           .b = weight,
                           .c = ws->logits };
    struct gemm dx = { .form = GEMM_NN,
                       .m = rows,
                       .n = d,
                       .k = v,
                       .a = ws->logits,
                       .b = weight,
                       .c = at(model, ws->dnorm, first * d) };
    struct gemm dw = { .form = GEMM_TN,
                       .m = v,
                       .n = d,
                       .k = rows,
                       .a = ws->logits,
                       .b = at(model, ws->norm, first * d),
                       .c = dweight,
                       .accumulate = true,
                       .begins = model->begins && first == 0 };
    assert(rows <= model_logit_rows(model, pass->n));
    assert(first >= 0 && first + rows <= pass->n);
    TRY(k->gemm(ctx, model->options.dtype, &logits));
    TRY(k->cross_entropy(ctx, model->options.dtype, rows, v,
                         (float)model->config.logit_scale, ws->logits,
                         pass->leaf.labels + first, dweight != NULL,
                         ws->losses + first));
    if (dweight != NULL) {
        TRY(k->gemm(ctx, model->options.dtype, &dx));
        TRY(k->gemm(ctx, model->options.dtype, &dw));
    }
    return ERR_OK;
}

/* The matrix of the head and the first chunk's gradient; when it is the
 * embedding, that block's weights are gathered too. The embedding's own
 * gradient comes later: its block is done only after model_embed_backward(). */
static enum err head_weight(struct model *model, bool gradient,
                            const void **weight, float **dweight)
{
    struct pass *pass = &model->passes[0];
    const struct param_access *access = pass->access;
    int64_t wte = model->params->blocks[0].place[PARAM_WTE];
    *weight = pass_weight(pass, PARAM_LM_HEAD);
    *dweight = gradient ? pass_gradient(pass, PARAM_LM_HEAD) : NULL;
    if (!model->config.tied)
        return ERR_OK;
    TRY(access->gather(access->arg, 0, weight));
    *weight = at(model, *weight, wte);
    if (!gradient)
        return ERR_OK;
    model->staged.open = model_staged_rows_fit(model) && adds_once(model, 0);
    model->begins = model_begins(model, 0);
    TRY(access->gradient(access->arg, 0, dweight));
    *dweight += wte;
    if (model->staged.open)
        model_staged_rows_take_tokens(&model->passes[0], *dweight);
    return ERR_OK;
}

/* dweight: this chunk's; NULL in evaluation. */
static enum err head(struct pass *pass, const void *weight, float *dweight)
{
    struct model *model = pass->model;
    struct workspace *ws = &model->ws;
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    TRY(model_norm(pass, PARAM_NORM_F_WEIGHT, pass->x_last));
    int64_t most = model_logit_rows(model, pass->n);
    for (int64_t first = 0; first < pass->n; first += most) {
        int64_t rows = pass->n - first;
        if (rows > most)
            rows = most;
        TRY(head_rows(pass, first, rows, weight, dweight));
    }
    TRY(k->sum(ctx, pass->n, ws->losses, &pass->loss->cross_entropy));
    if (dweight != NULL) {
        TRY(k->zero(ctx, model->options.dtype, pass->n * model->config.d_model,
                    pass->dx));
        TRY(model_norm_backward(pass, PARAM_NORM_F_WEIGHT, pass->x_last,
                                ws->dnorm, pass->dx));
    }
    return ERR_OK;
}

enum err model_head(struct model *model, bool gradient)
{
    const struct param_access *access = model->passes[0].access;
    int last = model->params->block_count - 1;
    const struct param_block *block =
        &model->params->blocks[model->config.tied ? 0 : last];
    const void *weight = NULL;
    float *dweight = NULL;
    /* what a matrix of its own gets from a few rows at a time is in parts */
    int64_t n = model->passes[0].n;
    if (gradient && (model->config.tied || n <= model_logit_rows(model, n)))
        (void)adds_once(model, last);
    model->begins = gradient && model_begins(model, last);
    TRY(model_enter(model, last, gradient));
    TRY(head_weight(model, gradient, &weight, &dweight));
    for (int i = 0; i < model->options.own_chunks; i++)
        TRY(head(&model->passes[i], weight,
                 gradient ? dweight + i * block->elements : NULL));
    if (model->config.tied)
        TRY(access->release(access->arg, 0));
    return model_leave(model);
}
