/* Counts the FLOPs of matrix products of a step for the bench. The MFU of a run
 * counts by another convention (src/model/model_config.c). */
#include "tests/bench/bench_flops.h"

/* FLOPs of one product over the pairs that the causal mask leaves. */
static double pairs_flops(const struct attention *shape)
{
    double pairs =
        0.5 * (double)shape->seq * (double)(shape->seq + 1); /* of a head */
    return 2.0 * (double)shape->head_dim * pairs * (double)shape->heads *
           (double)shape->batch;
}

double bench_flops_attention_forward(const struct attention *shape)
{
    return 2.0 * pairs_flops(shape);
}

double bench_flops_attention_backward(const struct attention *shape)
{
    return 5.0 * pairs_flops(shape);
}

/* Weights that one token meets in products. */
static double weights_per_token(const struct model_config *config)
{
    double d = (double)config->d_model;
    double kv = d / (double)config->n_heads * (double)config->n_kv_heads;
    double mlp =
        (config->ffn == FFN_GLU ? 3.0 : 2.0) * d * (double)config->ffn_width;
    if (config->experts > 0)
        mlp = mlp * (double)config->experts_top_k + d * (double)config->experts;
    return (double)config->n_layers * (d * (d + 2.0 * kv) + d * d + mlp) +
           (double)config->vocab_size * d;
}

double bench_flops_step(const struct bench_model_kind *kind)
{
    const struct model_config *config = &kind->config;
    struct attention shape = { .batch = kind->samples,
                               .seq = kind->seq_len,
                               .heads = config->n_heads,
                               .kv_heads = config->n_kv_heads,
                               .head_dim = config->d_model / config->n_heads };
    double attention = bench_flops_attention_forward(&shape) +
                       bench_flops_attention_backward(&shape);
    return 6.0 * kind->samples * kind->seq_len * weights_per_token(config) +
           (double)config->n_layers * attention;
}
