/* What the tensors of a checkpoint are, for who reads it without Tessera: in
 * every state as "about" (checkpoint/files/ckpt_view_about.h says how it is
 * read).
 *
 *   kind        "weight", "first moment", "second moment", "of an algorithm"
 *   trained_in  of weights: train.precision; they are stored in full
 *   role        what it does in the model
 *   axes        what each dimension counts, by the names of the settings */
#pragma once

#include <jansson.h>

#include "src/train/run/run.h"

/* NULL: out of memory. */
json_t *on_checkpoint_about(const struct run *run);
/* Its member "tensors": roles and axes of a model's parameters. */
json_t *on_checkpoint_about_params(const struct model_config *config,
                                   const struct params *params);
