#include "src/model/params.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/kernels.h"
#include "src/base/rng.h"

#define PARAM_ALIGN 16 /* floats: 64 bytes */
#define PARAMS_PER_LAYER 12

static int64_t round_up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Append a tensor to the block that is being laid out. cols 0: a vector. */
static void params_add(struct params *params, int block, const char *name,
                       int64_t rows, int64_t cols, enum param_init init,
                       double init_std)
{
    struct param *param = &params->list[params->count++];
    snprintf(param->name, sizeof param->name, "%s", name);
    param->dims = cols > 0 ? 2 : 1;
    param->shape[0] = rows;
    param->shape[1] = cols;
    param->numel = cols > 0 ? rows * cols : rows;
    param->block = block;
    param->init = init;
    param->init_std = init_std;
    param->offset = params->elements;
    params->numel += param->numel;
    params->elements += round_up(param->numel, PARAM_ALIGN);
}

static void params_open_block(struct params *params)
{
    params->blocks[params->block_count].offset = params->elements;
}

static void params_close_block(struct params *params)
{
    struct param_block *block = &params->blocks[params->block_count++];
    params->elements = round_up(params->elements, KERNEL_CHUNK);
    block->elements = params->elements - block->offset;
}

static void params_add_linear(struct params *params, int block, int layer,
                              const char *name, int64_t out, int64_t in,
                              double residual_scale)
{
    char text[96];
    double std = sqrt(2.0 / (double)in) * residual_scale;
    snprintf(text, sizeof text, "transformer.blocks.%d.%s.weight", layer, name);
    params_add(params, block, text, out, in, PARAM_INIT_NORMAL, std);
    snprintf(text, sizeof text, "transformer.blocks.%d.%s.bias", layer, name);
    params_add(params, block, text, out, 0, PARAM_INIT_ZERO, 0.0);
}

static void params_add_norm(struct params *params, int block,
                            const char *prefix, int64_t d)
{
    char text[96];
    snprintf(text, sizeof text, "%s.weight", prefix);
    params_add(params, block, text, d, 0, PARAM_INIT_ONE, 0.0);
    snprintf(text, sizeof text, "%s.bias", prefix);
    params_add(params, block, text, d, 0, PARAM_INIT_ZERO, 0.0);
}

static void params_add_layer(struct params *params,
                             const struct model_config *config, int layer)
{
    int block = layer + 1;
    int64_t d = config->d_model;
    int64_t f = config->expansion_ratio * d;
    double residual = 1.0 / sqrt(2.0 * (double)config->n_layers);
    char text[64];
    params_open_block(params);
    snprintf(text, sizeof text, "transformer.blocks.%d.norm_1", layer);
    params_add_norm(params, block, text, d);
    params_add_linear(params, block, layer, "attn.Wqkv", 3 * d, d, 1.0);
    params_add_linear(params, block, layer, "attn.out_proj", d, d, residual);
    snprintf(text, sizeof text, "transformer.blocks.%d.norm_2", layer);
    params_add_norm(params, block, text, d);
    params_add_linear(params, block, layer, "ffn.up_proj", f, d, 1.0);
    params_add_linear(params, block, layer, "ffn.down_proj", d, f, residual);
    params_close_block(params);
}

enum err params_create(const struct model_config *config, struct params **out)
{
    enum err rc = ERR_OK;
    int layers = (int)config->n_layers;
    int64_t d = config->d_model;
    double std = sqrt(2.0 / (double)d);
    struct params *params = calloc(1, sizeof *params);
    if (params == NULL)
        return err_set(ERR_MEMORY, "parameter table: out of memory");
    params->list =
        calloc((size_t)layers * PARAMS_PER_LAYER + 4, sizeof params->list[0]);
    params->blocks = calloc((size_t)layers + 2, sizeof params->blocks[0]);
    if (params->list == NULL || params->blocks == NULL) {
        rc = err_set(ERR_MEMORY, "parameter table: out of memory");
        goto out;
    }
    params_open_block(params);
    params_add(params, 0, "transformer.wte.weight", config->vocab_size, d,
               PARAM_INIT_NORMAL, std);
    params_add(params, 0, "transformer.wpe.weight", config->max_seq_len, d,
               PARAM_INIT_NORMAL, std);
    params_close_block(params);
    for (int layer = 0; layer < layers; layer++)
        params_add_layer(params, config, layer);
    params_open_block(params);
    params_add_norm(params, layers + 1, "transformer.norm_f", d);
    params_close_block(params);
    assert(params->numel == model_config_param_count(config));
    *out = params;
    params = NULL;
out:
    params_destroy(params);
    return rc;
}

void params_destroy(struct params *params)
{
    if (params == NULL)
        return;
    free(params->list);
    free(params->blocks);
    free(params);
}

void params_init(const struct params *params, uint64_t seed, int64_t begin,
                 int64_t end, float *data)
{
    for (int64_t i = begin; i < end; i++)
        data[i - begin] = 0.0f;
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        int64_t first = begin > param->offset ? begin : param->offset;
        int64_t last = param->offset + param->numel;
        if (last > end)
            last = end;
        if (first >= last)
            continue;
        float *place = data + (first - begin);
        if (param->init == PARAM_INIT_NORMAL)
            rng_fill_normal(seed, rng_stream(param->name),
                            (uint64_t)(first - param->offset), last - first,
                            (float)param->init_std, place);
        else if (param->init == PARAM_INIT_ONE)
            for (int64_t i = 0; i < last - first; i++)
                place[i] = 1.0f;
    }
}
