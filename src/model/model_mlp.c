/* The way back through the other half of a dense block (block.h). */
#include "src/model/model_impl.h"

enum err model_mlp_recompute(struct pass *pass)
{
    struct block b = model_block(pass);
    TRY(block_norm_of(&b, PARAM_NORM_2_WEIGHT, b.mid));
    return block_apply(&b, LINEAR_HIDDEN, b.norm, b.hidden);
}

enum err model_mlp_backward(struct pass *pass)
{
    struct block b = model_block(pass);
    struct workspace *ws = &pass->model->ws;
    const struct layer *layer = pass->layer;
    const void *dbranch = NULL;
    TRY(model_branch_gradient(pass, layer->dropout_ffn, &dbranch));
    if (!layer->keeps_act)
        TRY(block_activate(&b, b.n, false));
    TRY(model_linear_backward(pass, LINEAR_DOWN, dbranch, b.act, ws->dact));
    TRY(model_activate_backward(pass->model, b.n, false, b.hidden));
    TRY(block_norm_of(&b, PARAM_NORM_2_WEIGHT, b.mid));
    TRY(model_linear_backward(pass, LINEAR_HIDDEN, ws->dhidden, ws->norm,
                              ws->dnorm));
    return model_norm_backward(pass, PARAM_NORM_2_WEIGHT, b.mid, ws->dnorm,
                               pass->dx);
}
