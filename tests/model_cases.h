/* Configurations of models that training and inference are tested with. */
#pragma once

#include "tests/model_fixture.h"

struct model_case {
    const char *name;
    struct model_config config;
};

static const struct model_case model_cases[] = {
    { "base", { FOUNDRY } },
    { "alibi", { FOUNDRY, .positions = POSITIONS_ALIBI } },
    { "alibi, 3 heads",
      { FOUNDRY, .d_model = 48, .n_heads = 3, .positions = POSITIONS_ALIBI } },
    { "rope", { FOUNDRY, .positions = POSITIONS_ROPE } },
    { "rmsnorm", { FOUNDRY, .norm = MODEL_NORM_RMSNORM } },
    { "low precision", { FOUNDRY, .norm = MODEL_NORM_LOW_LAYERNORM } },
    { "gelu glu", { FOUNDRY, .ffn = FFN_GLU } },
    { "silu mlp", { FOUNDRY, .activation = MODEL_SILU } },
    { "gelu tanh mlp", { FOUNDRY, .activation = MODEL_GELU_TANH } },
    { "no bias", { .tied = true } },
    { "grouped queries", { FOUNDRY, .n_kv_heads = 2 } },
    { "multi-query", { FOUNDRY, .n_kv_heads = 1 } },
    { "qk norm, full", { FOUNDRY, .n_kv_heads = 2, .qk_norm = QK_NORM_FULL } },
    { "qk rmsnorm, rope",
      { FOUNDRY, .norm = MODEL_NORM_RMSNORM, .qk_norm = QK_NORM_HEAD,
        .positions = POSITIONS_ROPE } },
    { "olmo2", { LLAMA, .norm_place = NORM_AFTER, .qk_norm = QK_NORM_FULL } },
    { "a window", { LLAMA, .window = 3 } },
    { "windows but for a layer, ALiBi",
      { FOUNDRY, .window = 2, .window_interval = 2,
        .positions = POSITIONS_ALIBI } },
    { "olmo3",
      { LLAMA, .window = 3, .window_interval = 2, .window_rope_theta = 300,
        .rope_scaling = ROPE_SCALING_LINEAR, .rope_factor = 4,
        .norm_place = NORM_AFTER, .qk_norm = QK_NORM_FULL } },
    { "gemma3", { GEMMA3_WINDOWS } },
    { "a layer without rope", { LLAMA, .no_rope_interval = 2 } },
    { "clip", { FOUNDRY, .clip_qkv = 0.6 } },
    { "logit scale", { FOUNDRY, .logit_scale = 0.4 } },
    { "residual scale", { FOUNDRY, .residual_scale = 0.7 } },
    { "untied", { .bias = true } },
    { "llama", { LLAMA } },
};
#define MODEL_CASES (sizeof model_cases / sizeof model_cases[0])
