/* What a step consists of, as a table for people. */
#pragma once

#include "src/base/err.h"
#include "src/base/buffer.h"
#include "src/train/profile/profile_shapes.h"
#include "src/train/profile/profile_sums.h"

/* Lines of text, each with its end. Times are of a step and the mean of the
 * ranks, shares are of the step; rates count what an op is asked for
 * (kernels/kernel_work.h) by the time that it took. shapes: rank 0's, [count].
 */
enum err profile_table(const struct profile_sums *sums,
                       const struct profile_shape *shapes, int count,
                       struct buffer *out);
