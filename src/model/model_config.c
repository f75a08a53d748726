/* Checks a model's shape and counts its parameters and FLOPs. The presets are
 * in model_presets.c, the tensors in params.c. */
#include "src/model/model_config.h"

#include <math.h>
#include <stddef.h>

#include "src/base/real.h"

/* Every size is at least 1: what follows divides by them, and a product with
 * one of 0 would be none. */
static enum err check_sizes(const struct model_config *c)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {
        { "model.d_model", c->d_model },
        { "model.n_heads", c->n_heads },
        { "model.n_kv_heads", c->n_kv_heads },
        { "model.n_layers", c->n_layers },
        { "model.vocab_size", c->vocab_size },
        { "model.max_seq_len", c->max_seq_len },
        { "the MLP's width (model.ffn_width, or model.expansion_ratio x "
          "model.d_model)",
          c->ffn_width },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].value < 1)
            return err_set(ERR_USAGE, "%s is %lld: it must be at least 1",
                           sizes[i].name, (long long)sizes[i].value);
    return ERR_OK;
}

/* What would have no effect is refused. */
static enum err check_biases(const struct model_config *c)
{
    if (c->bias && (c->qkv_bias || c->out_bias || c->mlp_bias))
        return err_set(
            ERR_USAGE,
            "model.%s = true, but model.bias = true gives all linear "
            "layers biases: for those alone set model.bias = false",
            c->qkv_bias   ? "qkv_bias"
            : c->out_bias ? "out_bias"
                          : "mlp_bias");
    if (c->mlp_bias && c->experts > 0)
        return err_set(ERR_USAGE,
                       "model.mlp_bias = true, but model.experts is %lld: "
                       "experts have no biases",
                       (long long)c->experts);
    return ERR_OK;
}

static enum err check_heads(const struct model_config *c)
{
    int64_t head_dim = model_config_head_dim(c);
    const char *name =
        c->head_dim > 0 ? "model.head_dim" : "model.d_model / model.n_heads";
    if (c->head_dim == 0 && c->d_model % c->n_heads != 0)
        return err_set(ERR_USAGE,
                       "model.d_model (%lld) is not divisible by model.n_heads "
                       "(%lld)",
                       (long long)c->d_model, (long long)c->n_heads);
    if (c->n_heads % c->n_kv_heads != 0)
        return err_set(ERR_USAGE,
                       "model.n_heads (%lld) is not divisible by "
                       "model.n_kv_heads (%lld)",
                       (long long)c->n_heads, (long long)c->n_kv_heads);
    if (head_dim > 256)
        return err_set(ERR_USAGE, "%s is %lld; heads are at most 256 wide",
                       name, (long long)head_dim);
    if (c->positions == POSITIONS_ROPE && head_dim % 2 != 0)
        return err_set(ERR_USAGE,
                       "model.positions = \"rope\" turns pairs, but %s is "
                       "%lld, an odd number",
                       name, (long long)head_dim);
    if (c->head_dim > 0 && model_config_queries(c) % 16 != 0)
        return err_set(ERR_USAGE,
                       "model.n_heads x model.head_dim (%lld) is not a "
                       "multiple of 16",
                       (long long)model_config_queries(c));
    return ERR_OK;
}

enum err model_config_check(const struct model_config *config)
{
    const struct model_config *c = config;
    TRY(check_sizes(c));
    TRY(check_heads(c));
    if (c->d_model % 16 != 0)
        return err_set(ERR_USAGE,
                       "model.d_model (%lld) is not a multiple of 16",
                       (long long)c->d_model);
    if (c->ffn_width % 16 != 0)
        return err_set(ERR_USAGE,
                       "the MLP's width (%lld: model.ffn_width, or "
                       "model.expansion_ratio x model.d_model) is not a "
                       "multiple of 16",
                       (long long)c->ffn_width);
    TRY(model_config_rope_check(c));
    if (c->norm_place != NORM_BEFORE && c->experts > 0)
        return err_set(ERR_USAGE,
                       "model.norm_place = \"%s\", but model.experts is "
                       "%lld: the norm of what experts add is not there",
                       model_norm_place_names[c->norm_place],
                       (long long)c->experts);
    TRY(check_biases(c));
    if (c->init == MODEL_INIT_BASELINE && c->init_std <= 0.0)
        return err_set(ERR_USAGE, "model.init = \"baseline\" needs "
                                  "model.init_std");
    if (c->experts > 0 &&
        (c->experts_top_k < 1 || c->experts_top_k > c->experts))
        return err_set(ERR_USAGE,
                       "model.experts_top_k (%lld) must be from 1 to "
                       "model.experts (%lld)",
                       (long long)c->experts_top_k, (long long)c->experts);
    return ERR_OK;
}

static void fill(int64_t *value, int64_t preset)
{
    if (*value == 0)
        *value = preset;
}

