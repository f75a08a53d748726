/* An op table of the processor that passes for a device's: its tensors are
 * copied to and from the host and waited for, although the host could reach
 * them. Bits are the table's, so ranks that are threads can be compared with
 * it. */
#pragma once

#include "kernels/kernels.h"

struct played_device {
    struct kernels kernels;
    struct kernel_memory memory;
};

/* `out` stays where it is. */
static inline void played_device_create(const struct kernels *kernels,
                                        struct played_device *out)
{
    out->memory = *kernels->memory;
    out->memory.device = true;
    out->kernels = *kernels;
    out->kernels.kernel_set = "played device";
    out->kernels.memory = &out->memory;
}
