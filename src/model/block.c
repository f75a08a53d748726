/* A block's linear layers as a table, and what of its forward pass needs no
 * memory of its own. */
#include "src/model/block.h"

#include <assert.h>
#include <stdlib.h>

struct block_linear block_linear(const struct model_config *config,
                                 enum linear linear)
{
    int64_t d = config->d_model, f = config->ffn_width;
    int64_t heads = config->n_heads + 2 * config->n_kv_heads;
    bool gated = config->ffn == FFN_GLU;
    const struct block_linear table[] = {
        [LINEAR_QKV] = { PARAM_WQKV_WEIGHT, PARAM_WQKV_BIAS,
                         heads * (d / config->n_heads), d, LORA_Q, LORA_OUT },
        [LINEAR_OUT] = { PARAM_OUT_WEIGHT, PARAM_OUT_BIAS, d, d, LORA_OUT,
                         LORA_GATE },
        [LINEAR_HIDDEN] = { gated ? PARAM_GATE_WEIGHT : PARAM_UP_WEIGHT,
                            gated ? PARAM_GATE_BIAS : PARAM_UP_BIAS,
                            gated ? 2 * f : f, d, LORA_GATE, LORA_DOWN },
        [LINEAR_DOWN] = { PARAM_DOWN_WEIGHT, PARAM_DOWN_BIAS, d, f, LORA_DOWN,
                          LORA_LAYERS },
        [LINEAR_ROUTER] = { PARAM_ROUTER, PARAM_ROLES, config->experts, d,
                            LORA_LAYERS, LORA_LAYERS },
    };
    assert(linear <= LINEAR_ROUTER);
    return table[linear];
}

struct norm block_norm(const struct model_config *config, int64_t rows)
{
    return (struct norm){
        .kind = model_norm_is_rms(config->norm) ? NORM_RMS : NORM_LAYER,
        .n = rows,
        .groups = 1,
        .d = config->d_model,
        .stride = config->d_model,
        .shared = true,
        .eps = (float)config->norm_eps,
        .low_precision = model_norm_is_low(config->norm),
    };
}

struct norm block_heads_norm(const struct model_config *config, int64_t rows,
                             int64_t heads)
{
    struct norm norm = block_norm(config, rows);
    int64_t head_dim = config->d_model / config->n_heads;
    bool each = config->qk_norm == QK_NORM_HEAD;
    norm.groups = each ? heads : 1;
    norm.d = each ? head_dim : heads * head_dim;
    norm.stride = block_linear(config, LINEAR_QKV).out;
    return norm;
}

void *block_up(const struct model_config *config, enum dtype dtype,
               int64_t rows, bool apart, const void *hidden)
{
    int64_t at = apart ? rows * config->ffn_width : config->ffn_width;
    return (char *)hidden +
           (config->ffn == FFN_GLU ? at : 0) * (int64_t)dtype_bytes(dtype);
}

enum err block_activate(const struct model_config *config,
                        const struct kernels *kernels,
                        const struct kernel_ctx *ctx, enum dtype dtype,
                        int64_t rows, bool apart, const void *hidden, void *act)
{
    enum activation op = model_activation_op(config->activation);
    int64_t f = config->ffn_width;
    if (config->ffn == FFN_GLU)
        return kernels->glu_forward(
            ctx, dtype, op, rows, f, apart ? f : 2 * f, hidden,
            block_up(config, dtype, rows, apart, hidden), act);
    return kernels->activation_forward(ctx, dtype, op, rows * f, hidden, act);
}

enum err block_positions(const struct model_config *config,
                         const struct kernels *kernels, void *stream,
                         int64_t count, float *rope, float *slopes)
{
    enum err rc = ERR_OK;
    int64_t head_dim = config->d_model / config->n_heads;
    size_t bytes = (size_t)(rope != NULL ? count * head_dim : config->n_heads) *
                   sizeof(float);
    if (rope == NULL && slopes == NULL)
        return ERR_OK;
    float *numbers = malloc(bytes);
    if (numbers == NULL)
        return err_set(ERR_MEMORY, "model: out of memory");
    if (rope != NULL)
        model_config_rope_table(config, 0, count, numbers);
    else
        model_config_alibi_slopes(config, numbers);
    TRY_OUT(kernels->memory->upload(stream, bytes, numbers,
                                    rope != NULL ? rope : slopes));
    TRY_OUT(kernels->memory->wait(stream));
out:
    free(numbers);
    return rc;
}
