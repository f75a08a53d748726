/* The named shapes (model.preset). Hyperparameters beside the shape are
 * settings of their own. */
#include <stddef.h>
#include <string.h>

#include "src/model/model_config.h"

/* What all have in common, and every setting that a preset does not name. */
#define COMMON                                                                 \
    .alibi_bias_max = 8.0, .norm_eps = 1e-5, .logit_scale = 1.0,               \
    .residual_scale = 1.0, .init = MODEL_INIT_KAIMING_NORMAL

/* LLM Foundry's pretraining configurations: learned positions, biases, tied
 * embeddings, 2048 tokens. */
#define MPT(d, heads, layers, vocab, seq)                                      \
    {                                                                          \
        COMMON, .d_model = (d), .n_heads = (heads), .n_kv_heads = (heads),     \
                .n_layers = (layers), .vocab_size = (vocab),                   \
                .max_seq_len = (seq), .ffn_width = 4 * (d), .rope_theta = 1e4, \
                .bias = true, .tied = true                                     \
    }

/* Llama 3: rotary positions, RMSNorm, gated MLP, grouped queries. */
#define LLAMA(d, heads, kv, layers, vocab, seq, width)                         \
    {                                                                          \
        COMMON, .d_model = (d), .n_heads = (heads), .n_kv_heads = (kv),        \
                .n_layers = (layers), .vocab_size = (vocab),                   \
                .max_seq_len = (seq), .ffn_width = (width),                    \
                .positions = POSITIONS_ROPE, .rope_theta = 5e5,                \
                .norm = MODEL_NORM_RMSNORM, .ffn = FFN_GLU,                    \
                .activation = MODEL_SILU                                       \
    }

/* DBRX: LayerNorm without bias, clipped qkv, dropless experts. */
#define DBRX(d, heads, kv, layers, vocab, seq, width, count, chosen)           \
    {                                                                          \
        COMMON, .d_model = (d), .n_heads = (heads), .n_kv_heads = (kv),        \
                .n_layers = (layers), .vocab_size = (vocab),                   \
                .max_seq_len = (seq), .ffn_width = (width),                    \
                .positions = POSITIONS_ROPE, .rope_theta = 5e5,                \
                .clip_qkv = 8.0, .ffn = FFN_GLU, .activation = MODEL_SILU,     \
                .experts = (count), .experts_top_k = (chosen),                 \
                .router_jitter = 0.01, .router_normalize = 1.0,                \
                .balance_weight = 0.05                                         \
    }

static const struct {
    const char *name;
    struct model_config config;
} model_presets[] = {
    /* for tests and the demo: bytes as tokens */
    { "mpt-tiny", MPT(128, 4, 4, 320, 128) },
    { "llama-tiny", LLAMA(128, 4, 2, 4, 320, 128, 352) },
    { "moe-tiny", DBRX(128, 4, 2, 4, 320, 128, 128, 8, 2) },
    { "mpt-125m", MPT(768, 12, 12, 50368, 2048) },
    { "mpt-350m", MPT(1024, 16, 24, 50368, 2048) },
    { "mpt-760m", MPT(1536, 12, 24, 50368, 2048) },
    { "mpt-1b", MPT(2048, 16, 24, 50368, 2048) },
    { "mpt-3b", MPT(2560, 20, 32, 50368, 2048) },
    { "mpt-7b", MPT(4096, 32, 32, 50368, 2048) },
    { "mpt-13b", MPT(5120, 40, 40, 50368, 2048) },
    { "mpt-30b", MPT(7168, 56, 48, 50368, 2048) },
    { "mpt-70b", MPT(8192, 64, 80, 50368, 2048) },
    /* as its weights were published: ALiBi, no biases */
    { "mpt-7b-released",
      { COMMON, .d_model = 4096, .n_heads = 32, .n_kv_heads = 32,
        .n_layers = 32, .vocab_size = 50432, .max_seq_len = 2048,
        .ffn_width = 16384, .positions = POSITIONS_ALIBI, .rope_theta = 1e4,
        .tied = true } },
    { "llama3-8b", LLAMA(4096, 32, 8, 32, 128256, 8192, 14336) },
    { "dbrx", DBRX(6144, 48, 8, 40, 100352, 32768, 10752, 16, 4) },
};

const char *model_config_presets(void)
{
    return "mpt-tiny|llama-tiny|moe-tiny|mpt-125m|mpt-350m|mpt-760m|mpt-1b|"
           "mpt-3b|mpt-7b|mpt-13b|mpt-30b|mpt-70b|mpt-7b-released|llama3-8b|"
           "dbrx";
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
