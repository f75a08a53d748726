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
 * turns more than high_freq_factor times, and goes over between. "yarn" (Peng et
 * al. 2023) does the same between two numbers of turns, linearly in the pair's
 * number, and multiplies queries and keys, whose products sharpen the softmax as
 * longer sequences need. */
#include "src/model/model_config.h"

#include <assert.h>
#include <math.h>

#include "src/base/real.h"

#define PI 3.14159265358979323846
/* What 0 stands for. */
#define YARN_FAST 32.0
#define YARN_SLOW 1.0

/* What is not read must not be there: it would have no effect. */
static enum err check_unused(const struct model_config *c)
{
    bool scaled = c->rope_scaling != ROPE_SCALING_NONE;
    bool llama3 = c->rope_scaling == ROPE_SCALING_LLAMA3;
    bool yarn = c->rope_scaling == ROPE_SCALING_YARN;
    const struct {
        const char *name;
        bool given;
        const char *needs;
    } unused[] = {
        { "rope_factor", !scaled && c->rope_factor != 0.0,
          "\"linear\", \"llama3\" or \"yarn\"" },
        { "rope_low_freq_factor", !llama3 && c->rope_low_freq_factor != 0.0,
          "\"llama3\"" },
        { "rope_high_freq_factor", !llama3 && c->rope_high_freq_factor != 0.0,
          "\"llama3\"" },
        { "rope_original_len", !llama3 && !yarn && c->rope_original_len != 0,
          "\"llama3\" or \"yarn\"" },
        { "rope_beta_fast", !yarn && c->rope_beta_fast != 0.0, "\"yarn\"" },
        { "rope_beta_slow", !yarn && c->rope_beta_slow != 0.0, "\"yarn\"" },
        { "rope_attention_factor", !yarn && c->rope_attention_factor != 0.0,
          "\"yarn\"" },
    };
    for (size_t i = 0; i < sizeof unused / sizeof unused[0]; i++)
        if (unused[i].given)
            return err_set(ERR_USAGE,
                           "model.%s has no effect without "
                           "model.rope_scaling = %s",
                           unused[i].name, unused[i].needs);
    return ERR_OK;
}

static enum err check_window(const struct model_config *c)
{
    if (c->window_interval > 0 && c->window == 0)
        return err_set(ERR_USAGE, "model.window_interval has no effect without "
                                  "model.window");
    if (c->window_rope_theta > 0.0 &&
        (c->window == 0 || c->positions != POSITIONS_ROPE))
        return err_set(ERR_USAGE,
                       "model.window_rope_theta has no effect without "
                       "model.window and model.positions = \"rope\"");
    return ERR_OK;
}

static double given_or(double given, double otherwise)
{
    return given > 0.0 ? given : otherwise;
}

