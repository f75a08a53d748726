/* Making a model, and the two entries. */
#include "src/model/model.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/rng.h"
#include "src/model/model_impl.h"

static enum err model_open(const struct model_config *config,
                           const struct model_options *options,
                           const struct kernels *kernels, struct model **out)
{
    assert(options->threads >= 1 && options->samples >= 1);
    assert(options->seq_len >= 1 && options->seq_len <= config->max_seq_len);
    assert(config->n_layers <= MODEL_LAYERS_MAX);
    assert(
        options->expert_degree <= 1 ||
        (config->experts > 0 && config->experts % options->expert_degree == 0));
    struct model *model = calloc(1, sizeof *model);
    if (model == NULL)
        return err_set(ERR_MEMORY, "model: out of memory");
    model->config = *config;
    model->options = *options;
    model->kernels = kernels;
    model->ctx.threads = options->threads;
    model->head_dim = config->d_model / config->n_heads;
    model->qkv_width =
        (config->n_heads + 2 * config->n_kv_heads) * model->head_dim;
    model->hidden_width =
        config->ffn == FFN_GLU ? 2 * config->ffn_width : config->ffn_width;
    model->layers = calloc((size_t)config->n_layers, sizeof model->layers[0]);
    if (model->layers == NULL) {
        free(model);
        return err_set(ERR_MEMORY, "model: out of memory");
    }
    *out = model;
    return ERR_OK;
}

static uint64_t stream_of(const char *what, int64_t layer, const char *which)
{
    char name[64];
    snprintf(name, sizeof name, "%s/%lld%s", what, (long long)layer, which);
    return rng_stream(name);
}

/* What does not change from leaf to leaf. */
static void model_constants(struct model *model)
{
    const struct model_config *config = &model->config;
    int64_t pairs = model->head_dim / 2;
    for (int64_t i = 0; i < config->n_layers; i++) {
        struct layer *layer = &model->layers[i];
        layer->dropout_attention = stream_of("dropout", i, "/attention");
        layer->dropout_ffn = stream_of("dropout", i, "/ffn");
        layer->dropout_probs = stream_of("dropout", i, "/probabilities");
        layer->jitter = stream_of("jitter", i, "");
    }
    for (int64_t i = 0; i < model->ws.travel.rows; i++)
        model->ws.travel.identity[i] = (int32_t)i;
    if (config->positions == POSITIONS_ALIBI)
        model_config_alibi_slopes(config, model->slopes);
    if (config->positions != POSITIONS_ROPE)
        return;
    for (int64_t t = 0; t < model->options.seq_len; t++) {
        for (int64_t j = 0; j < pairs; j++) {
            double angle =
                (double)t * pow(config->rope_theta,
                                -2.0 * (double)j / (double)model->head_dim);
            model->rope[2 * t * pairs + j] = (float)cos(angle);
            model->rope[(2 * t + 1) * pairs + j] = (float)sin(angle);
        }
    }
}

enum err model_create(const struct model_config *config,
                      const struct params *params,
                      const struct kernels *kernels,
                      const struct model_options *options, struct model **out)
{
    enum err rc = ERR_OK;
    struct arena plan = { 0 };
    struct model_bytes bytes;
    struct model *model = NULL;
    assert(options->expert_degree <= 1 ||
           (options->experts != NULL &&
            options->experts->size == options->expert_degree));
    TRY(model_open(config, options, kernels, &model));
    model->params = params;
    model_layout(model, &plan, &bytes);
    TRY(arena_create(plan.used, &model->arena));
    model_layout(model, &model->arena, &bytes);
    model_constants(model);
    *out = model;
    model = NULL;
out:
    model_destroy(model);
    return rc;
}

void model_destroy(struct model *model)
{
    if (model == NULL)
        return;
    arena_destroy(&model->arena);
    free(model->layers);
    free(model);
}

enum err model_plan(const struct model_config *config,
                    const struct kernels *kernels,
                    const struct model_options *options,
                    struct model_bytes *out)
{
    enum err rc = ERR_OK;
    struct arena plan = { 0 };
    struct model *model = NULL;
    TRY(model_open(config, options, kernels, &model));
    model_layout(model, &plan, out);
out:
    model_destroy(model);
    return rc;
}

