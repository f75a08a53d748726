/* Rotary angles in long double, by the wavelengths of transformers'
 * modeling_rope_utils. */
#pragma once

#include <math.h>

#include "src/model/model_config.h"

/* What cosines and sines are multiplied by. */
static inline long double rope_reference_length(const struct model_config *c)
{
    if (c->rope_scaling != ROPE_SCALING_YARN)
        return 1;
    return c->rope_attention_factor > 0
               ? (long double)c->rope_attention_factor
               : 1 + 0.1L * logl((long double)c->rope_factor);
}

/* What pair j turns by from one position to the next. */
static inline long double rope_reference_angle(const struct model_config *c,
                                               int64_t j)
{
    int64_t width = c->head_dim > 0 ? c->head_dim : c->d_model / c->n_heads;
    long double half = (long double)width / 2;
    long double angle =
        powl((long double)c->rope_theta, -(long double)j / half);
    long double wavelength = 2 * acosl(-1) / angle;
    long double length = (long double)c->rope_original_len;
    long double factor = (long double)c->rope_factor;
    long double low = (long double)c->rope_low_freq_factor;
    long double high = (long double)c->rope_high_freq_factor;
    if (c->rope_scaling == ROPE_SCALING_YARN) {
        /* pairs that turn 32 times and once, each rounded outwards */
        long double fast = c->rope_beta_fast > 0 ? c->rope_beta_fast : 32;
        long double slow = c->rope_beta_slow > 0 ? c->rope_beta_slow : 1;
        long double per = half / logl((long double)c->rope_theta);
        long double first = floorl(per * logl(length / (fast * 2 * acosl(-1))));
        long double last = ceill(per * logl(length / (slow * 2 * acosl(-1))));
        first = fmaxl(first, 0);
        last = fminl(last, 2 * half - 1);
        long double ramp = ((long double)j - first) / (last - first);
        ramp = fminl(fmaxl(ramp, 0), 1);
        return ramp * angle / factor + (1 - ramp) * angle;
    }
    if (c->rope_scaling == ROPE_SCALING_NONE ||
        (c->rope_scaling == ROPE_SCALING_LLAMA3 && wavelength < length / high))
        return angle;
    if (c->rope_scaling == ROPE_SCALING_LINEAR || wavelength > length / low)
        return angle / factor;
    long double smooth = (length / wavelength - low) / (high - low);
    return (1 - smooth) * angle / factor + smooth * angle;
}
