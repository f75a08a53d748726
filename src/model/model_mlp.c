/* The other half of a dense block: down(act(up(x))), or with a gate
 * down(act(gate(x)) * up(x)). */
#include "src/model/model_impl.h"

enum err model_mlp_forward(struct pass *pass)
{
    struct model *model = pass->model;
    void *hidden = pass->layer->live[SAVED_HIDDEN];
    TRY(model_linear(pass, LINEAR_HIDDEN, model->ws.norm, hidden));
    TRY(model_activate(model, pass->n, false, hidden, pass->layer->act));
    return model_linear(pass, LINEAR_DOWN, pass->layer->act, model->ws.branch);
}

enum err model_mlp_recompute(struct pass *pass)
{
    TRY(model_norm(pass, PARAM_NORM_2_WEIGHT, pass->layer->live[SAVED_MID]));
    return model_linear(pass, LINEAR_HIDDEN, pass->model->ws.norm,
                        pass->layer->live[SAVED_HIDDEN]);
}

enum err model_mlp_backward(struct pass *pass)
{
    struct model *model = pass->model;
    struct workspace *ws = &model->ws;
    const struct layer *layer = pass->layer;
    void *hidden = layer->live[SAVED_HIDDEN];
    const void *dbranch = NULL;
    TRY(model_branch_gradient(pass, layer->dropout_ffn, &dbranch));
    if (!layer->keeps_act)
        TRY(model_activate(model, pass->n, false, hidden, layer->act));
    TRY(model_linear_backward(pass, LINEAR_DOWN, dbranch, layer->act,
                              ws->dact));
    TRY(model_activate_backward(model, pass->n, false, hidden));
    TRY(model_norm(pass, PARAM_NORM_2_WEIGHT, layer->live[SAVED_MID]));
    TRY(model_linear_backward(pass, LINEAR_HIDDEN, ws->dhidden, ws->norm,
                              ws->dnorm));
    return model_norm_backward(pass, PARAM_NORM_2_WEIGHT,
                               layer->live[SAVED_MID], ws->dnorm, pass->dx);
}
