/* Enters and leaves blocks: finds what trains of their weights, what is frozen,
 * and their gradients. Blocks of which nothing trains are not asked for. */
#include <assert.h>

#include "src/model/model_impl.h"

/* What has been gathered of a block. */
struct gathered {
    const void *weights;
    const void *frozen;
    float *gradient; /* the first chunk's; NULL in forward */
};

static void enter_passes(struct model *model, int block,
                         const struct gathered *at)
{
    int64_t elements = model->params->blocks[block].elements;
    assert(block >= 0 && block < model->params->block_count);
    for (int i = 0; i < model->options.own_chunks; i++) {
        struct pass *pass = &model->passes[i];
        pass->block = block;
        pass->layer = NULL;
        pass->weights = at->weights;
        pass->frozen = at->frozen;
        pass->gradient =
            at->gradient != NULL ? at->gradient + i * elements : NULL;
    }
}

/* The block is one tensor, which trains or is frozen. */
static void enter_experts(struct model *model, int block,
                          const struct gathered *at)
{
    const struct params *params = model->params;
    bool trains = params_trains(params, block);
    const struct param_block *b =
        &(trains ? params : params->frozen)->blocks[block];
    int kind = 0;
    assert(b->kind == PARAM_BLOCK_EXPERTS);
    while (b->place[PARAM_EXPERTS_GATE + kind] < 0)
        kind++;
    for (int i = 0; i < model->options.own_chunks; i++) {
        struct pass *pass = &model->passes[i];
        pass->expert_weights[kind] = trains ? at->weights : at->frozen;
        pass->expert_gradient[kind] =
            at->gradient != NULL ? at->gradient + i * b->elements : NULL;
    }
}

static enum err pace(const struct model *model)
{
    const struct param_access *access = model->passes[0].access;
    return access->pace != NULL && !model->capturing ? access->pace(access->arg)
                                                     : ERR_OK;
}

enum err model_frozen(const struct model *model, int block,
                      const void **weights)
{
    const struct params *frozen = model->params->frozen;
    const struct param_access *access = model->passes[0].access;
    *weights = NULL;
    return frozen != NULL && params_trains(frozen, block)
               ? access->frozen(access->arg, block, weights)
               : ERR_OK;
}

static enum err gather(const struct model *model, int block,
                       struct gathered *at)
{
    const struct param_access *access = model->passes[0].access;
    *at = (struct gathered){ .weights = NULL };
    if (params_trains(model->params, block))
        TRY(access->gather(access->arg, block, &at->weights));
    return model_frozen(model, block, &at->frozen);
}

static enum err release(const struct model *model, int block)
{
    const struct param_access *access = model->passes[0].access;
    return params_trains(model->params, block)
               ? access->release(access->arg, block)
               : ERR_OK;
}

static enum err find_gradient(const struct model *model, int block,
                              struct gathered *at)
{
    const struct param_access *access = model->passes[0].access;
    return params_trains(model->params, block)
               ? access->gradient(access->arg, block, &at->gradient)
               : ERR_OK;
}

enum err model_enter(struct model *model, int block, bool gradient)
{
    struct gathered at;
    TRY(pace(model));
    TRY(gather(model, block, &at));
    if (gradient)
        TRY(find_gradient(model, block, &at));
    enter_passes(model, block, &at);
    return ERR_OK;
}

bool model_begins(const struct model *model, int block)
{
    const struct param_access *access = model->passes[0].access;
    return params_trains(model->params, block) && access->begins != NULL &&
           access->begins(access->arg, block);
}

enum err model_enter_layer(struct model *model, int layer, bool gradient)
{
    const struct params *params = model->params;
    int block = params_layer_block(params, layer);
    int end = block + params->layer_blocks;
    struct gathered at[1 + PARAM_EXPERT_KINDS];
    TRY(pace(model));
    assert(layer >= 0 && layer < model->config.n_layers);
    assert(params->layer_blocks <= 1 + PARAM_EXPERT_KINDS);
    for (int b = block; b < end; b++)
        TRY(gather(model, b, &at[b - block]));
    for (int b = block; b < end && gradient; b++) {
        if (!params_trains(params, b))
            continue;
        model->begins = model_begins(model, b);
        TRY(find_gradient(model, b, &at[b - block]));
    }
    enter_passes(model, block, &at[0]);
    for (int b = block + 1; b < end; b++)
        enter_experts(model, b, &at[b - block]);
    for (int i = 0; i < model->options.own_chunks; i++) {
        model->passes[i].number = layer;
        model->passes[i].layer = &model->passes[i].layers[layer];
        model->passes[i].backward = gradient;
    }
    return ERR_OK;
}

enum err model_leave_experts(struct model *model)
{
    const struct pass *pass = &model->passes[0];
    const struct param_access *access = pass->access;
    int end = pass->block + model->params->layer_blocks;
    for (int b = pass->block + 1; b < end && pass->backward; b++)
        if (params_trains(model->params, b))
            TRY(access->gradient_done(access->arg, b));
    for (int b = pass->block + 1; b < end; b++)
        TRY(release(model, b));
    return ERR_OK;
}

enum err model_enter_gradient(struct model *model, int block)
{
    struct gathered at = { .weights = NULL };
    TRY(find_gradient(model, block, &at));
    enter_passes(model, block, &at);
    return ERR_OK;
}

enum err model_leave(struct model *model)
{
    const struct pass *pass = &model->passes[0];
    const struct param_access *access = pass->access;
    if (pass->gradient != NULL)
        TRY(access->gradient_done(access->arg, pass->block));
    return release(model, pass->block);
}