const struct kernel_ctx *model_ctx(const struct model *model)
{
    return &model->ctx;
}

const int64_t *model_expert_counts(const struct model *model)
{
    return model->ws.expert_counts;
}

static struct pass pass_begin(struct model *model,
                              const struct param_access *access,
                              const struct leaf *leaf, bool training)
{
    struct pass pass = { .model = model,
                         .access = access,
                         .leaf = leaf,
                         .training = training,
                         .n = leaf->samples * leaf->seq_len };
    assert(leaf->samples >= 1 && leaf->samples <= model->options.samples);
    assert(leaf->seq_len >= 1 && leaf->seq_len <= model->options.seq_len);
    for (int64_t i = 0; i < pass.n; i++)
        pass.loss_tokens += leaf->labels[i] >= 0;
    return pass;
}

enum err pass_enter(struct pass *pass, int block, bool gradient)
{
    enum err rc = ERR_OK;
    const struct param_access *access = pass->access;
    pass->block = block;
    pass->gradient = NULL;
    TRY(access->gather(access->arg, block, &pass->weights));
    if (gradient)
        TRY(access->gradient(access->arg, block, &pass->gradient));
out:
    return rc;
}

static int expert_kind(const struct params *params, int block)
{
    int kind = 0;
    while (params->blocks[block].place[PARAM_EXPERTS_GATE + kind] < 0)
        kind++;
    return kind;
}

enum err pass_enter_layer(struct pass *pass, int layer, bool gradient)
{
    enum err rc = ERR_OK;
    const struct param_access *access = pass->access;
    const struct params *params = pass->model->params;
    int block = params_layer_block(params, layer);
    int end = block + params->layer_blocks;
    pass->number = layer;
    pass->layer = &pass->model->layers[layer];
    pass->block = block;
    pass->gradient = NULL;
    TRY(access->gather(access->arg, block, &pass->weights));
    for (int b = block + 1; b < end; b++)
        TRY(access->gather(access->arg, b,
                           &pass->expert_weights[expert_kind(params, b)]));
    if (!gradient)
        goto out;
    TRY(access->gradient(access->arg, block, &pass->gradient));
    for (int b = block + 1; b < end; b++)
        TRY(access->gradient(access->arg, b,
                             &pass->expert_gradient[expert_kind(params, b)]));
out:
    return rc;
}

enum err pass_leave_experts(struct pass *pass)
{
    enum err rc = ERR_OK;
    const struct param_access *access = pass->access;
    int end = pass->block + pass->model->params->layer_blocks;
    for (int b = pass->block + 1; b < end && pass->gradient != NULL; b++)
        TRY(access->gradient_done(access->arg, b));
    for (int b = pass->block + 1; b < end; b++)
        TRY(access->release(access->arg, b));
out:
    return rc;
}

enum err pass_leave(struct pass *pass)
{
    enum err rc = ERR_OK;
    const struct param_access *access = pass->access;
    if (pass->gradient != NULL)
        TRY(access->gradient_done(access->arg, pass->block));
    TRY(access->release(access->arg, pass->block));
out:
    return rc;
}

enum err model_train_leaf(struct model *model,
                          const struct param_access *access,
                          const struct leaf *leaf, struct leaf_loss *loss)
{
    enum err rc = ERR_OK;
    struct pass pass = pass_begin(model, access, leaf, true);
    TRY(model_embed(&pass));
    TRY(model_blocks_forward(&pass));
    TRY(model_head(&pass, true));
    TRY(model_blocks_backward(&pass));
    TRY(model_embed_backward(&pass));
    *loss = pass.loss;
out:
    return rc;
}

enum err model_eval_leaf(struct model *model, const struct param_access *access,
                         const struct leaf *leaf, struct leaf_loss *loss)
{
    enum err rc = ERR_OK;
    struct pass pass = pass_begin(model, access, leaf, false);
    TRY(model_embed(&pass));
    TRY(model_blocks_forward(&pass));
    TRY(model_head(&pass, false));
    *loss = pass.loss;
out:
    return rc;
}
