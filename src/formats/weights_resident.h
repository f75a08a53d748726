/* All of a model's weights in this process's memory, for programs of one
 * process: generation, evaluation, comparisons. */
#pragma once

#include "src/formats/weights.h"

struct weights_resident;

/* Reads them all, which must match, with at most `threads` threads. DTYPE_F32
 * or DTYPE_BF16 (rounded to nearest even); memory of the host. `params` is
 * lent. ERR_MEMORY says how much is missing. */
enum err weights_resident_create(struct weights *weights,
                                 const struct params *params, enum dtype dtype,
                                 int threads, struct weights_resident **out);
void weights_resident_destroy(struct weights_resident *resident);

/* gather and release only; there are no gradients. Lent. */
const struct param_access *
weights_resident_access(struct weights_resident *resident);
