/* What experts compute. Every grouped GEMM has one group for each expert and
 * leaf, so that bits follow from that expert's rows of that leaf alone,
 * wherever they are computed. */
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
    struct grouped_gemm gemm = { .form = form,
                                 .groups = rows->experts,
                                 .offsets = rows->offsets,
                                 .n = n,
                                 .k = k,
                                 .a = a,
                                 .b = weights_of(pass, role),
                                 .c = c,
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
    struct grouped_gemm gemm = { .form = GEMM_TN,
                                 .groups = rows->experts,
                                 .offsets = rows->offsets,
                                 .m = pass->model->config.ffn_width,
                                 .n = pass->model->config.d_model,
                                 .a = a,
                                 .b = b,
                                 .c = gradient_of(pass, rows, role),
                                 .accumulate = true,
                                 .begins = pass->model->begins };
    return pass->model->kernels->grouped_gemm(
        &pass->model->ctx, pass->model->options.dtype, &gemm);
}

static void *up_of(const struct pass *pass, const struct expert_rows *rows,
                   void *hidden)
{
    return block_up(&pass->model->config, pass->model->options.dtype,
                    rows->count, true, hidden);
}

enum err model_experts_hidden(struct pass *pass, const struct expert_rows *rows)
{
    const struct model_config *config = &pass->model->config;
    void *gate = pass->layer->live[SAVED_HIDDEN];
    const struct model_options *options = &pass->model->options;
    int64_t most = options->samples * options->seq_len / options->chunks;
    int64_t d = config->d_model;
    int64_t f = config->ffn_width;
    assert(rows->count * (config->ffn == FFN_GLU ? 2 : 1) <=
           model_saved_rows(pass->model, SAVED_HIDDEN, most));
    if (config->ffn == FFN_GLU)
        TRY(experts_gemm(pass, rows, GEMM_NT, f, d, rows->x, PARAM_EXPERTS_GATE,
                         false, gate));
    return experts_gemm(pass, rows, GEMM_NT, f, d, rows->x, PARAM_EXPERTS_UP,
                        false, up_of(pass, rows, gate));
}

/* SAVED_HIDDEN to ws.act. */
static enum err activate(const struct pass *pass,
                         const struct expert_rows *rows)
{
    return model_activate(pass->model, rows->count, true,
                          pass->layer->live[SAVED_HIDDEN], pass->model->ws.act);
}

enum err model_experts_forward(struct pass *pass,
                               const struct expert_rows *rows)
{
    const struct model *model = pass->model;
    TRY(model_experts_hidden(pass, rows));
    TRY(activate(pass, rows));
    return experts_gemm(pass, rows, GEMM_NN, model->config.d_model,
                        model->config.ffn_width, model->ws.act,
                        PARAM_EXPERTS_DOWN, false, rows->x);
}

enum err model_experts_down_backward(struct pass *pass,
                                     const struct expert_rows *rows)
{
    const struct model *model = pass->model;
    const struct workspace *ws = &model->ws;
    struct route route = { .n = rows->count,
                           .experts = rows->experts,
                           .top_k = 1 };
    int64_t d = model->config.d_model;
    int64_t f = model->config.ffn_width;
    TRY(activate(pass, rows));
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
    void *dup = up_of(pass, rows, dgate);
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
