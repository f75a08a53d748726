/* What experts compute. Every grouped GEMM has one group for each expert and
 * leaf, so that bits follow from that expert's rows of that leaf alone,
 * wherever they are computed.
 *
 * A token's result is a sum over its experts, w_e e(x). Backward does not need
 * the results e(x) = act W: with dy the gradient of the sum, the gradient of the
 * weight is dy . (act W) = act . (dy W^T), and dy W^T is computed anyway, as
 * what act's own gradient is before it is weighed. */
#include "src/model/model_impl.h"

#include <assert.h>

/* This rank's experts' matrices of a kind. */
static const void *weights_of(const struct pass *pass, enum param_role role)
{
    assert(role >= PARAM_EXPERTS_GATE && role <= PARAM_EXPERTS_DOWN);
    return pass->expert_weights[role - PARAM_EXPERTS_GATE];
}

static float *gradient_of(const struct pass *pass,
                          const struct expert_rows *rows, enum param_role role)
{
    const struct model_config *config = &pass->model->config;
    assert(rows->place >= 0 && rows->place < model_expert_degree(pass->model));
    assert(rows->experts * model_expert_degree(pass->model) == config->experts);
    return pass->expert_gradient[role - PARAM_EXPERTS_GATE] +
           rows->place * rows->experts * config->ffn_width * config->d_model;
}

/* c[row, n] from a[row, k] and each expert's matrix. */
static enum err experts_gemm(struct pass *pass, const struct expert_rows *rows,
                             enum gemm_form form, int64_t n, int64_t k,
                             const void *a, enum param_role role,
                             bool accumulate, void *c)
{
    struct grouped_gemm gemm = { GEMM_GROUPED_OF(form, rows->experts,
                                                 rows->offsets, n, k, a,
                                                 weights_of(pass, role), c),
                                 .accumulate = accumulate };
    return pass->model->kernels->grouped_gemm(
        &pass->model->ctx, pass->model->options.dtype, &gemm);
}

/* Each expert's gradient[f, d] += a[rows, f]^T b[rows, d], unless it is
 * frozen. */
static enum err experts_gradient(struct pass *pass,
                                 const struct expert_rows *rows, const void *a,
                                 const void *b, enum param_role role)
{
    if (pass->expert_gradient[role - PARAM_EXPERTS_GATE] == NULL)
        return ERR_OK;
    struct grouped_gemm gemm = {
        GEMM_GROUPED_OF(GEMM_TN, rows->experts, rows->offsets,
                        pass->model->config.d_model, 0, a, b,
                        gradient_of(pass, rows, role)),
        .m = pass->model->config.ffn_width, .accumulate = true,
        .begins = pass->model->begins
    };
    return pass->model->kernels->grouped_gemm(
        &pass->model->ctx, pass->model->options.dtype, &gemm);
}

enum err model_experts_product(void *arg, const struct expert_rows *rows,
                               enum param_role role, int64_t out, int64_t in,
                               const void *x, void *y)
{
    return experts_gemm(arg, rows,
                        role == PARAM_EXPERTS_DOWN ? GEMM_NN : GEMM_NT, out, in,
                        x, role, false, y);
}

enum err model_experts_down_backward(struct pass *pass,
                                     const struct expert_rows *rows)
{
    const struct model *model = pass->model;
    const struct workspace *ws = &model->ws;
    struct block b = model_block(pass);
    struct route route = { .n = rows->count,
                           .experts = rows->experts,
                           .top_k = 1 };
    int64_t d = model->config.d_model;
    int64_t f = model->config.ffn_width;
    TRY(block_activate(&b, rows->count, true));
    TRY(experts_gemm(pass, rows, GEMM_NT, f, d, rows->dy, PARAM_EXPERTS_DOWN,
                     false, ws->dact));
    TRY(model->kernels->expert_weigh(&model->ctx, model->options.dtype, &route,
                                     f, rows->source, rows->weights, ws->act,
                                     ws->dact, rows->dweights));
    TRY(experts_gradient(pass, rows, ws->act, rows->dy, PARAM_EXPERTS_DOWN));
    return model_activate_backward(pass->model, rows->count, true,
                                   pass->layer->live[SAVED_HIDDEN]);
}

enum err model_experts_hidden_backward(struct pass *pass,
                                       const struct expert_rows *rows)
{
    const struct model_config *config = &pass->model->config;
    bool gated = config->ffn == FFN_GLU;
    int64_t d = config->d_model;
    int64_t f = config->ffn_width;
    void *dgate = pass->model->ws.dhidden;
    void *dup =
        block_up(config, pass->model->options.dtype, rows->count, true, dgate);
    if (gated)
        TRY(experts_gradient(pass, rows, dgate, rows->x, PARAM_EXPERTS_GATE));
    TRY(experts_gradient(pass, rows, dup, rows->x, PARAM_EXPERTS_UP));
    TRY(experts_gemm(pass, rows, GEMM_NN, d, f, dup, PARAM_EXPERTS_UP, false,
                     rows->x));
    if (gated)
        TRY(experts_gemm(pass, rows, GEMM_NN, d, f, dgate, PARAM_EXPERTS_GATE,
                         true, rows->x));
    return ERR_OK;
}
