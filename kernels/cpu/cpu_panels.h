/* Elements of matrices in panels (struct panels), as ops read them. */
#pragma once

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/cpu_bf16.h"
#include "kernels/cpu/cpu_int8.h"

/* Panels of one group. */
static inline int64_t panels_count(const struct panels *shape)
{
    return cpu_parts(shape->n, KERNEL_PANEL);
}

/* Bytes from one panel to the next. */
static inline size_t panels_stride(const struct panels *shape)
{
    return kernels_panels_elements_bytes(shape) /
           (size_t)(shape->groups * panels_count(shape));
}

/* Panel number `at`, counted over all groups. */
static inline const void *panels_at(const struct panels *shape,
                                    const void *panels, int64_t at)
{
    return (const char *)panels + (size_t)at * panels_stride(shape);
}

/* The scales of int8, of all rows of all panels. */
static inline const float *panels_scales(const struct panels *shape,
                                         const void *panels)
{
    return (const float *)(const void *)((const char *)panels +
                                         kernels_panels_elements_bytes(shape));
}

/* As many elements of a panel as a vector has lanes; `type` is a constant where
 * it matters. */
static inline __attribute__((always_inline)) vec
panel_load(enum panel_type type, const void *panel, int64_t element)
{
    if (type == PANEL_BF16)
        return vec_load_bf16((const uint16_t *)panel + element, VEC_LANES);
    if (type == PANEL_INT8) {
        vec_i8 q;
        memcpy(&q, (const int8_t *)panel + element, sizeof(q));
        return __builtin_convertvector(vec_widen(q), vec);
    }
    return vec_load((const float *)panel + element, VEC_LANES);
}
