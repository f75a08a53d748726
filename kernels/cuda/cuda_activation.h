/* The activations: all are x g(x) with a gate g between 0 and 1, the normal
 * distribution function for GELU (Hendrycks and Gimpel 2016), the logistic
 * function for SiLU, that of 2 sqrt(2 / pi) (x + 0.044715 x^3) for GELU with a
 * tanh; the slope is g(x) + x g'(x). */
#pragma once

#include "kernels/cuda/cuda_launch.h"

/* From exp(-|x|), which neither overflows nor cancels in 1 - g. */
CUDA_DEVICE float cuda_gate_silu(float x, float *slope)
{
    float e = expf(-fabsf(x));
    float large = 1.0f / (1.0f + e);
    float small = e * large;
    *slope = large * small;
    return x < 0.0f ? small : large;
}

/* (1 + tanh(u)) / 2 is the logistic function of 2 u. From |x| = 12 on its
 * slope is 0 in fp32: what is further off would overflow in the cube. */
CUDA_DEVICE float cuda_gate_gelu_tanh(float x, float *slope)
{
    float near = fmaxf(fminf(x, 12.0f), -12.0f);
    float square = near * near;
    float gate =
        cuda_gate_silu(near * fmaf(square, 7.13548163e-2f, 1.59576912f), slope);
    *slope *= fmaf(square, 0.214064449f, 1.59576912f);
    return gate;
}

/* g(x), and g'(x) in *slope. */
CUDA_DEVICE float cuda_gate(enum activation act, float x, float *slope)
{
    if (act == ACTIVATION_GELU) {
        *slope = expf(x * x * -0.5f) * 0.39894228f;
        return fmaf(erff(x * 0.70710678f), 0.5f, 0.5f);
    }
    return act == ACTIVATION_GELU_TANH ? cuda_gate_gelu_tanh(x, slope)
                                       : cuda_gate_silu(x, slope);
}
