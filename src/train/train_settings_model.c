/* The model part of the settings: completes it from the preset and makes the
 * model's configuration of it. The presets are in src/model/model_presets.c. */
#include "src/train/train_settings_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Names in the order of the enums of model_config.h. */
static const char *const positions[] = { "learned", "alibi", "rope" };
static const char *const norms[] = { "layernorm", "rmsnorm" };
static const char *const qk_norms[] = { "none", "full", "head" };
static const char *const ffns[] = { "mlp", "glu" };
static const char *const activations[] = { "gelu", "silu" };
static const char *const inits[] = {
    "kaiming_normal", "kaiming_uniform", "xavier_normal",
    "xavier_uniform", "small",           "neox",
    "baseline",
};
static const char *const packings[] = { "none", "bf16", "int8" };

#define LOW_PRECISION "low_precision_"

/* The schema has checked that it is one of them. */
static int place_of(const char *const *names, int count, const char *name)
{
    int place = 0;
    while (place < count - 1 && strcmp(names[place], name) != 0)
        place++;
    return place;
}

#define PLACE_OF(names, name)                                                  \
    place_of(names, (int)(sizeof names / sizeof names[0]), name)

static void set_text(char text[SETTINGS_TEXT_BYTES], const char *prefix,
                     const char *name)
{
    snprintf(text, SETTINGS_TEXT_BYTES, "%s%s", prefix, name);
}

/* The settings that say the same as the configuration. */
static void settings_of(const struct model_config *c, struct train_settings *s)
{
    s->model.d_model = c->d_model;
    s->model.n_heads = c->n_heads;
    s->model.n_kv_heads = 0; /* follow from others */
    s->model.ffn_width = 0;
    s->model.n_layers = c->n_layers;
    s->model.vocab_size = c->vocab_size;
    s->model.max_seq_len = c->max_seq_len;
    s->model.expansion_ratio = (double)c->ffn_width / (double)c->d_model;
    set_text(s->model.positions, "", positions[c->positions]);
    s->model.rope_theta = c->rope_theta;
    s->model.alibi_bias_max = c->alibi_bias_max;
    set_text(s->model.norm, c->norm_low_precision ? LOW_PRECISION : "",
             norms[c->norm]);
    s->model.norm_eps = c->norm_eps;
    set_text(s->model.qk_norm, "", qk_norms[c->qk_norm]);
    s->model.clip_qkv = c->clip_qkv;
    s->model.attn_uses_sequence_id = true; /* of samples, not of a shape */
    set_text(s->model.ffn, "", ffns[c->ffn]);
    set_text(s->model.activation, "", activations[c->activation]);
    s->model.bias = c->bias;
    s->model.tied = c->tied;
    s->model.logit_scale = c->logit_scale;
    s->model.residual_scale = c->residual_scale;
    s->model.dropout_embedding = c->dropout_embedding;
    s->model.dropout_attention = c->dropout_attention;
    s->model.dropout_residual = c->dropout_residual;
    set_text(s->model.init, "", inits[c->init]);
    s->model.init_std = c->init_std;
    s->model.init_embedding_std = c->init_embedding_std;
    s->model.experts = c->experts;
    s->model.experts_top_k = c->experts_top_k;
    s->model.router_jitter = c->router_jitter;
    s->model.router_normalize = c->router_normalize;
    s->model.balance_weight = c->balance_weight;
}

static size_t value_bytes(enum setting_type type)
{
    switch (type) {
    case SETTING_INT:
    case SETTING_BYTES:
        return sizeof(int64_t);
    case SETTING_FLOAT:
        return sizeof(double);
    case SETTING_BOOL:
        return sizeof(bool);
    case SETTING_DURATION:
        return sizeof(struct duration);
    default:
        return SETTINGS_TEXT_BYTES;
    }
}

static void fill(int64_t *value, int64_t preset)
{
    if (*value == 0)
        *value = preset;
}

