/* Scales the gradient that comes back to the embedding (Zeng et al. 2022: GLM's
 * embedding gradient shrink; LLM Foundry's embedding_fraction), in the model
 * (model_options.embedding_shrink). What is looked up stays as it is. */
#include "src/train/run/run.h"

/* Where no embedding trains there is no such gradient. */
static enum err embedding_scaling_create(void *self, const void *settings,
                                         struct run *run)
{
    const struct params *params = run->engine.params;
    (void)self;
    (void)settings;
    for (int p = 0; p < params->count; p++)
        if (params->list[p].role == PARAM_WTE ||
            params->list[p].role == PARAM_WPE)
            return ERR_OK;
    return err_set(ERR_USAGE, "the embedding does not train (model.freeze, "
                              "lora.rank): leave it out");
}

static enum err embedding_scaling_needs(const void *settings,
                                        struct algorithm_needs *needs)
{
    const struct algorithm_embedding_scaling *s = settings;
    needs->embedding_shrink = 1.0 - s->gradient;
    return ERR_OK;
}

const struct algorithm_ops algorithm_embedding_scaling_ops = {
    .needs = embedding_scaling_needs,
    .create = embedding_scaling_create,
};
