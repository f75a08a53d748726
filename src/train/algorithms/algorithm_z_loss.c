/* The z-loss (Chowdhery et al. 2022, section 5): weight * log^2 of the softmax's
 * sum Z is added to each token's training loss. A softmax is the same whatever is
 * added to all logits, so nothing else keeps them from drifting to where bf16
 * is coarse; this pulls log Z to 0. The model's loss does it (struct target). */
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
