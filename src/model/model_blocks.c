/* All transformer blocks in order: entering them, packing what forward keeps,
 * bringing back what backward needs.
 *
 * To enter a block is to ask whoever keeps the parameters for its weights and,
 * backward, for the place of its gradient; to leave it tells that they are not
 * needed any more and that the gradient is complete. That is all the model knows
 * of other ranks: weights may come from them while a block is computed, and
 * gradients leave while the next one is.
 *
 * The chunks of a sequence go through a block together, all to attention, and
 * all from there, because attention is where they look at each other. */
#include "src/model/model_impl.h"

#include <assert.h>

#include "kernels/kernel_profile.h"
#include "src/base/rng.h"

/* --- what the halves of a block share --- */

static bool in_fp8(const struct pass *pass, enum linear linear)
{
    return pass->model->options.fp8 && linear < LINEARS_FP8;
}

static const void *vector(const void *arg, enum param_role role)
{
    return pass_weight(arg, role);
}

/* Probabilities of experts are fp32 whatever their product was computed in. */
static enum err product(void *arg, enum linear linear, enum param_role role,
                        int64_t out, int64_t in, const void *x,
                        const void *bias, void *y)
{
    struct pass *pass = arg;
    const struct model *model = pass->model;
    enum dtype dtype = model->options.dtype;
    bool widens = linear == LINEAR_ROUTER && dtype != DTYPE_F32;
    struct gemm gemm = { GEMM_OF(GEMM_NT, pass->n, out, in, x,
                                 pass_weight(pass, role),
                                 widens ? model->ws.router_logits : y),
                         .bias = bias };
    if (in_fp8(pass, linear))
        return model_fp8_linear(pass, linear, out, in, x, gemm.b, bias, y);
    TRY(model->kernels->gemm(&model->ctx, dtype, &gemm));
    return widens ? model->kernels->convert(&model->ctx, pass->n * out, dtype,
                                            gemm.c, DTYPE_F32, y)
                  : ERR_OK;
}

enum err model_multiply(const struct model *model, enum gemm_form form,
                        int64_t m, int64_t n, int64_t k, const void *a,
                        const void *b, void *c)
{
    struct gemm gemm = { GEMM_OF(form, m, n, k, a, b, c) };
    assert(form != GEMM_TN);
    return model->kernels->gemm(&model->ctx, model->options.dtype, &gemm);
}

enum err model_add_product(const struct model *model, bool begins, int64_t m,
                           int64_t n, int64_t k, const void *a, const void *b,
                           float *c)
{
    struct gemm gemm = { GEMM_OF(GEMM_TN, m, n, k, a, b, c), .accumulate = true,
                         .begins = begins };
    return model->kernels->gemm(&model->ctx, model->options.dtype, &gemm);
}

enum err model_linear_backward(struct pass *pass, enum linear linear,
                               const void *dy, const void *x, void *dx)
{
    const struct model *model = pass->model;
    const struct block_linear l = block_linear(&model->config, linear);
    const void *weight = pass_weight(pass, l.weight);
    float *dweight = pass_gradient(pass, l.weight);
    float *dbias = l.bias == PARAM_ROLES ? NULL : pass_gradient(pass, l.bias);
    if (in_fp8(pass, linear)) {
        TRY(model_fp8_linear_backward(pass, linear, l.out, l.in, dy, x, weight,
                                      dx, dweight));
    } else {
        TRY(model_multiply(model, GEMM_NN, pass->n, l.in, l.out, dy, weight,
                           dx));
        if (dweight != NULL)
            TRY(model_add_product(model, model->begins, l.out, l.in, pass->n,
                                  dy, x, dweight));
    }
    if (dbias != NULL)
        TRY(model->kernels->bias_backward(&model->ctx, model->options.dtype,
                                          pass->n, l.out, dy, dbias));
    return model_lora_backward(pass, linear, dy, x, dx);
}