enum err model_config_rope_check(const struct model_config *config)
{
    const struct model_config *c = config;
    bool llama3 = c->rope_scaling == ROPE_SCALING_LLAMA3;
    bool yarn = c->rope_scaling == ROPE_SCALING_YARN;
    double fast = given_or(c->rope_beta_fast, YARN_FAST);
    double slow = given_or(c->rope_beta_slow, YARN_SLOW);
    if (c->rope_scaling != ROPE_SCALING_NONE && c->positions != POSITIONS_ROPE)
        return err_set(ERR_USAGE, "model.rope_scaling has no effect without "
                                  "model.positions = \"rope\"");
    if (c->no_rope_interval > 0 && c->positions != POSITIONS_ROPE)
        return err_set(ERR_USAGE, "model.no_rope_interval has no effect "
                                  "without model.positions = \"rope\"");
    TRY(check_window(c));
    TRY(check_unused(c));
    if (c->rope_scaling != ROPE_SCALING_NONE && !(c->rope_factor >= 1.0))
        return err_set(ERR_USAGE,
                       "model.rope_factor is %g: model.rope_scaling needs one "
                       "that is at least 1",
                       c->rope_factor);
    if ((llama3 || yarn) && c->rope_original_len < 1)
        return err_set(ERR_USAGE,
                       "model.rope_scaling = \"%s\" needs "
                       "model.rope_original_len",
                       model_rope_scaling_names[c->rope_scaling]);
    if (yarn && (fast <= slow || c->rope_theta <= 1.0))
        return err_set(ERR_USAGE,
                       "model.rope_beta_fast is %g and model.rope_beta_slow "
                       "%g, model.rope_theta %g: model.rope_scaling = \"yarn\" "
                       "needs the first above the second, the last above 1",
                       fast, slow, c->rope_theta);
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

/* How much of an angle stays, from 0 to 1: `angle` is one position's. */
static double kept_llama3(const struct model_config *c, double angle)
{
    double low = c->rope_low_freq_factor;
    double turns = (double)c->rope_original_len * angle / (2.0 * PI);
    double keep = (turns - low) / (c->rope_high_freq_factor - low);
    return keep < 0.0 ? 0.0 : keep > 1.0 ? 1.0 : keep;
}

/* The pair, not a whole number, that turns so often in the original length. */
static double pair_of(const struct model_config *c, double turns)
{
    double head_dim = (double)model_config_head_dim(c);
    return head_dim *
           real_log((double)c->rope_original_len / (turns * 2.0 * PI)) /
           (2.0 * real_log(c->rope_theta));
}

static double kept_yarn(const struct model_config *c, int64_t pair)
{
    double last = (double)model_config_head_dim(c) - 1.0;
    double low = floor(pair_of(c, given_or(c->rope_beta_fast, YARN_FAST)));
    double high = ceil(pair_of(c, given_or(c->rope_beta_slow, YARN_SLOW)));
    low = low < 0.0 ? 0.0 : low;
    high = high > last ? last : high;
    if (low == high)
        high += 0.001;
    double gone = ((double)pair - low) / (high - low);
    return 1.0 - (gone < 0.0 ? 0.0 : gone > 1.0 ? 1.0 : gone);
}

/* `angle` of one position, in radians. */
static double scaled(const struct model_config *config, int64_t pair,
                     double angle)
{
    double keep = 0.0;
    switch (config->rope_scaling) {
    case ROPE_SCALING_NONE:
        return angle;
    case ROPE_SCALING_LINEAR:
        return angle / config->rope_factor;
    case ROPE_SCALING_LLAMA3:
        keep = kept_llama3(config, angle);
        break;
    case ROPE_SCALING_YARN:
        keep = kept_yarn(config, pair);
        break;
    }
    return keep * angle + (1.0 - keep) * angle / config->rope_factor;
}

static double plain(const struct model_config *config, int64_t pair)
{
    double head_dim = (double)model_config_head_dim(config);
    return real_pow(config->rope_theta, -2.0 * (double)pair / head_dim);
}

void model_config_rope_divisors(const struct model_config *config,
                                double divisors[MODEL_ROPE_PAIRS_MAX])
{
    for (int64_t j = 0; j < model_config_head_dim(config) / 2; j++)
        divisors[j] = plain(config, j) / scaled(config, j, plain(config, j));
}

void model_config_rope_table(const struct model_config *config, bool apart,
                             int64_t first, int64_t count, float *table)
{
    struct model_config plain_config = *config;
    plain_config.rope_theta = config->window_rope_theta;
    plain_config.rope_scaling = ROPE_SCALING_NONE;
    config = apart ? &plain_config : config;
    double angles[MODEL_ROPE_PAIRS_MAX], longer = 1.0;
    int64_t pairs = model_config_head_dim(config) / 2;
    assert(pairs >= 1 && pairs <= MODEL_ROPE_PAIRS_MAX);
    if (config->rope_scaling == ROPE_SCALING_YARN)
        longer = given_or(config->rope_attention_factor,
                          1.0 + 0.1 * real_log(config->rope_factor));
    for (int64_t j = 0; j < pairs; j++)
        angles[j] = scaled(config, j, plain(config, j));
    for (int64_t t = 0; t < count; t++) {
        for (int64_t j = 0; j < pairs; j++) {
            double angle = (double)(first + t) * angles[j];
            table[2 * t * pairs + j] = (float)(longer * real_cos(angle));
            table[(2 * t + 1) * pairs + j] = (float)(longer * real_sin(angle));
        }
    }
}
