/* The way back through the other half of a dense block (block.h). */
#include "src/model/model_impl.h"

enum err model_mlp_recompute(struct pass *pass)
{
    struct block b = model_block(pass);
    TRY(model_input_again(&b, PARAM_NORM_2_WEIGHT, b.mid));
    return block_apply(&b, LINEAR_HIDDEN, block_input(&b, b.mid), b.hidden);
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
    TRY(model_branch_norm_backward(pass, PARAM_NORM_2_WEIGHT, LINEAR_DOWN,
                                   b.act, &dbranch));
    TRY(model_linear_backward(pass, LINEAR_DOWN, dbranch, b.act, ws->dact));
    TRY(model_activate_backward(pass->model, b.n, false, b.hidden));
    TRY(model_input_again(&b, PARAM_NORM_2_WEIGHT, b.mid));
    TRY(model_linear_backward(pass, LINEAR_HIDDEN, ws->dhidden,
                              block_input(&b, b.mid), ws->dnorm));
    return model_input_backward(pass, PARAM_NORM_2_WEIGHT, b.mid);
}