enum err model_activate_backward(const struct model *model, int64_t rows,
                                 bool apart, const void *hidden)
{
    const struct model_config *config = &model->config;
    const struct workspace *ws = &model->ws;
    enum dtype dtype = model->options.dtype;
    enum activation op = model_activation_op(config->activation);
    int64_t f = config->ffn_width;
    if (config->ffn == FFN_GLU)
        return model->kernels->glu_backward(
            &model->ctx, dtype, op, rows, f, apart ? f : 2 * f, hidden,
            block_up(config, dtype, rows, apart, hidden), ws->dact, ws->dhidden,
            block_up(config, dtype, rows, apart, ws->dhidden));
    return model->kernels->activation_backward(&model->ctx, dtype, op, rows * f,
                                               hidden, ws->dact, ws->dhidden);
}

enum err model_norm_backward(struct pass *pass, enum param_role role,
                             const void *x, const void *dnorm, void *dx)
{
    struct workspace *ws = &pass->model->ws;
    struct norm norm = block_norm(&pass->model->config, pass->n);
    return pass->model->kernels->norm_backward(
        &pass->model->ctx, pass->model->options.dtype, &norm, dnorm, x,
        pass_weight(pass, role), ws->mean, ws->rstd, true, dx,
        pass_norm_gradient(pass, role), pass_gradient(pass, role + 1));
}

enum err model_input_again(const struct block *b, enum param_role role,
                           const void *x)
{
    return b->config->norm_place == NORM_AFTER
               ? ERR_OK
               : block_norm_of(b, role, x, b->norm);
}

enum err model_input_backward(struct pass *pass, enum param_role role,
                              const void *x)
{
    struct model *model = pass->model;
    void *dinput = model->ws.dnorm;
    if (model->config.norm_place != NORM_AFTER)
        return model_norm_backward(pass, role, x, dinput, pass->dx);
    return model->kernels->accumulate(&model->ctx, model->options.dtype,
                                      pass->n * model->config.d_model, dinput,
                                      pass->dx);
}

enum err model_branch_norm_backward(struct pass *pass, enum param_role role,
                                    enum linear linear, const void *x,
                                    const void **dbranch)
{
    struct model *model = pass->model;
    struct workspace *ws = &model->ws;
    struct block b = model_block(pass);
    struct norm norm = block_norm(&model->config, pass->n);
    if (model->config.norm_place == NORM_BEFORE)
        return ERR_OK;
    role = block_after_role(&model->config, role);
    TRY(block_apply(&b, linear, x, ws->branch));
    TRY(block_norm_of(&b, role, ws->branch, ws->norm));
    TRY(model->kernels->norm_backward(
        &model->ctx, model->options.dtype, &norm, *dbranch, ws->branch,
        pass_weight(pass, role), ws->mean, ws->rstd, false, ws->dnorm,
        pass_norm_gradient(pass, role), pass_gradient(pass, role + 1)));
    *dbranch = ws->dnorm;
    return ERR_OK;
}

static bool drops_depth(const struct pass *pass)
{
    return pass->training && pass->model->options.drop_depth > 0.0;
}

/* x [n, d] is multiplied sample by sample. All chunks of a sample and both
 * halves of the layer draw the same. */
static enum err drop_depth(const struct pass *pass, void *x)
{
    const struct model *model = pass->model;
    const struct leaf *leaf = &pass->leaf;
    int64_t elements = leaf->seq_len * model->config.d_model;
    double p = model->options.drop_depth * (double)(pass->number + 1) /
               (double)model->config.n_layers;
    const struct random_place none = { 0 };
    const struct random_place random =
        model_random(pass, p, pass->layer->drop_depth);
    for (int64_t i = 0; i < leaf->samples; i++) {
        double drawn = rng_uniform(random.seed, random.stream,
                                   (uint64_t)(random.first_sample + i));
        float factor = drawn < p ? 0.0f : (float)(1.0 / (1.0 - p));
        void *sample = at(model, x, i * elements);
        TRY(model->kernels->dropout(&model->ctx, model->options.dtype, 1,
                                    elements, 0.0f, &none, factor, sample,
                                    sample));
    }
    return ERR_OK;
}

static enum err drop_branch(void *arg, bool attention)
{
    struct pass *pass = arg;
    struct model *model = pass->model;
    double p = pass->training ? model->config.dropout_residual : 0.0;
    struct random_place random = model_random(
        pass, p,
        attention ? pass->layer->dropout_attention : pass->layer->dropout_ffn);
    if (p > 0.0)
        TRY(model->kernels->dropout(
            &model->ctx, model->options.dtype, pass->leaf.samples,
            pass->leaf.seq_len * model->config.d_model, (float)p, &random, 1.0f,
            model->ws.branch, model->ws.branch));
    return drops_depth(pass) ? drop_depth(pass, model->ws.branch) : ERR_OK;
}

