/* Models whose products are in 8 bits, of 48 rows. */
#pragma once

#include "tests/model_device.h"

#define FP8_OPERANDS 3 /* of a linear layer: x, W, dy */
#define FP8_LLAMA                                                              \
    .positions = POSITIONS_ROPE, .norm = MODEL_NORM_RMSNORM, .ffn = FFN_GLU,   \
    .activation = MODEL_SILU, .n_kv_heads = 2

static inline struct model *fp8_model(const struct device *d, bool fp8,
                                      const char *memory)
{
    struct model_options options = device_options(d, memory);
    struct model *model = NULL;
    options.fp8 = fp8;
    options.graphs = d->fixes;
    if (model_create(&d->f->config, d->f->params, &d->kernels, &options,
                     &model) != ERR_OK)
        tap_note("%s", err_text());
    return model;
}

static inline struct model_fixture *fp8_fixture(struct model_config config)
{
    config.max_seq_len = 16;
    struct model_fixture *f = fixture_create(config, false);
    fixture_leaf(f, 3, 16, false);
    round_weights(f, DTYPE_BF16);
    return f;
}
