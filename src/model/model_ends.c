/* Both ends of the model: the embedding, and the head with the loss. The blocks
 * in between are model_blocks.c.
 *
 * Logits are never there as a whole: with a wide vocabulary they would be
 * larger than all else of a leaf. Some rows at a time are computed, turned into
 * losses and, in place, into their gradient, and multiplied on both sides before
 * the next rows overwrite them. So the head has no backward of its own: when its
 * forward is done, dx is there.
 *
 * Where the head's matrix is the embedding, one gradient gets two
 * contributions, of the head at the turn from forward to backward and of the
 * tokens at the very end; its block is done only then. */
#include "src/model/model_impl.h"

#include <assert.h>

/* --- embedding --- */

/* x = dropout(x), of the stream's first value or of its gradient. */
static enum err drop_embedding(struct pass *pass, void *x)
{
    const struct model *model = pass->model;
    double p = pass->training ? model->config.dropout_embedding : 0.0;
    struct random_place random = model_random(pass, p, pass->dropout_embedding);
    if (p == 0.0)
        return ERR_OK;
    return model->kernels->dropout(&model->ctx, model->options.dtype,
                                   pass->leaf.samples,
                                   pass->leaf.seq_len * model->config.d_model,
                                   (float)p, &random, 1.0f, x, x);
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
    TRY(block_embed_scale(model->kernels, &model->ctx, &model->config,
                          model->options.dtype, pass->n * d, x));
    return drop_embedding(pass, x);
}

enum err model_embed(struct model *model)
{
    TRY(model_enter(model, 0, false));
    for (int i = 0; i < model->options.own_chunks; i++)
        TRY(embed(&model->passes[i]));
    return model_leave(model);
}

/* The gradient of what was looked up, which is less than the loss's. */
static enum err shrink_gradient(const struct pass *pass)
{
    const struct model *model = pass->model;
    int64_t elements = pass->n * model->config.d_model;
    float shrink = (float)model->options.embedding_shrink;
    if (shrink == 0.0f)
        return ERR_OK;
    return model->kernels->add(&model->ctx, model->options.dtype, elements,
                               pass->dx, -shrink, pass->dx, pass->dx);
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
    TRY(shrink_gradient(pass));
    TRY(block_embed_scale(model->kernels, &model->ctx, &model->config,
                          model->options.dtype, pass->n * d, pass->dx));
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

/* --- head --- */

/* The matrix of the head. */
struct head {
    const void *weight;
    float *dweight; /* the first chunk's; NULL in evaluation and where it is
                       frozen */
    int64_t stride; /* from one chunk's to the next one's */
    bool gradient;  /* of all that is below */
};

/* Rows [first, first + rows) of the chunk: logits, losses and, with gradient,
 * theirs into ws.dnorm and dweight. */
static enum err head_rows(struct pass *pass, int64_t first, int64_t rows,
                          const struct head *head, float *dweight)
{
    struct model *model = pass->model;
    struct workspace *ws = &model->ws;
    int64_t d = model->config.d_model;
    int64_t v = model->config.vocab_size;
    const void *x = at(model, ws->norm, first * d);
    const struct target plain = { 0 };
    assert(rows <= model_logit_rows(model, pass->n));
    assert(first >= 0 && first + rows <= pass->n);
    TRY(model_multiply(model, GEMM_NT, rows, v, d, x, head->weight,
                       ws->logits));
    TRY(model->kernels->cross_entropy(
        &model->ctx, model->options.dtype, rows, v,
        (float)model->config.logit_scale,
        head->gradient ? &model->options.target : &plain, ws->logits,
        pass->leaf.labels + first, head->gradient, ws->losses + first));
    if (head->gradient)
        TRY(model_multiply(model, GEMM_NN, rows, d, v, ws->logits, head->weight,
                           at(model, ws->dnorm, first * d)));
    if (dweight == NULL)
        return ERR_OK;
    return model_add_product(model, model->begins && first == 0, v, d, rows,
                             ws->logits, x, dweight);
}

/* Finds it; when it is the embedding, what trains of that block is gathered
 * too. The embedding's own gradient comes later: its block is done only after
 * model_embed_backward(). */
static enum err find_head(struct model *model, bool gradient, struct head *head)
{
    struct pass *pass = &model->passes[0];
    const struct params *params = model->params;
    const struct param_access *access = pass->access;
    bool tied = model->config.tied;
    const struct param_block *block =
        &params->blocks[tied ? 0 : params->block_count - 1];
    *head = (struct head){ .gradient = gradient, .stride = block->elements };
    if (!tied) {
        head->weight = pass_weight(pass, PARAM_LM_HEAD);
        head->dweight = gradient ? pass_gradient(pass, PARAM_LM_HEAD) : NULL;
        return ERR_OK;
    }
    if (!params_tied(params)) {
        TRY(model_frozen(model, 0, &head->weight));
        head->weight =
            at(model, head->weight, params->frozen->blocks[0].place[PARAM_WTE]);
        return ERR_OK;
    }
    TRY(access->gather(access->arg, 0, &head->weight));
    head->weight = at(model, head->weight, block->place[PARAM_WTE]);
    if (!gradient)
        return ERR_OK;
    model->staged.open = model_staged_rows_fit(model) && adds_once(model, 0);
    model->begins = model_begins(model, 0);
    TRY(access->gradient(access->arg, 0, &head->dweight));
    head->dweight += block->place[PARAM_WTE];
    if (model->staged.open)
        model_staged_rows_take_tokens(&model->passes[0], head->dweight);
    return ERR_OK;
}

/* One chunk. */
static enum err head_pass(struct pass *pass, const struct head *head,
                          float *dweight)
{
    struct model *model = pass->model;
    struct workspace *ws = &model->ws;
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    struct block b = model_block(pass);
    TRY(block_norm_of(&b, PARAM_NORM_F_WEIGHT, pass->x_last, b.norm));
    int64_t most = model_logit_rows(model, pass->n);
    for (int64_t first = 0; first < pass->n; first += most) {
        int64_t rows = pass->n - first;
        if (rows > most)
            rows = most;
        TRY(head_rows(pass, first, rows, head, dweight));
    }
    TRY(k->sum(ctx, pass->n, ws->losses, &pass->loss->cross_entropy));
    if (head->gradient) {
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
    const struct params *params = model->params;
    int last = params->block_count - 1;
    struct head head;
    /* what a matrix of its own gets from a few rows at a time is in parts */
    int64_t n = model->passes[0].n;
    if (gradient && params_trains(params, last) &&
        (model->config.tied || n <= model_logit_rows(model, n)))
        (void)adds_once(model, last);
    model->begins = gradient && model_begins(model, last);
    TRY(model_enter(model, last, gradient));
    TRY(find_head(model, gradient, &head));
    for (int i = 0; i < model->options.own_chunks; i++)
        TRY(head_pass(&model->passes[i], &head,
                      head.dweight != NULL ? head.dweight + i * head.stride
                                           : NULL));
    if (params_tied(params))
        TRY(access->release(access->arg, 0));
    return model_leave(model);
}
