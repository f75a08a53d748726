/* The other half of a dense block: down(act(up(x))), or with a gate
 * down(act(gate(x)) * up(x)). */
#include "src/model/model_impl.h"

/* Gate and up are one matrix of 2 f rows: their tensors touch. */
static enum param_role hidden_weight(const struct model *model)
{
    return model->config.ffn == FFN_GLU ? PARAM_GATE_WEIGHT : PARAM_UP_WEIGHT;
}

static enum param_role hidden_bias(const struct model *model)
{
    return model->config.ffn == FFN_GLU ? PARAM_GATE_BIAS : PARAM_UP_BIAS;
}

/* ws.norm -> SAVED_HIDDEN. */
static enum err hidden(struct pass *pass)
{
    struct model *model = pass->model;
    return model_linear(
        pass, LINEAR_HIDDEN, model->hidden_width, model->config.d_model,
        model->ws.norm, pass_weight(pass, hidden_weight(model)),
        pass_weight(pass, hidden_bias(model)), pass->layer->live[SAVED_HIDDEN]);
}

/* SAVED_HIDDEN -> layer.act. */
static enum err activate(struct pass *pass)
{
    const struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    const void *x = pass->layer->live[SAVED_HIDDEN];
    int64_t f = model->config.ffn_width;
    if (model->config.ffn == FFN_GLU)
        return k->glu_forward(&model->ctx, model->options.dtype,
                              activation_of(model), pass->n, f, 2 * f, x,
                              at(model, x, f), pass->layer->act);
    return k->activation_forward(&model->ctx, model->options.dtype,
                                 activation_of(model), pass->n * f, x,
                                 pass->layer->act);
}

/* ws.dact -> ws.dhidden. */
static enum err activate_backward(struct pass *pass)
{
    const struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    const struct workspace *ws = &model->ws;
    const void *x = pass->layer->live[SAVED_HIDDEN];
    int64_t f = model->config.ffn_width;
    if (model->config.ffn == FFN_GLU)
        return k->glu_backward(&model->ctx, model->options.dtype,
                               activation_of(model), pass->n, f, 2 * f, x,
                               at(model, x, f), ws->dact, ws->dhidden,
                               at(model, ws->dhidden, f));
    return k->activation_backward(&model->ctx, model->options.dtype,
                                  activation_of(model), pass->n * f, x,
                                  ws->dact, ws->dhidden);
}

enum err model_mlp_forward(struct pass *pass)
{
    struct model *model = pass->model;
    TRY(hidden(pass));
    TRY(activate(pass));
    return model_linear(pass, LINEAR_DOWN, model->config.d_model,
                        model->config.ffn_width, pass->layer->act,
                        pass_weight(pass, PARAM_DOWN_WEIGHT),
                        pass_weight(pass, PARAM_DOWN_BIAS), model->ws.branch);
}

enum err model_mlp_recompute(struct pass *pass)
{
    TRY(model_norm(pass, PARAM_NORM_2_WEIGHT, pass->layer->live[SAVED_MID]));
    return hidden(pass);
}

enum err model_mlp_backward(struct pass *pass)
{
    struct model *model = pass->model;
    struct workspace *ws = &model->ws;
    const struct layer *layer = pass->layer;
    enum param_role weight = hidden_weight(model);
    enum param_role bias = hidden_bias(model);
    int64_t d = model->config.d_model;
    const void *dbranch = NULL;
    TRY(model_branch_gradient(pass, layer->dropout_ffn, &dbranch));
    if (!layer->keeps_act)
        TRY(activate(pass));
    TRY(model_linear_backward(pass, LINEAR_DOWN, d, model->config.ffn_width,
                              dbranch, layer->act,
                              pass_weight(pass, PARAM_DOWN_WEIGHT), ws->dact,
                              pass_gradient(pass, PARAM_DOWN_WEIGHT),
                              pass_gradient(pass, PARAM_DOWN_BIAS)));
    TRY(activate_backward(pass));
    TRY(model_norm(pass, PARAM_NORM_2_WEIGHT, layer->live[SAVED_MID]));
    TRY(model_linear_backward(pass, LINEAR_HIDDEN, model->hidden_width, d,
                              ws->dhidden, ws->norm, pass_weight(pass, weight),
                              ws->dnorm, pass_gradient(pass, weight),
                              pass_gradient(pass, bias)));
    return model_norm_backward(pass, PARAM_NORM_2_WEIGHT,
                               layer->live[SAVED_MID], ws->dnorm, pass->dx);
}
