/* Do products reach what the processor can do? Kernels that do not suit it
 * train at a fraction of its rate, and only a comparison shows that. */
#ifndef TESSERA_TRAIN_TRAIN_PRODUCTS_H
#define TESSERA_TRAIN_TRAIN_PRODUCTS_H

#include "src/base/err.h"
#include "src/train/trainer.h"

/* Log a warning where the products of this rank's kernels take less than half
 * of what its threads' multiply-adds alone reach with the best kernel set. Each
 * thread is timed alone and by its fastest product of 256 x 256 x 256, so that
 * other work on the processors counts in neither. Takes 20 ms, 0.2 s where
 * products are slow. On a GPU nothing is looked at. */
enum err train_products_check(const struct trainer *trainer);

#endif
