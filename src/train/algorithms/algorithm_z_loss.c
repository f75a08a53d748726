/* The z-loss (Chowdhery et al. 2022): weight * log^2 of the softmax's sum is
 * added to each token's training loss. */
#include "src/train/run/algorithm.h"
#include "src/train/settings/algorithm_settings.h"

static enum err z_loss_needs(const void *settings,
                             struct algorithm_needs *needs)
{
    const struct algorithm_z_loss *s = settings;
    needs->target.z = (float)s->weight;
    return ERR_OK;
}

const struct algorithm_ops algorithm_z_loss_ops = {
    .needs = z_loss_needs,
};
