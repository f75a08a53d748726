/* Stochastic depth (Huang et al. 2016), in the model (model_options.drop_depth):
 * of a sample, layer l of L, from 1 on, is left out with the probability
 * drop_rate l / L, for early layers have what all others build on. What a layer
 * that was not left out adds is divided by the probability of that, so that
 * evaluations take the model as it is. */
#include "src/train/run/algorithm.h"
#include "src/train/settings/algorithm_settings.h"

static enum err stochastic_depth_needs(const void *settings,
                                       struct algorithm_needs *needs)
{
    const struct algorithm_stochastic_depth *s = settings;
    needs->drop_depth = s->drop_rate;
    return ERR_OK;
}

const struct algorithm_ops algorithm_stochastic_depth_ops = {
    .needs = stochastic_depth_needs,
};
