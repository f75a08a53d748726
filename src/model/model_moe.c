/* The other half of a block with experts: what training adds to it (block.h),
 * jitter, balance and a group of ranks that share the experts, and the way
 * back.
 *
 * The router's choice has no gradient, only the weights of those chosen have.
 * Left alone it would send ever more tokens to the experts that are ahead, so a
 * second loss asks for balance (Fedus, Zoph and Shazeer 2021): the sum over
 * experts of (share of the choices) (mean probability), of which the first
 * factor is a count and the second is what the gradient passes through. It is
 * weighed by the leaf's tokens that bear loss, as losses here are sums. */
#include "src/model/model_impl.h"

/* --- routing --- */

enum err model_moe_input(void *arg, const void **x)
{
    struct pass *pass = arg;
    struct model *model = pass->model;
    double jitter = pass->training ? model->config.router_jitter : 0.0;
    struct random_place random =
        model_random(pass, jitter, pass->layer->jitter);
    const void *norm = *x;
    if (jitter == 0.0)
        return ERR_OK;
    *x = model->ws.router_in;
    return model->kernels->jitter(
        &model->ctx, model->options.dtype, pass->leaf.samples,
        pass->leaf.seq_len * model->config.d_model, (float)jitter, &random,
        norm, model->ws.router_in);
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

enum err model_moe_balance(void *arg)
{
    struct pass *pass = arg;
    struct model *model = pass->model;
    struct block b = model_block(pass);
    struct route route = block_route(&b);
    const struct kernels *k = model->kernels;
    const struct routing *routing = &pass->layer->routing;
    int64_t *counts =
        model->ws.expert_counts + pass->number * model->config.experts;
    if (model->loss_tokens == 0)
        return ERR_OK;
    TRY(k->route_sums(&model->ctx, &route, routing->probs,
                      model->ws.prob_sums));
    return k->balance_forward(&model->ctx, &route, balance_scale(pass),
                              routing->offsets, model->ws.prob_sums, counts,
                              &pass->loss->balance);
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

/* From ws.dweights; adds to ws.dnorm. ws.norm must be there. */
static enum err choose_backward(struct pass *pass)
{
    struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    const struct kernel_ctx *ctx = &model->ctx;
    struct workspace *ws = &model->ws;
    const struct routing *routing = &pass->layer->routing;
    struct block b = model_block(pass);
    struct route route = block_route(&b);
    double jitter = model->config.router_jitter;
    struct random_place random =
        model_random(pass, jitter, pass->layer->jitter);
    int64_t d = model->config.d_model;
    const void *input = ws->norm;
    TRY(k->balance_backward(ctx, &route, balance_scale(pass), routing->offsets,
                            ws->dprobs));
    TRY(k->route_backward(ctx, &route, routing->probs, routing->chosen,
                          ws->dweights, ws->dprobs, ws->dlogits));
    TRY(model_moe_input(pass, &input));
    TRY(router_backward(pass, input));
    if (input != ws->norm)
        TRY(k->jitter(ctx, model->options.dtype, pass->leaf.samples,
                      pass->leaf.seq_len * d, (float)jitter, &random,
                      ws->drouter, ws->drouter));
    return k->accumulate(ctx, model->options.dtype, pass->n * d, ws->drouter,
                         ws->dnorm);
}

/* --- the half --- */

/* A number for each choice, in the experts' order or, by routing.place, back.
 */
static enum err sort_numbers(struct pass *pass, const int32_t *order,
                             const float *x, float *sorted)
{
    struct block b = model_block(pass);
    struct route route = block_route(&b);
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

enum err model_moe_serve(void *arg, const struct expert_rows *rows)
{
    struct pass *pass = arg;
    struct block b = model_block(pass);
    return model_expert_degree(pass->model) > 1
               ? model_experts_exchange_forward(pass)
               : block_rows(&b, rows);
}

/* norm_2 in ws.norm, and from it the tokens in ws.rows. */
static enum err tokens_again(const struct block *b)
{
    TRY(block_norm_of(b, PARAM_NORM_2_WEIGHT, b->mid, b->norm));
    return block_sort_rows(b, b->norm, b->sorted);
}

enum err model_moe_recompute(struct pass *pass)
{
    struct block b = model_block(pass);
    struct expert_rows rows = all_rows(pass);
    if (model_expert_degree(pass->model) > 1)
        return ERR_OK;
    TRY(tokens_again(&b));
    return block_rows_hidden(&b, &rows);
}

/* From dbranch to ws.rows, the tokens' gradient, and ws.dweights; leaves norm_2
 * in ws.norm. */
static enum err experts_backward(struct pass *pass, const void *dbranch)
{
    struct block b = model_block(pass);
    struct expert_rows rows = all_rows(pass);
    TRY(block_sort_rows(&b, dbranch, b.sorted));
    TRY(model_experts_down_backward(pass, &rows));
    TRY(tokens_again(&b));
    return model_experts_hidden_backward(pass, &rows);
}

/* The same where a group shares the experts. */
static enum err group_backward(struct pass *pass, const void *dbranch)
{
    const struct workspace *ws = &pass->model->ws;
    const struct routing *routing = &pass->layer->routing;
    struct block b = model_block(pass);
    TRY(tokens_again(&b));
    TRY(block_sort_rows(&b, dbranch, ws->dispatch.dy));
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
    struct block b = model_block(pass);
    struct route route = block_route(&b);
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
