/* The named shapes (model.preset): rows of settings of the group "model", in
 * which what a row does not name has the setting's default. */
#include <stddef.h>
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

/* The first three are for tests and the demo: bytes as tokens. MPT's released
 * ones are as their weights were published. */
#define PRESETS(P)                                                             \
    P("mpt-tiny", MPT, "d_model=128", "n_heads=4", "n_layers=4",               \
      "vocab_size=320", "max_seq_len=128")                                     \
    P("llama-tiny", LLAMA, "d_model=128", "n_heads=4", "n_kv_heads=2",         \
      "n_layers=4", "vocab_size=320", "max_seq_len=128", "ffn_width=352")      \
    P("moe-tiny", DBRX, "d_model=128", "n_heads=4", "n_kv_heads=2",            \
      "n_layers=4", "vocab_size=320", "max_seq_len=128", "ffn_width=128",      \
      "experts=8", "experts_top_k=2")                                          \
    P("mpt-125m", MPT, "d_model=768", "n_heads=12", "n_layers=12",             \
      "vocab_size=50368", "max_seq_len=2048")                                  \
    P("mpt-350m", MPT, "d_model=1024", "n_heads=16", "n_layers=24",            \
      "vocab_size=50368", "max_seq_len=2048")                                  \
    P("mpt-760m", MPT, "d_model=1536", "n_heads=12", "n_layers=24",            \
      "vocab_size=50368", "max_seq_len=2048")                                  \
    P("mpt-1b", MPT, "d_model=2048", "n_heads=16", "n_layers=24",              \
      "vocab_size=50368", "max_seq_len=2048")                                  \
    P("mpt-3b", MPT, "d_model=2560", "n_heads=20", "n_layers=32",              \
      "vocab_size=50368", "max_seq_len=2048")                                  \
    P("mpt-7b", MPT, "d_model=4096", "n_heads=32", "n_layers=32",              \
      "vocab_size=50368", "max_seq_len=2048")                                  \
    P("mpt-13b", MPT, "d_model=5120", "n_heads=40", "n_layers=40",             \
      "vocab_size=50368", "max_seq_len=2048")                                  \
    P("mpt-30b", MPT, "d_model=7168", "n_heads=56", "n_layers=48",             \
      "vocab_size=50368", "max_seq_len=2048")                                  \
    P("mpt-70b", MPT, "d_model=8192", "n_heads=64", "n_layers=80",             \
      "vocab_size=50368", "max_seq_len=2048")                                  \
    P("mpt-7b-released", MPT, "d_model=4096", "n_heads=32", "n_layers=32",     \
      "vocab_size=50432", "max_seq_len=2048", "positions=alibi", "bias=false") \
    P("mpt-30b-released", MPT, "d_model=7168", "n_heads=64", "n_layers=48",    \
      "vocab_size=50432", "max_seq_len=8192", "positions=alibi", "bias=false") \
    P("smollm2-135m", LLAMA, "d_model=576", "n_heads=9", "n_kv_heads=3",       \
      "n_layers=30", "vocab_size=49152", "max_seq_len=8192", "ffn_width=1536", \
      "rope_theta=1e5", "tied=true")                                           \
    P("llama3-8b", LLAMA, "d_model=4096", "n_heads=32", "n_kv_heads=8",        \
      "n_layers=32", "vocab_size=128256", "max_seq_len=8192",                  \
      "ffn_width=14336")                                                       \
    P("dbrx", DBRX, "d_model=6144", "n_heads=48", "n_kv_heads=8",              \
      "n_layers=40", "vocab_size=100352", "max_seq_len=32768",                 \
      "ffn_width=10752", "experts=16", "experts_top_k=4")

#define PRESET_SETTINGS(name, ...) { { __VA_ARGS__ } },
static const struct {
    char *settings[24];
} presets[] = { PRESETS(PRESET_SETTINGS) };

#define PRESET_NAME(name, ...) name,
const char *const model_preset_names[] = { PRESETS(PRESET_NAME) "weights",
                                           NULL };
const int model_preset_weights = sizeof presets / sizeof presets[0];

/* By their names within the group, and in a configuration alone. */
#define ROW(group, type, field, ...)                                           \
    SETTINGS_ROW(offsetof(struct model_config, field), #field, type,           \
                 __VA_ARGS__),
static const struct setting settings[] = { MODEL_SETTINGS(ROW) };

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
    TRY(settings_load(settings, sizeof settings / sizeof settings[0], NULL,
                      presets[i].settings, count, out, NULL));
    out->preset = i;
    if (out->n_kv_heads == 0)
        out->n_kv_heads = out->n_heads;
    model_config_complete(out, out);
    return ERR_OK;
}
