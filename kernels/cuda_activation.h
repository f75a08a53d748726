/* The activations: both are x g(x) with a gate g between 0 and 1, the normal
 * distribution function for GELU (Hendrycks and Gimpel 2016), the logistic
 * function for SiLU; the slope is g(x) + x g'(x). */
#ifndef TESSERA_KERNELS_CUDA_ACTIVATION_H
#define TESSERA_KERNELS_CUDA_ACTIVATION_H

#include "kernels/cuda_launch.h"

/* g(x), and g'(x) in *slope. SiLU starts from exp(-|x|), which neither
 * overflows nor cancels in 1 - g. */
CUDA_DEVICE float cuda_gate(enum activation act, float x, float *slope)
{
    if (act == ACTIVATION_GELU) {
        *slope = expf(x * x * -0.5f) * 0.39894228f;
        return fmaf(erff(x * 0.70710678f), 0.5f, 0.5f);
    }
    float e = expf(-fabsf(x));
    float large = 1.0f / (1.0f + e);
    float small = e * large;
    *slope = large * small;
    return x < 0.0f ? small : large;
}

#endif
