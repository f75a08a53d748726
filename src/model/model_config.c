#include "src/model/model_config.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    struct model_config config;
} model_presets[] = {
    /* for tests and the demo: bytes as tokens */
    { "mpt-tiny", { 128, 4, 4, 320, 128, 4, 1e-5 } },
    { "mpt-125m", { 768, 12, 12, 50368, 2048, 4, 1e-5 } },
    { "mpt-350m", { 1024, 16, 24, 50368, 2048, 4, 1e-5 } },
};

const char *model_config_presets(void)
{
    return "mpt-tiny|mpt-125m|mpt-350m";
}

enum err model_config_preset(const char *name, struct model_config *out)
{
    for (size_t i = 0; i < sizeof model_presets / sizeof model_presets[0];
         i++) {
        if (strcmp(model_presets[i].name, name) == 0) {
            *out = model_presets[i].config;
            return ERR_OK;
        }
    }
    return err_set(ERR_USAGE, "model.preset: no preset '%s'; there are %s",
                   name, model_config_presets());
}

enum err model_config_check(const struct model_config *config)
{
    if (config->d_model % config->n_heads != 0)
        return err_set(ERR_USAGE,
                       "model.d_model (%lld) is not divisible by model.n_heads "
                       "(%lld)",
                       (long long)config->d_model, (long long)config->n_heads);
    if (config->d_model % 16 != 0)
        return err_set(ERR_USAGE,
                       "model.d_model (%lld) is not a multiple of 16",
                       (long long)config->d_model);
    if (config->d_model / config->n_heads > 256)
        return err_set(ERR_USAGE,
                       "model.d_model / model.n_heads is %lld; heads are at "
                       "most 256 wide",
                       (long long)(config->d_model / config->n_heads));
    return ERR_OK;
}

int64_t model_config_param_count(const struct model_config *config)
{
    int64_t d = config->d_model;
    int64_t f = config->expansion_ratio * d;
    int64_t block = 4 * d               /* two norms */
                    + 3 * d * d + 3 * d /* Wqkv */
                    + d * d + d         /* out_proj */
                    + d * f + f         /* up_proj */
                    + f * d + d;        /* down_proj */
    return config->vocab_size * d + config->max_seq_len * d +
           config->n_layers * block + 2 * d;
}

double model_config_flops_per_sequence(const struct model_config *config,
                                       int64_t seq_len)
{
    double s = (double)seq_len;
    double p = (double)model_config_param_count(config);
    return 3.0 * (2.0 * p * s + 4.0 * (double)config->n_layers *
                                    (double)config->d_model * s * s);
}
