/* What each op is asked for, as a profile shows it. A new op gets a row in
 * kernel_work.c. */
#pragma once

#include "kernels/kernel_ops.h"
#include "src/base/timeline.h"

/* What an op is asked for: its shape, floating-point operations (a multiply-add
 * is two; of attention those below the diagonal) and the bytes of its tensors,
 * each counted once, as if caches held nothing else. What is known only on a
 * device, such as experts' rows, is as if all were even. */
#define KERNEL_WORK_DECLARE(op, parameters, ...)                               \
    struct timeline_detail kernel_work_##op KERNEL_PARAMETERS(parameters);
KERNEL_OPS(KERNEL_WORK_DECLARE)
KERNEL_OPS_FP8(KERNEL_WORK_DECLARE)
