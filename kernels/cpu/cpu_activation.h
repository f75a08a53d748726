/* The activations on vectors. All are x g(x) with a gate g between 0 and 1: the
 * normal distribution function for GELU (Hendrycks and Gimpel 2016), the
 * logistic function for SiLU, that of 2 sqrt(2 / pi) (x + 0.044715 x^3) for
 * GELU with a tanh; the slope is g(x) + x g'(x). */
#pragma once

#include "kernels/cpu/cpu_math.h"
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

/* (1 + tanh(u)) / 2 is the logistic function of 2 u. From |x| = 12 on its
 * slope is 0 in fp32: what is further off would overflow in the cube. */
static inline vec vec_gate_gelu_tanh(vec x, vec *slope)
{
    vec near = vec_select(x > 12.0f, vec_splat(12.0f), x);
    near = vec_select(x < -12.0f, vec_splat(-12.0f), near);
    vec square = near * near;
    vec twice = near * vec_fma(square, vec_splat(7.13548163e-2f),
                               vec_splat(1.59576912f));
    vec gate = vec_gate_silu(twice, slope);
    *slope *= vec_fma(square, vec_splat(0.214064449f), vec_splat(1.59576912f));
    return gate;
}

/* g(x), and g'(x) in *slope. */
static inline vec vec_gate(enum activation act, vec x, vec *slope)
{
    switch (act) {
    case ACTIVATION_GELU:
        return vec_gate_gelu(x, slope);
    case ACTIVATION_GELU_TANH:
        return vec_gate_gelu_tanh(x, slope);
    case ACTIVATION_SILU:
        break;
    }
    return vec_gate_silu(x, slope);
}

/* CALL(act) with `act` as a constant, so that each activation has a copy of the
 * loop that it is called in. */
#define VEC_BY_ACTIVATION(act, CALL)                                           \
    switch (act) {                                                             \
    case ACTIVATION_GELU:                                                      \
        CALL(ACTIVATION_GELU);                                                 \
        break;                                                                 \
    case ACTIVATION_SILU:                                                      \
        CALL(ACTIVATION_SILU);                                                 \
        break;                                                                 \
    case ACTIVATION_GELU_TANH:                                                 \
        CALL(ACTIVATION_GELU_TANH);                                            \
        break;                                                                 \
    }
