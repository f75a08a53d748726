/* The named shapes (model.preset): rows of settings of the group "model", in
 * which what a row does not name has the setting's default. */
#include <string.h>

#include "src/model/model_config.h"

/* LLM Foundry's pretraining configurations. */
#define MPT "expansion_ratio=4"
/* Llama 3: rotary positions, RMSNorm, gated MLP, grouped queries. */
#define LLAMA                                                                  \
    "positions=rope", "rope_theta=5e5", "norm=rmsnorm", "ffn=glu",             \
        "activation=silu", "bias=false", "tied=false"
/* DBRX: LayerNorm without bias, clipped qkv, dropless experts. */
#define DBRX                                                                   \
    "positions=rope", "rope_theta=5e5", "clip_qkv=8", "ffn=glu",               \
        "activation=silu", "bias=false", "tied=false", "router_jitter=0.01",   \
        "router_normalize=1", "balance_weight=0.05"

/* What every shape says. */
#define SHAPE(d, heads, layers, vocab, len)                                    \
    "d_model=" #d, "n_heads=" #heads, "n_layers=" #layers,                     \
        "vocab_size=" #vocab, "max_seq_len=" #len

/* The first three are for tests and the demo: bytes as tokens. MPT's released
 * ones are as their weights were published. */
#define PRESETS(P)                                                             \
    P("mpt-tiny", MPT, SHAPE(128, 4, 4, 320, 128))                             \
    P("llama-tiny", LLAMA, SHAPE(128, 4, 4, 320, 128), "n_kv_heads=2",         \
      "ffn_width=352")                                                         \
    P("moe-tiny", DBRX, SHAPE(128, 4, 4, 320, 128), "n_kv_heads=2",            \
      "ffn_width=128", "experts=8", "experts_top_k=2")                         \
    P("mpt-125m", MPT, SHAPE(768, 12, 12, 50368, 2048))                        \
    P("mpt-350m", MPT, SHAPE(1024, 16, 24, 50368, 2048))                       \
    P("mpt-760m", MPT, SHAPE(1536, 12, 24, 50368, 2048))                       \
    P("mpt-1b", MPT, SHAPE(2048, 16, 24, 50368, 2048))                         \
    P("mpt-3b", MPT, SHAPE(2560, 20, 32, 50368, 2048))                         \
    P("mpt-7b", MPT, SHAPE(4096, 32, 32, 50368, 2048))                         \
    P("mpt-13b", MPT, SHAPE(5120, 40, 40, 50368, 2048))                        \
    P("mpt-30b", MPT, SHAPE(7168, 56, 48, 50368, 2048))                        \
    P("mpt-70b", MPT, SHAPE(8192, 64, 80, 50368, 2048))                        \
    P("mpt-7b-released", MPT, SHAPE(4096, 32, 32, 50432, 2048),                \
      "positions=alibi", "bias=false")                                         \
    P("mpt-30b-released", MPT, SHAPE(7168, 64, 48, 50432, 8192),               \
      "positions=alibi", "bias=false")                                         \
    P("smollm2-135m", LLAMA, SHAPE(576, 9, 30, 49152, 8192), "n_kv_heads=3",   \
      "ffn_width=1536", "rope_theta=1e5", "tied=true")                         \
    P("llama3-8b", LLAMA, SHAPE(4096, 32, 32, 128256, 8192), "n_kv_heads=8",   \
      "ffn_width=14336")                                                       \
    P("dbrx", DBRX, SHAPE(6144, 48, 40, 100352, 32768), "n_kv_heads=8",        \
      "ffn_width=10752", "experts=16", "experts_top_k=4")

#define PRESET_SETTINGS(name, ...) { { __VA_ARGS__ } },
static const struct {
    char *settings[24];
} presets[] = { PRESETS(PRESET_SETTINGS) };

#define PRESET_NAME(name, ...) name,
const char *const model_preset_names[] = { PRESETS(PRESET_NAME) "weights",
                                           NULL };
const int model_preset_weights = sizeof presets / sizeof presets[0];

enum err model_config_preset(const char *name, struct model_config *out)
{
    int i = 0;
    int count = 0;
    while (model_preset_names[i] != NULL &&
           strcmp(model_preset_names[i], name) != 0)
        i++;
    if (i == model_preset_weights)
        return err_set(ERR_USAGE,
                       "model.preset: '%s' is the shape of model.weights or "
                       "checkpoint.load: give one of them",
                       name);
    if (model_preset_names[i] == NULL)
        return err_set(ERR_USAGE,
                       "model.preset: no preset '%s'; tessera-plan --list "
                       "tells what there is",
                       name);
    while (presets[i].settings[count] != NULL)
        count++;
    TRY(settings_load(model_known_rows, model_known_row_count, NULL,
                      presets[i].settings, count, out, NULL));
    out->preset = i;
    if (out->n_kv_heads == 0)
        out->n_kv_heads = out->n_heads;
    model_config_complete(out, out);
    return ERR_OK;
}
