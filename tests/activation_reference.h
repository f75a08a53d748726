/* The activations and their slopes in fp64, by libm. */
#pragma once

#include <math.h>

#include "kernels/kernel_shapes.h"

#define ACTIVATIONS 3
static const char *const activation_names[ACTIVATIONS] = {
    [ACTIVATION_GELU] = "gelu",
    [ACTIVATION_SILU] = "silu",
    [ACTIVATION_GELU_TANH] = "gelu with tanh",
};

static inline double activation_normal_cdf(double x)
{
    return 0.5 * erfc(-x / sqrt(2));
}

/* The argument of the tanh. */
static inline double activation_inner(double x)
{
    return sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
}

static inline double activation_value(enum activation act, double x)
{
    switch (act) {
    case ACTIVATION_GELU:
        return x * activation_normal_cdf(x);
    case ACTIVATION_GELU_TANH:
        return 0.5 * x * (1 + tanh(activation_inner(x)));
    case ACTIVATION_SILU:
        break;
    }
    return x / (1 + exp(-x));
}

static inline double activation_slope(enum activation act, double x)
{
    double logistic = 1 / (1 + exp(-x));
    double t = tanh(activation_inner(x));
    switch (act) {
    case ACTIVATION_GELU:
        return activation_normal_cdf(x) +
               x * exp(-x * x / 2) / sqrt(2 * acos(-1));
    case ACTIVATION_GELU_TANH:
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / acos(-1)) *
                                   (1 + 3 * 0.044715 * x * x);
    case ACTIVATION_SILU:
        break;
    }
    return logistic + x * logistic * (1 - logistic);
}