enum err model_branch_gradient(struct pass *pass, uint64_t stream,
                               const void **dbranch)
{
    struct model *model = pass->model;
    float p = (float)model->config.dropout_residual;
    struct random_place random = model_random(pass, p, stream);
    *dbranch = pass->dx;
    if (model->ws.dbranch == NULL)
        return ERR_OK;
    *dbranch = model->ws.dbranch;
    TRY(model->kernels->dropout(
        &model->ctx, model->options.dtype, pass->leaf.samples,
        pass->leaf.seq_len * model->config.d_model, p, &random,
        (float)model->config.residual_scale, pass->dx, model->ws.dbranch));
    return drops_depth(pass) ? drop_depth(pass, model->ws.dbranch) : ERR_OK;
}

static const struct block_walker walker = {
    .vector = vector,
    .product = product,
    .experts = model_experts_product,
    .adapter_input = model_lora_input,
    .router_input = model_moe_input,
    .routed = model_moe_balance,
    .serve = model_moe_serve,
    .branch = drop_branch,
};

struct block model_block(struct pass *pass)
{
    static const struct layer none; /* at both ends of the model */
    struct model *model = pass->model;
    const struct workspace *ws = &model->ws;
    const struct layer *layer = pass->layer != NULL ? pass->layer : &none;
    const float *rope = block_tables_rope(
        &model->config, pass->number, model->tables.rope, model->tables.apart);
    assert(pass->n > 0 && pass->block < model->params->block_count);
    return (struct block){
        .config = &model->config,
        .params = model->params,
        .kernels = model->kernels,
        .ctx = &model->ctx,
        .dtype = model->options.dtype,
        .number = pass->block,
        .n = pass->n,
        .seq = pass->leaf.seq_len,
        .rope = rope != NULL ? rope + pass->first * model->head_dim : NULL,
        .x = layer->live[SAVED_X],
        .mid = layer->live[SAVED_MID],
        .branch = ws->branch,
        .norm = ws->norm,
        .mean = ws->mean,
        .rstd = ws->rstd,
        .qkv = layer->live[SAVED_QKV],
        .ready = pass->qkv != NULL ? pass->qkv : layer->live[SAVED_QKV],
        .q_mean = pass->q_mean,
        .q_rstd = pass->q_rstd,
        .k_mean = pass->k_mean,
        .k_rstd = pass->k_rstd,
        .attended = layer->live[SAVED_ATT],
        .hidden = layer->live[SAVED_HIDDEN],
        .act = layer->act,
        .sorted = ws->rows,
        .routing = &layer->routing,
        .lora = model->lora.block,
        .walker = &walker,
        .arg = pass,
    };
}

/* --- keeping and bringing back --- */

static enum err pack(struct pass *pass, enum saved kind)
{
    const struct model *model = pass->model;
    const struct layer *layer = pass->layer;
    if (!pass->training || layer->packed[kind] == NULL)
        return ERR_OK;
    return model->kernels->pack(
        &model->ctx, model->options.dtype, model_packing(model, kind),
        model_saved_rows(model, kind, pass->n), model_saved_cols(model, kind),
        layer->live[kind], layer->packed[kind]);
}

static enum err unpack(struct pass *pass, enum saved kind)
{
    const struct model *model = pass->model;
    const struct layer *layer = pass->layer;
    if (layer->packed[kind] == NULL)
        return ERR_OK;
    return model->kernels->unpack(
        &model->ctx, model->options.dtype, model_packing(model, kind),
        model_saved_rows(model, kind, pass->n), model_saved_cols(model, kind),
        layer->packed[kind], layer->live[kind]);
}

static const struct layer *first_layer(const struct model *model)
{
    return model->passes[0].layer; /* what is kept is the same for all chunks */
}