void model_config_complete(struct model_config *config,
                           const struct model_config *preset)
{
    struct model_config *c = config;
    fill(&c->d_model, preset->d_model);
    fill(&c->n_heads, preset->n_heads);
    fill(&c->n_layers, preset->n_layers);
    fill(&c->vocab_size, preset->vocab_size);
    fill(&c->max_seq_len, preset->max_seq_len);
    int64_t heads = c->n_heads * preset->n_kv_heads / preset->n_heads;
    fill(&c->n_kv_heads, heads > 0 ? heads : 1);
    if (c->expansion_ratio == 0.0)
        c->expansion_ratio = preset->expansion_ratio;
    fill(&c->ffn_width, llround(c->expansion_ratio * (double)c->d_model));
    c->expansion_ratio = (double)c->ffn_width / (double)c->d_model;
}

float model_config_attention_scale(const struct model_config *config)
{
    double head_dim = (double)model_config_head_dim(config);
    return config->attention_scale > 0.0 ? (float)config->attention_scale
                                         : (float)(1.0 / sqrt(head_dim));
}

static int64_t norm_count(const struct model_config *config, int64_t width)
{
    bool beta = !model_norm_is_rms(config->norm) && config->bias;
    return beta ? 2 * width : width;
}

/* Parameters of one block, with `experts` of the experts. */
static int64_t block_count(const struct model_config *config, int64_t experts)
{
    int64_t d = config->d_model;
    int64_t f = config->ffn_width;
    int64_t q = model_config_queries(config);
    int64_t kv = model_config_kv(config);
    int64_t matrices = config->ffn == FFN_GLU ? 3 : 2;
    int64_t norms = config->norm_place == NORM_AROUND ? 4 : 2;
    int64_t count = norms * norm_count(config, d) + (q + 2 * kv) * d + d * q;
    if (model_config_qkv_bias(config))
        count += q + 2 * kv;
    if (model_config_out_bias(config))
        count += d;
    if (config->qk_norm == QK_NORM_FULL)
        count += norm_count(config, q) + norm_count(config, kv);
    else if (config->qk_norm == QK_NORM_HEAD)
        count += 2 * norm_count(config, model_config_head_dim(config));
    if (config->experts > 0)
        return count + config->experts * d + experts * matrices * d * f;
    if (model_config_mlp_bias(config))
        count += (matrices - 1) * f + d;
    return count + matrices * d * f;
}

static int64_t count_with(const struct model_config *config, int64_t experts)
{
    int64_t d = config->d_model;
    int64_t count = config->vocab_size * d + norm_count(config, d) +
                    config->n_layers * block_count(config, experts);
    if (config->positions == POSITIONS_LEARNED)
        count += config->max_seq_len * d;
    if (!config->tied)
        count += config->vocab_size * d;
    return count;
}

int64_t model_config_param_count(const struct model_config *config)
{
    return count_with(config, config->experts);
}

int64_t model_config_active_count(const struct model_config *config)
{
    return count_with(config, config->experts_top_k);
}

/* FLOPs: a parameter that is multiplied costs two operations a token, forward
 * once and backward twice, as each product has two gradients: the 3. Attention's
 * two products have 2 d S operations a token and layer each; the second count
 * takes half of them, those below the diagonal. */
/* Active parameters without an untied embedding: it is looked up, not
 * multiplied. */
static double multiplied(const struct model_config *config)
{
    int64_t count = model_config_active_count(config);
    if (!config->tied)
        count -= config->vocab_size * config->d_model;
    return (double)count;
}

double model_config_pairs(const struct model_config *config, int64_t layers,
                          int64_t seq_len, bool causal)
{
    double s = (double)seq_len, sum = 0.0;
    for (int64_t i = 0; i < layers; i++) {
        double w = (double)model_config_window(config, i);
        if (w == 0.0 || w > s)
            w = s;
        sum += causal ? s * w - w * w / 2.0 : s * w;
    }
    return sum;
}

double model_config_flops_per_sequence(const struct model_config *config,
                                       int64_t seq_len)
{
    double s = (double)seq_len;
    return 3.0 *
           (2.0 * multiplied(config) * s +
            4.0 * (double)model_config_queries(config) *
                model_config_pairs(config, config->n_layers, seq_len, false));
}

double model_config_flops_per_sequence_causal(const struct model_config *config,
                                              int64_t seq_len)
{
    double s = (double)seq_len;
    double p = multiplied(config);
    if (config->positions == POSITIONS_LEARNED)
        p -= (double)(config->max_seq_len * config->d_model);
    return 3.0 * (2.0 * p * s + 4.0 * (double)model_config_queries(config) *
                                    model_config_pairs(config, config->n_layers,
                                                       seq_len, true));
}

/* ALiBi adds slope * (key - query) to a score, which is a penalty that grows
 * with the distance, each head with another slope; there is nothing to learn,
 * and sequences may be longer than in training. */
void model_config_alibi_slopes(const struct model_config *config, float *slopes)
{
    int64_t heads = config->n_heads;
    int64_t whole = 1;
    while (whole < heads)
        whole *= 2;
    for (int64_t h = 0; h < heads; h++) {
        int64_t i = h; /* place among the 2^k slopes */
        if (whole != heads)
            i = h < whole / 2 ? 2 * h + 1 : 2 * (h - whole / 2);
        slopes[h] = (float)real_pow(2.0, -config->alibi_bias_max *
                                             (double)(i + 1) / (double)whole);
    }
}
