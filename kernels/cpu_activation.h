/* The activations on vectors. Both are x g(x) with a gate g between 0 and 1:
 * the normal distribution function for GELU (Hendrycks and Gimpel 2016), the
 * logistic function for SiLU; the slope is g(x) + x g'(x). */
#ifndef TESSERA_KERNELS_CPU_ACTIVATION_H
#define TESSERA_KERNELS_CPU_ACTIVATION_H

#include "kernels/cpu_math.h"
#include "kernels/kernels.h"

static inline vec vec_gate_gelu(vec x, vec *slope)
{
    *slope = vec_exp(x * x * -0.5f) * 0.39894228f;
    return vec_fma(vec_erf(x * 0.70710678f), vec_splat(0.5f), vec_splat(0.5f));
}

/* From exp(-|x|), which neither overflows nor cancels in 1 - g. */
static inline vec vec_gate_silu(vec x, vec *slope)
{
    vec e = vec_exp((vec)((vec_u32)x | 0x80000000u));
    vec large = 1.0f / (1.0f + e);
    vec small = e * large;
    *slope = large * small;
    return vec_select(x < 0.0f, small, large);
}

/* g(x), and g'(x) in *slope. */
static inline vec vec_gate(enum activation act, vec x, vec *slope)
{
    return act == ACTIVATION_GELU ? vec_gate_gelu(x, slope)
                                  : vec_gate_silu(x, slope);
}

#endif