/* What attention's backward needs, of all chunks. */
static enum err bring_back_attention(struct model *model)
{
    bool again = first_layer(model)->recompute[SAVED_QKV];
    for (int i = 0; i < model->options.own_chunks; i++) {
        struct pass *pass = &model->passes[i];
        for (int kind = SAVED_X; kind <= SAVED_LSE; kind++)
            TRY(unpack(pass, kind));
        struct block b = model_block(pass);
        if (again)
            TRY(block_before(&b));
    }
    if (again)
        TRY(model_attention_forward(model));
    return ERR_OK;
}

/* What the other half's needs, of one chunk: it lies where the next one's
 * will. */
static enum err bring_back_ffn(struct pass *pass)
{
    const struct layer *layer = pass->layer;
    struct block b = model_block(pass);
    TRY(unpack(pass, SAVED_MID));
    TRY(unpack(pass, SAVED_HIDDEN));
    if (layer->recompute[SAVED_MID])
        TRY(block_after(&b));
    if (layer->recompute[SAVED_HIDDEN])
        TRY(pass->model->config.experts > 0 ? model_moe_recompute(pass)
                                            : model_mlp_recompute(pass));
    return ERR_OK;
}

/* --- the blocks --- */

/* The block's output is the next one's input. */
static void *output_of(const struct pass *pass)
{
    assert(pass->number >= 0 && pass->number < pass->model->config.n_layers);
    return pass->number + 1 < pass->model->config.n_layers
               ? pass->layers[pass->number + 1].live[SAVED_X]
               : pass->x_last;
}

/* From SAVED_ATT to the block's output. */
static enum err finish_forward(struct pass *pass)
{
    struct model *model = pass->model;
    struct block b = model_block(pass);
    TRY(block_after(&b));
    TRY(block_ffn(&b));
    for (int kind = SAVED_QKV; kind < SAVED_KINDS; kind++)
        TRY(pack(pass, kind));
    TRY(model->kernels->add(
        &model->ctx, model->options.dtype, pass->n * model->config.d_model,
        b.mid, (float)model->config.residual_scale, b.branch, output_of(pass)));
    return pass->training && model->look != NULL
               ? model_look_at(pass, output_of(pass))
               : ERR_OK;
}

static enum err block_forward(struct model *model)
{
    for (int i = 0; i < model->options.own_chunks; i++) {
        struct block b = model_block(&model->passes[i]);
        TRY(pack(&model->passes[i], SAVED_X));
        TRY(block_before(&b));
    }
    TRY(model_attention_forward(model));
    for (int i = 0; i < model->options.own_chunks; i++)
        TRY(finish_forward(&model->passes[i]));
    return model_leave_experts(model);
}

static enum err block_backward(struct model *model)
{
    TRY(bring_back_attention(model));
    for (int i = 0; i < model->options.own_chunks; i++) {
        struct pass *pass = &model->passes[i];
        TRY(bring_back_ffn(pass));
        TRY(model->config.experts > 0 ? model_moe_backward(pass)
                                      : model_mlp_backward(pass));
        TRY(model_attention_after_backward(pass));
    }
    TRY(model_leave_experts(model));
    TRY(model_attention_backward(model));
    for (int i = 0; i < model->options.own_chunks; i++)
        TRY(model_attention_before_backward(&model->passes[i]));
    return ERR_OK;
}

static struct timeline *timeline_of(const struct model *model)
{
    return kernel_profile_timeline(model->ctx.profile);
}

static enum err blocks_walk(struct model *model, bool back)
{
    int count = (int)model->config.n_layers;
    int lowest = back ? params_lowest_layer(model->params) : 0;
    struct timeline_span span;
    struct timeline_detail block = { .label = back ? "block backward"
                                                   : "block forward",
                                     .dims = "layer" };
    for (int i = lowest; i < count; i++) {
        int layer = back ? lowest + count - 1 - i : i;
        block.dim[0] = layer;
        timeline_begin_named(timeline_of(model), &span, TIMELINE_BLOCK,
                             block.label);
        TRY(model_enter_layer(model, layer, back));
        TRY(back ? block_backward(model) : block_forward(model));
        TRY(model_leave(model));
        timeline_end(&span, &block);
    }
    return ERR_OK;
}

enum err model_blocks_forward(struct model *model)
{
    return blocks_walk(model, false);
}

enum err model_blocks_backward(struct model *model)
{
    return blocks_walk(model, true);
}
