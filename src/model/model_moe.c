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

/* --- routing
 * -------------------------------------------------------------------- */

/* ws.norm as the router sees it. */
static enum err router_input(struct pass *pass, const void **input)
{
    struct model *model = pass->model;
    double jitter = pass->training ? model->config.router_jitter : 0.0;
    struct random_place random =
        model_random(pass, jitter, pass->layer->jitter);
    *input = model->ws.norm;
    if (jitter == 0.0)
        return ERR_OK;
    *input = model->ws.router_in;
    return model->kernels->jitter(
        &model->ctx, model->options.dtype, pass->leaf.samples,
        pass->leaf.seq_len * model->config.d_model, (float)jitter, &random,
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
 * both are even (Fedus, Zoph and Shazeer 2021). Choices of a leaf without loss
 * do not count. */
static enum err balance_loss(struct pass *pass, const struct route *route)
{
    struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    const struct routing *routing = &pass->layer->routing;
    int64_t *counts =
        model->ws.expert_counts + pass->number * model->config.experts;
    if (model->loss_tokens == 0)
        return ERR_OK;
    TRY(k->route_sums(&model->ctx, route, routing->probs, model->ws.prob_sums));
    return k->balance_forward(&model->ctx, route, balance_scale(pass),
                              routing->offsets, model->ws.prob_sums, counts,
                              &pass->loss->balance);
}

/* Probabilities are fp32 whatever the router's product was computed in. */
static enum err router_logits(struct pass *pass, const void *input,
                              float *logits)
{
    struct model *model = pass->model;
    int64_t experts = model->config.experts;
    bool same = model->options.dtype == DTYPE_F32;
    void *product = same ? logits : model->ws.router_logits;
    TRY(model_linear(pass, LINEAR_ROUTER, input, product));
    if (!same)
        TRY(model->kernels->convert(&model->ctx, pass->n * experts,
                                    model->options.dtype, product, DTYPE_F32,
                                    logits));
    return ERR_OK;
}

/* ws.drouter and the weight's gradient from ws.dlogits. */
static enum err router_backward(struct pass *pass, const void *input)
{
    struct model *model = pass->model;
    struct workspace *ws = &model->ws;
    int64_t experts = model->config.experts;
    const void *dlogits = ws->dlogits;
    if (model->options.dtype != DTYPE_F32) {
        dlogits = ws->router_logits;
        TRY(model->kernels->convert(&model->ctx, pass->n * experts, DTYPE_F32,
                                    ws->dlogits, model->options.dtype,
                                    ws->router_logits));
    }
    return model_linear_backward(pass, LINEAR_ROUTER, dlogits, input,
                                 ws->drouter);
}

static enum err choose(struct pass *pass)
{
    struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    const struct routing *routing = &pass->layer->routing;
    struct route route = route_of(pass);
    const void *input = NULL;
    TRY(router_input(pass, &input));
    TRY(router_logits(pass, input, routing->probs));
    TRY(k->route_forward(ctx, &route, routing->probs, routing->chosen,
                         routing->weights));
    TRY(k->route_sort(ctx, &route, routing->chosen, routing->offsets,
                      routing->place, routing->source));
    return balance_loss(pass, &route);
}

/* From ws.dweights; adds to ws.dnorm. ws.norm must be there. */
static enum err choose_backward(struct pass *pass)
{
    struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    struct workspace *ws = &model->ws;
    const struct routing *routing = &pass->layer->routing;
    struct route route = route_of(pass);
    double jitter = model->config.router_jitter;
    struct random_place random =
        model_random(pass, jitter, pass->layer->jitter);
    int64_t d = model->config.d_model;
    const void *input = NULL;
    TRY(k->balance_backward(ctx, &route, balance_scale(pass), routing->offsets,
                            ws->dprobs));
    TRY(k->route_backward(ctx, &route, routing->probs, routing->chosen,
                          ws->dweights, ws->dprobs, ws->dlogits));
    TRY(router_input(pass, &input));
    TRY(router_backward(pass, input));
    if (input != ws->norm)
        TRY(k->jitter(ctx, model->options.dtype, pass->leaf.samples,
                      pass->leaf.seq_len * d, (float)jitter, &random,
                      ws->drouter, ws->drouter));
    return k->accumulate(ctx, model->options.dtype, pass->n * d, ws->drouter,
                         ws->dnorm);
}

/* --- the half
 * ------------------------------------------------------------------- */

/* x[n, d] in the experts' order. */
static enum err sort_rows(struct pass *pass, const void *x, void *sorted)
{
    struct route route = route_of(pass);
    return pass->model->kernels->expert_gather(
        &pass->model->ctx, pass->model->options.dtype, &route,
        pass->model->config.d_model, pass->layer->routing.source, x, sorted);
}

/* A number for each choice, in the experts' order or, by routing.place, back.
 */
static enum err sort_numbers(struct pass *pass, const int32_t *order,
                             const float *x, float *sorted)
{
    struct route route = route_of(pass);
    route.n *= route.top_k;
    route.top_k = 1;
    return pass->model->kernels->expert_gather(&pass->model->ctx, DTYPE_F32,
                                               &route, 1, order, x, sorted);
}

/* All of them, where nobody shares the experts. ws.rows holds first the
 * gradient dy, then x. */
static struct expert_rows all_rows(const struct pass *pass)
{
    const struct workspace *ws = &pass->model->ws;
    const struct routing *routing = &pass->layer->routing;
    return (struct expert_rows){
        .count = pass->n * pass->model->config.experts_top_k,
        .experts = (int)pass->model->config.experts,
        .offsets = routing->offsets,
        .x = ws->rows,
        .dy = ws->rows,
        .source = routing->source,
        .weights = routing->weights,
        .dweights = ws->dweights,
    };
}

enum err model_moe_forward(struct pass *pass)
{
    struct model *model = pass->model;
    const struct routing *routing = &pass->layer->routing;
    struct route route = route_of(pass);
    TRY(choose(pass));
    TRY(sort_rows(pass, model->ws.norm, model->ws.rows));
    if (model_expert_degree(model) > 1) {
        TRY(model_experts_exchange_forward(pass));
    } else {
        struct expert_rows rows = all_rows(pass);
        TRY(model_experts_forward(pass, &rows));
    }
    return model->kernels->expert_combine(
        &model->ctx, model->options.dtype, &route, model->config.d_model,
        routing->place, routing->weights, model->ws.rows, model->ws.branch);
}

enum err model_moe_recompute(struct pass *pass)
{
    const struct workspace *ws = &pass->model->ws;
    struct expert_rows rows = all_rows(pass);
    if (model_expert_degree(pass->model) > 1)
        return ERR_OK;
    TRY(model_norm(pass, PARAM_NORM_2_WEIGHT, pass->layer->live[SAVED_MID]));
    TRY(sort_rows(pass, ws->norm, ws->rows));
    return model_experts_hidden(pass, &rows);
}

/* From dbranch to ws.rows, the tokens' gradient, and ws.dweights; leaves norm_2
 * in ws.norm. */
static enum err experts_backward(struct pass *pass, const void *dbranch)
{
    const struct workspace *ws = &pass->model->ws;
    struct expert_rows rows = all_rows(pass);
    TRY(sort_rows(pass, dbranch, ws->rows));
    TRY(model_experts_down_backward(pass, &rows));
    TRY(model_norm(pass, PARAM_NORM_2_WEIGHT, pass->layer->live[SAVED_MID]));
    TRY(sort_rows(pass, ws->norm, ws->rows));
    return model_experts_hidden_backward(pass, &rows);
}

/* The same where a group shares the experts. */
static enum err group_backward(struct pass *pass, const void *dbranch)
{
    const struct workspace *ws = &pass->model->ws;
    const struct routing *routing = &pass->layer->routing;
    TRY(model_norm(pass, PARAM_NORM_2_WEIGHT, pass->layer->live[SAVED_MID]));
    TRY(sort_rows(pass, ws->norm, ws->rows));
    TRY(sort_rows(pass, dbranch, ws->dispatch.dy));
    TRY(sort_numbers(pass, routing->source, routing->weights,
                     ws->dispatch.weights));
    TRY(model_experts_exchange_backward(pass));
    return sort_numbers(pass, routing->place, ws->dispatch.dweights,
                        ws->dweights);
}

enum err model_moe_backward(struct pass *pass)
{
    struct model *model = pass->model;
    struct workspace *ws = &model->ws;
    const struct layer *layer = pass->layer;
    struct route route = route_of(pass);
    const void *dbranch = NULL;
    TRY(model_branch_gradient(pass, layer->dropout_ffn, &dbranch));
    TRY(model_expert_degree(model) > 1 ? group_backward(pass, dbranch)
                                       : experts_backward(pass, dbranch));
    TRY(model->kernels->expert_combine(
        &model->ctx, model->options.dtype, &route, model->config.d_model,
        layer->routing.place, NULL, ws->rows, ws->dnorm));
    TRY(choose_backward(pass));
    return model_norm_backward(pass, PARAM_NORM_2_WEIGHT,
                               layer->live[SAVED_MID], ws->dnorm, pass->dx);
}