enum err train_settings_preset(struct train_settings *settings,
                               const struct settings_origin *origins)
{
    struct train_settings *s = settings;
    struct train_settings preset = { 0 };
    struct model_config config;
    TRY(model_config_preset(s->model.preset, &config));
    settings_of(&config, &preset);
    for (int i = 0; i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        if (origins[i].place[0] != '\0' || strncmp(setting->key, "model.", 6) != 0 ||
            strcmp(setting->key, "model.preset") == 0)
            continue;
        memcpy((char *)s + setting->offset, (char *)&preset + setting->offset,
               value_bytes(setting->type));
    }
    fill(&s->model.d_model, config.d_model);
    fill(&s->model.n_heads, config.n_heads);
    fill(&s->model.n_layers, config.n_layers);
    fill(&s->model.vocab_size, config.vocab_size);
    fill(&s->model.max_seq_len, config.max_seq_len);
    int64_t heads = s->model.n_heads * config.n_kv_heads / config.n_heads;
    fill(&s->model.n_kv_heads, heads > 0 ? heads : 1);
    if (s->model.expansion_ratio == 0.0)
        s->model.expansion_ratio = preset.model.expansion_ratio;
    if (s->model.ffn_width == 0)
        s->model.ffn_width =
            llround(s->model.expansion_ratio * (double)s->model.d_model);
    s->model.expansion_ratio =
        (double)s->model.ffn_width / (double)s->model.d_model;
    return ERR_OK;
}

struct model_config train_settings_model(const struct train_settings *settings)
{
    const struct train_settings *s = settings;
    const char *norm = s->model.norm;
    bool low = strncmp(norm, LOW_PRECISION, strlen(LOW_PRECISION)) == 0;
    if (low)
        norm += strlen(LOW_PRECISION);
    return (struct model_config){
        .d_model = s->model.d_model,
        .n_heads = s->model.n_heads,
        .n_kv_heads = s->model.n_kv_heads,
        .n_layers = s->model.n_layers,
        .vocab_size = s->model.vocab_size,
        .max_seq_len = s->model.max_seq_len,
        .ffn_width = s->model.ffn_width,
        .positions =
            (enum model_positions)PLACE_OF(positions, s->model.positions),
        .rope_theta = s->model.rope_theta,
        .alibi_bias_max = s->model.alibi_bias_max,
        .norm = (enum model_norm_kind)PLACE_OF(norms, norm),
        .norm_low_precision = low,
        .norm_eps = s->model.norm_eps,
        .qk_norm = (enum model_qk_norm)PLACE_OF(qk_norms, s->model.qk_norm),
        .clip_qkv = s->model.clip_qkv,
        .ffn = (enum model_ffn)PLACE_OF(ffns, s->model.ffn),
        .activation =
            (enum model_activation)PLACE_OF(activations, s->model.activation),
        .bias = s->model.bias,
        .tied = s->model.tied,
        .logit_scale = s->model.logit_scale,
        .residual_scale = s->model.residual_scale,
        .dropout_embedding = s->model.dropout_embedding,
        .dropout_attention = s->model.dropout_attention,
        .dropout_residual = s->model.dropout_residual,
        .init = (enum model_init)PLACE_OF(inits, s->model.init),
        .init_std = s->model.init_std,
        .init_embedding_std = s->model.init_embedding_std,
        .experts = s->model.experts,
        .experts_top_k = s->model.experts_top_k,
        .router_jitter = s->model.router_jitter,
        .router_normalize = s->model.router_normalize,
        .balance_weight = s->model.balance_weight,
    };
}

enum err train_settings_memory(const struct train_settings *settings,
                               struct model_memory *out)
{
    out->packing =
        (enum packing)PLACE_OF(packings, settings->memory.compression);
    return model_memory_parse(settings->memory.checkpoint,
                              settings->model.n_layers, out);
}
