/* Counts what a model computes of which a part is frozen. */
#include "src/model/model.h"

/* Elements that a token is multiplied with, as the convention has it. */
static double multiplied(const struct model_config *config,
                         const struct param *param, bool causal)
{
    double numel = (double)param->numel;
    if ((param->role == PARAM_WTE && !config->tied) ||
        (param->role == PARAM_WPE && causal))
        return 0.0;
    if (param->role >= PARAM_EXPERTS_GATE && param->role <= PARAM_EXPERTS_DOWN)
        return numel * (double)config->experts_top_k / (double)config->experts;
    return numel;
}

/* Elements times products that are not computed, of a token; negative where
 * adapters are more. */
static double left_out(const struct model_config *config,
                       const struct params *params, bool causal)
{
    const struct params *frozen = params->frozen;
    int lowest = params_lowest(params);
    double elements = 0.0;
    for (int i = 0; frozen != NULL && i < frozen->count; i++) {
        const struct param *param = &frozen->list[i];
        bool below = param->block < lowest && param->role != PARAM_WTE;
        elements += multiplied(config, param, causal) * (below ? 2.0 : 1.0);
    }
    for (int i = 0; i < params->count; i++)
        if (params->list[i].role >= PARAM_LORA)
            elements -= 3.0 * (double)params->list[i].numel;
    return elements;
}

/* What attention of the layers below does not do: two of three parts, of which
 * each has 4 d operations for each pair. */
static double attention_left_out(const struct model_config *config,
                                 const struct params *params, int64_t seq_len,
                                 bool causal)
{
    return 2.0 * 4.0 * (double)model_config_queries(config) *
           model_config_pairs(config, params_lowest_layer(params), seq_len,
                              causal);
}

double model_flops_per_sequence(const struct model_config *config,
                                const struct params *params, int64_t seq_len)
{
    double s = (double)seq_len;
    return model_config_flops_per_sequence(config, seq_len) -
           2.0 * s * left_out(config, params, false) -
           attention_left_out(config, params, seq_len, false);
}

double model_flops_per_sequence_causal(const struct model_config *config,
                                       const struct params *params,
                                       int64_t seq_len)
{
    double s = (double)seq_len;
    return model_config_flops_per_sequence_causal(config, seq_len) -
           2.0 * s * left_out(config, params, true) -
           attention_left_out(config, params, seq_len, true);
}
