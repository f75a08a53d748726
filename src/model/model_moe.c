/* The other half of a block with experts: dropless top-k routing (MegaBlocks,
 * Gale et al. 2022; DBRX). Tokens are put into the experts' order, each expert
 * works on its own rows, and a token's results are added with its weights. */
#include "src/model/model_impl.h"

static struct route route_of(const struct pass *pass)
{
    const struct model_config *config = &pass->model->config;
    return (struct route){
        .n = pass->n,
        .experts = (int)config->experts,
        .top_k = (int)config->experts_top_k,
        .normalize = (float)config->router_normalize,
    };
}

static enum activation activation_of(const struct model *model)
{
    return model->config.activation == MODEL_SILU ? ACTIVATION_SILU
                                                  : ACTIVATION_GELU;
}

/* c[row, n] from a[row, k] and each expert's matrix. */
static enum err experts_gemm(struct pass *pass, enum gemm_form form, int64_t n,
                             int64_t k, const float *a, const float *b,
                             bool accumulate, float *c)
{
    struct grouped_gemm gemm = { .form = form,
                                 .groups = (int)pass->model->config.experts,
                                 .offsets = pass->layer->routing.offsets,
                                 .n = n,
                                 .k = k,
                                 .a = a,
                                 .b = b,
                                 .c = c,
                                 .accumulate = accumulate };
    return pass->model->kernels->grouped_gemm(&pass->model->ctx, DTYPE_F32,
                                              &gemm);
}

/* Each expert's dweight[m, n] += a[rows, m]^T b[rows, n]. */
static enum err experts_gradient(struct pass *pass, int64_t m, int64_t n,
                                 const float *a, const float *b, float *dweight)
{
    struct grouped_gemm gemm = { .form = GEMM_TN,
                                 .groups = (int)pass->model->config.experts,
                                 .offsets = pass->layer->routing.offsets,
                                 .m = m,
                                 .n = n,
                                 .a = a,
                                 .b = b,
                                 .c = dweight,
                                 .accumulate = true };
    return pass->model->kernels->grouped_gemm(&pass->model->ctx, DTYPE_F32,
                                              &gemm);
}

/* Gate and up of all sorted rows, one after the other. */
static float *up_of(const struct pass *pass, float *hidden)
{
    const struct model_config *config = &pass->model->config;
    return config->ffn == FFN_GLU
               ? hidden + pass->n * config->experts_top_k * config->ffn_width
               : hidden;
}

/* ws.norm -> SAVED_HIDDEN, by routing that is there. */
static enum err hidden(struct pass *pass)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    struct route route = route_of(pass);
    float *gate = pass->layer->live[SAVED_HIDDEN];
    int64_t d = model->config.d_model;
    int64_t f = model->config.ffn_width;
    TRY(model->kernels->expert_gather(&model->ctx, DTYPE_F32, &route, d,
                                      pass->layer->routing.source,
                                      model->ws.norm, model->ws.rows));
    if (model->config.ffn == FFN_GLU)
        TRY(experts_gemm(pass, GEMM_NT, f, d, model->ws.rows,
                         pass_weight(pass, PARAM_EXPERTS_GATE), false, gate));
    TRY(experts_gemm(pass, GEMM_NT, f, d, model->ws.rows,
                     pass_weight(pass, PARAM_EXPERTS_UP), false,
                     up_of(pass, gate)));
out:
    return rc;
}

static enum err activate(struct pass *pass)
{
    const struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    float *x = pass->layer->live[SAVED_HIDDEN];
    int64_t f = model->config.ffn_width;
    int64_t rows = pass->n * model->config.experts_top_k;
    if (model->config.ffn == FFN_GLU)
        return k->glu_forward(&model->ctx, DTYPE_F32, activation_of(model),
                              rows, f, f, x, up_of(pass, x), model->ws.act);
    return k->activation_forward(&model->ctx, DTYPE_F32, activation_of(model),
                                 rows * f, x, model->ws.act);
}

static enum err activate_backward(struct pass *pass)
{
    const struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    const struct workspace *ws = &model->ws;
    float *x = pass->layer->live[SAVED_HIDDEN];
    int64_t f = model->config.ffn_width;
    int64_t rows = pass->n * model->config.experts_top_k;
    if (model->config.ffn == FFN_GLU)
        return k->glu_backward(&model->ctx, DTYPE_F32, activation_of(model),
                               rows, f, f, x, up_of(pass, x), ws->dact,
                               ws->dhidden, up_of(pass, ws->dhidden));
    return k->activation_backward(&model->ctx, DTYPE_F32, activation_of(model),
                                  rows * f, x, ws->dact, ws->dhidden);
}

