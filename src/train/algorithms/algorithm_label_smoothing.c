/* Label smoothing (Szegedy et al. 2016), as PyTorch's cross entropy has it: of V
 * tokens the label is wanted with 1 - s + s/V and each other one with s/V, so
 * that no logit has to grow for ever. The training loss is the smoothed one, the
 * evaluation's is the plain one. The model's loss does it (struct target). */
#include "src/train/run/algorithm.h"
#include "src/train/settings/algorithm_settings.h"

static enum err label_smoothing_needs(const void *settings,
                                      struct algorithm_needs *needs)
{
    const struct algorithm_label_smoothing *s = settings;
    needs->target.smoothing = (float)s->smoothing;
    return ERR_OK;
}

const struct algorithm_ops algorithm_label_smoothing_ops = {
    .needs = label_smoothing_needs,
};
