/* The angles of rotary positions, and how they are changed for sequences longer
 * than those of the training (Chen et al. 2023; Llama 3.1).
 *
 * Rotary positions (Su et al. 2021) turn pair j of a query's or key's elements at
 * position t by t theta^(-2 j / head_dim). The product of a query and a key then
 * depends on the difference of their positions alone. Low pairs turn fast and
 * tell neighbours apart, high ones slowly and tell far from near.
 *
 * A position beyond all that were trained brings slow pairs to angles that the
 * model has never seen. "linear" divides all angles by a factor, as if positions
 * were closer together, at the price of neighbours. "llama3" divides only what
 * turns less than low_freq_factor times within the original length, leaves what
 * turns more than high_freq_factor times, and goes over between. */
#include "src/model/model_config.h"

#include <assert.h>

#include "src/base/real.h"

#define PI 3.14159265358979323846
#define PAIRS_MAX 128 /* of a head; model_config_check() */

/* What is not read must not be there: it would have no effect. */
static enum err check_unused(const struct model_config *c)
{
    bool scaled = c->rope_scaling != ROPE_SCALING_NONE;
    const struct {
        const char *name;
        bool given;
        const char *needs;
    } unused[] = {
        { "rope_factor", !scaled && c->rope_factor != 0.0,
          "\"linear\" or \"llama3\"" },
        { "rope_low_freq_factor", c->rope_low_freq_factor != 0.0,
          "\"llama3\"" },
        { "rope_high_freq_factor", c->rope_high_freq_factor != 0.0,
          "\"llama3\"" },
        { "rope_original_len", c->rope_original_len != 0, "\"llama3\"" },
    };
    for (size_t i = 0; i < sizeof unused / sizeof unused[0]; i++)
        if (unused[i].given)
            return err_set(ERR_USAGE,
                           "model.%s has no effect without "
                           "model.rope_scaling = %s",
                           unused[i].name, unused[i].needs);
    return ERR_OK;
}

enum err model_config_rope_check(const struct model_config *config)
{
    const struct model_config *c = config;
    bool llama3 = c->rope_scaling == ROPE_SCALING_LLAMA3;
    if (c->rope_scaling != ROPE_SCALING_NONE && c->positions != POSITIONS_ROPE)
        return err_set(ERR_USAGE, "model.rope_scaling has no effect without "
                                  "model.positions = \"rope\"");
    if (!llama3)
        TRY(check_unused(c));
    if (c->rope_scaling != ROPE_SCALING_NONE && !(c->rope_factor >= 1.0))
        return err_set(ERR_USAGE,
                       "model.rope_factor is %g: model.rope_scaling needs one "
                       "that is at least 1",
                       c->rope_factor);
    if (llama3 && c->rope_original_len < 1)
        return err_set(ERR_USAGE, "model.rope_scaling = \"llama3\" needs "
                                  "model.rope_original_len");
    if (llama3 && !(c->rope_low_freq_factor > 0.0 &&
                    c->rope_high_freq_factor > c->rope_low_freq_factor))
        return err_set(ERR_USAGE,
                       "model.rope_low_freq_factor is %g and model."
                       "rope_high_freq_factor %g: model.rope_scaling = "
                       "\"llama3\" needs the first above 0 and the second "
                       "above the first",
                       c->rope_low_freq_factor, c->rope_high_freq_factor);
    return ERR_OK;
}

/* `angle` of one position, in radians. */
static double scaled(const struct model_config *config, double angle)
{
    double low = config->rope_low_freq_factor;
    double high = config->rope_high_freq_factor;
    switch (config->rope_scaling) {
    case ROPE_SCALING_NONE:
        break;
    case ROPE_SCALING_LINEAR:
        return angle / config->rope_factor;
    case ROPE_SCALING_LLAMA3: {
        double turns = (double)config->rope_original_len * angle / (2.0 * PI);
        double keep = (turns - low) / (high - low);
        keep = keep < 0.0 ? 0.0 : keep > 1.0 ? 1.0 : keep;
        return keep * angle + (1.0 - keep) * angle / config->rope_factor;
    }
    }
    return angle;
}

void model_config_rope_table(const struct model_config *config, int64_t first,
                             int64_t count, float *table)
{
    double angles[PAIRS_MAX];
    int64_t head_dim = model_config_head_dim(config);
    int64_t pairs = head_dim / 2;
    assert(pairs >= 1 && pairs <= PAIRS_MAX);
    for (int64_t j = 0; j < pairs; j++)
        angles[j] =
            scaled(config, real_pow(config->rope_theta,
                                    -2.0 * (double)j / (double)head_dim));
    for (int64_t t = 0; t < count; t++) {
        for (int64_t j = 0; j < pairs; j++) {
            double angle = (double)(first + t) * angles[j];
            table[2 * t * pairs + j] = (float)real_cos(angle);
            table[(2 * t + 1) * pairs + j] = (float)real_sin(angle);
        }
    }
}