/* --- routing
 * -------------------------------------------------------------------- */

/* ws.norm as the router sees it. */
static enum err router_input(struct pass *pass, const float **input)
{
    struct model *model = pass->model;
    struct random_place random = { .seed = model->options.seed,
                                   .stream = pass->layer->jitter,
                                   .first_sample = pass->leaf->first_sample };
    *input = model->ws.norm;
    if (!pass->training || model->config.router_jitter == 0.0)
        return ERR_OK;
    *input = model->ws.router_in;
    return model->kernels->jitter(&model->ctx, DTYPE_F32, pass->leaf->samples,
                                  pass->leaf->seq_len * model->config.d_model,
                                  (float)model->config.router_jitter, &random,
                                  model->ws.norm, model->ws.router_in);
}

/* What one choice of an expert by the mean probability of it weighs in the
 * loss: E w / (L n k), times the tokens that bear loss, because losses are sums
 * over them. */
static double balance_scale(const struct pass *pass)
{
    const struct model_config *config = &pass->model->config;
    return (double)config->experts * config->balance_weight /
           (double)(config->n_layers * config->experts_top_k * pass->n) *
           (double)pass->loss_tokens;
}

/* sum over experts of (choices of it) (mean probability of it): smallest when
 * both are even (Fedus, Zoph and Shazeer 2021). */
static enum err balance_loss(struct pass *pass, const struct route *route)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    const struct routing *routing = &pass->layer->routing;
    int64_t *counts =
        model->ws.expert_counts + (pass->block - 1) * model->config.experts;
    double sum = 0.0;
    TRY(model->kernels->route_sums(&model->ctx, route, routing->probs,
                                   model->ws.prob_sums));
    for (int e = 0; e < route->experts; e++) {
        int64_t count = routing->offsets[e + 1] - routing->offsets[e];
        counts[e] += count;
        sum += (double)count * model->ws.prob_sums[e] / (double)pass->n;
    }
    pass->loss.balance += balance_scale(pass) * sum;
out:
    return rc;
}

static enum err choose(struct pass *pass)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    const struct routing *routing = &pass->layer->routing;
    struct route route = route_of(pass);
    const float *input = NULL;
    TRY(router_input(pass, &input));
    TRY(model_linear(pass, model->config.experts, model->config.d_model, input,
                     pass_weight(pass, PARAM_ROUTER), NULL, routing->probs));
    TRY(k->route_forward(ctx, &route, routing->probs, routing->chosen,
                         routing->weights));
    TRY(k->route_sort(ctx, &route, routing->chosen, routing->offsets,
                      routing->place, routing->source));
    TRY(balance_loss(pass, &route));
out:
    return rc;
}

/* From ws.dweights; adds to ws.dnorm. ws.norm must be there. */
static enum err choose_backward(struct pass *pass)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    struct workspace *ws = &model->ws;
    const struct routing *routing = &pass->layer->routing;
    struct route route = route_of(pass);
    struct random_place random = { .seed = model->options.seed,
                                   .stream = pass->layer->jitter,
                                   .first_sample = pass->leaf->first_sample };
    int64_t d = model->config.d_model;
    const float *input = NULL;
    for (int e = 0; e < route.experts; e++)
        ws->dprobs[e] =
            (float)(balance_scale(pass) *
                    (double)(routing->offsets[e + 1] - routing->offsets[e]) /
                    (double)pass->n);
    TRY(k->route_backward(ctx, &route, routing->probs, routing->chosen,
                          ws->dweights, ws->dprobs, ws->dlogits));
    TRY(router_input(pass, &input));
    TRY(model_linear_backward(pass, route.experts, d, ws->dlogits, input,
                              pass_weight(pass, PARAM_ROUTER), ws->drouter,
                              pass_gradient(pass, PARAM_ROUTER), NULL));
    if (input != ws->norm)
        TRY(k->jitter(ctx, DTYPE_F32, pass->leaf->samples,
                      pass->leaf->seq_len * d,
                      (float)model->config.router_jitter, &random, ws->drouter,
                      ws->drouter));
    TRY(k->accumulate(ctx, DTYPE_F32, pass->n * d, ws->drouter, ws->dnorm));
out:
    return rc;
}

/* --- the half
 * ------------------------------------------------------------------- */

enum err model_moe_forward(struct pass *pass)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    const struct routing *routing = &pass->layer->routing;
    struct route route = route_of(pass);
    int64_t d = model->config.d_model;
    TRY(choose(pass));
    TRY(hidden(pass));
    TRY(activate(pass));
    TRY(experts_gemm(pass, GEMM_NN, d, model->config.ffn_width, model->ws.act,
                     pass_weight(pass, PARAM_EXPERTS_DOWN), false,
                     model->ws.rows));
    TRY(model->kernels->expert_combine(&model->ctx, DTYPE_F32, &route, d,
                                       routing->place, routing->weights,
                                       model->ws.rows, model->ws.branch));
out:
    return rc;
}

enum err model_moe_recompute(struct pass *pass)
{
    enum err rc = ERR_OK;
    TRY(model_norm(pass, PARAM_NORM_2_WEIGHT, pass->layer->live[SAVED_MID]));
    TRY(hidden(pass));
out:
    return rc;
}

/* From dbranch to ws.dact (then ws.dhidden), the down matrices' gradient and
 * ws.dweights. */
static enum err down_backward(struct pass *pass, const float *dbranch)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    struct workspace *ws = &model->ws;
    const struct routing *routing = &pass->layer->routing;
    struct route route = route_of(pass);
    int64_t d = model->config.d_model;
    int64_t f = model->config.ffn_width;
    TRY(activate(pass));
    TRY(k->expert_gather(ctx, DTYPE_F32, &route, d, routing->source, dbranch,
                         ws->rows));
    TRY(experts_gemm(pass, GEMM_NT, f, d, ws->rows,
                     pass_weight(pass, PARAM_EXPERTS_DOWN), false, ws->dact));
    TRY(k->expert_weigh(ctx, DTYPE_F32, &route, f, routing->source,
                        routing->weights, ws->act, ws->dact, ws->dweights));
    TRY(experts_gradient(pass, f, d, ws->act, ws->rows,
                         pass_gradient(pass, PARAM_EXPERTS_DOWN)));
    TRY(activate_backward(pass));
out:
    return rc;
}

/* From ws.dhidden to ws.dnorm and the other matrices' gradients. */
static enum err hidden_backward(struct pass *pass)
{
    enum err rc = ERR_OK;
    struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    struct workspace *ws = &model->ws;
    const struct routing *routing = &pass->layer->routing;
    struct route route = route_of(pass);
    bool gated = model->config.ffn == FFN_GLU;
    int64_t d = model->config.d_model;
    int64_t f = model->config.ffn_width;
    float *dup = up_of(pass, ws->dhidden);
    TRY(model_norm(pass, PARAM_NORM_2_WEIGHT, pass->layer->live[SAVED_MID]));
    TRY(k->expert_gather(ctx, DTYPE_F32, &route, d, routing->source, ws->norm,
                         ws->rows));
    if (gated)
        TRY(experts_gradient(pass, f, d, ws->dhidden, ws->rows,
                             pass_gradient(pass, PARAM_EXPERTS_GATE)));
    TRY(experts_gradient(pass, f, d, dup, ws->rows,
                         pass_gradient(pass, PARAM_EXPERTS_UP)));
    TRY(experts_gemm(pass, GEMM_NN, d, f, dup,
                     pass_weight(pass, PARAM_EXPERTS_UP), false, ws->rows));
    if (gated)
        TRY(experts_gemm(pass, GEMM_NN, d, f, ws->dhidden,
                         pass_weight(pass, PARAM_EXPERTS_GATE), true,
                         ws->rows));
    TRY(k->expert_combine(ctx, DTYPE_F32, &route, d, routing->place, NULL,
                          ws->rows, ws->dnorm));
out:
    return rc;
}

enum err model_moe_backward(struct pass *pass)
{
    enum err rc = ERR_OK;
    struct workspace *ws = &pass->model->ws;
    const struct layer *layer = pass->layer;
    const float *dbranch = NULL;
    TRY(model_branch_gradient(pass, layer->dropout_ffn, &dbranch));
    TRY(down_backward(pass, dbranch));
    TRY(hidden_backward(pass));
    TRY(choose_backward(pass));
    TRY(model_norm_backward(pass, PARAM_NORM_2_WEIGHT, layer->live[SAVED_MID],
                            ws->dnorm, pass->dx));
out:
    return rc;
}
