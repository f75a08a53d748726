/* Layout of activations, and the two entries. */
#include "src/model/model.h"

#include <assert.h>
#include <stdlib.h>

#include "src/model/model_impl.h"

static float *take(struct arena *arena, int64_t count)
{
    return arena_take(arena, (size_t)count * sizeof(float));
}

static struct kernel_limits model_limits(const struct model *model)
{
    const struct model_config *config = &model->config;
    return (struct kernel_limits){
        .threads = model->ctx.threads,
        .tokens = model->samples * model->seq_len,
        .batch = model->samples,
        .seq = model->seq_len,
        .width = (config->expansion_ratio > 3 ? config->expansion_ratio : 3) *
                 config->d_model,
        .heads = config->n_heads,
        .head_dim = config->d_model / config->n_heads,
        .vocab = config->vocab_size,
    };
}

/* Run twice: once to count, once to place. */
static void model_layout(struct model *model, struct arena *arena)
{
    const struct model_config *config = &model->config;
    int64_t n = model->samples * model->seq_len;
    int64_t d = config->d_model;
    int64_t f = config->expansion_ratio * d;
    int64_t logit_rows = n < MODEL_LOGIT_ROWS ? n : MODEL_LOGIT_ROWS;
    for (int64_t i = 0; i < config->n_layers; i++) {
        struct layer_saved *saved = &model->layers[i];
        saved->x = take(arena, n * d);
        saved->mean_1 = take(arena, n);
        saved->rstd_1 = take(arena, n);
        saved->qkv = take(arena, n * 3 * d);
        saved->att = take(arena, n * d);
        saved->lse = take(arena, n * config->n_heads);
        saved->mid = take(arena, n * d);
        saved->mean_2 = take(arena, n);
        saved->rstd_2 = take(arena, n);
        saved->up = take(arena, n * f);
    }
    model->x_last = take(arena, n * d);
    model->mean_f = take(arena, n);
    model->rstd_f = take(arena, n);
    model->norm = take(arena, n * d);
    model->branch = take(arena, n * d);
    model->act = take(arena, n * f);
    model->logits = take(arena, logit_rows * config->vocab_size);
    model->losses = take(arena, n);
    model->dx = take(arena, n * d);
    model->dnorm = take(arena, n * d);
    model->dqkv = take(arena, n * 3 * d);
    model->dup = take(arena, n * f);
    struct kernel_limits limits = model_limits(model);
    model->ctx.scratch_bytes = model->kernels->scratch_bytes(&limits);
    model->ctx.scratch = arena_take(arena, model->ctx.scratch_bytes);
}

enum err model_create(const struct model_config *config,
                      const struct params *params,
                      const struct kernels *kernels, int threads,
                      int64_t samples, int64_t seq_len, struct model **out)
{
    enum err rc = ERR_OK;
    struct arena plan = { 0 };
    assert(threads >= 1 && samples >= 1 && seq_len >= 1);
    assert(seq_len <= config->max_seq_len);
    struct model *model = calloc(1, sizeof *model);
    if (model == NULL)
        return err_set(ERR_MEMORY, "model: out of memory");
    model->config = *config;
    model->params = params;
    model->kernels = kernels;
    model->ctx.threads = threads;
    model->samples = samples;
    model->seq_len = seq_len;
    model->layers = calloc((size_t)config->n_layers, sizeof model->layers[0]);
    if (model->layers == NULL) {
        rc = err_set(ERR_MEMORY, "model: out of memory");
        goto out;
    }
    model_layout(model, &plan);
    TRY(arena_create(plan.used, &model->arena));
    model_layout(model, &model->arena);
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

size_t model_bytes(const struct model *model)
{
    return model->arena.capacity;
}

const struct kernel_ctx *model_ctx(const struct model *model)
{
    return &model->ctx;
}

enum err model_gemm(struct model *model, enum gemm_form form, int64_t m,
                    int64_t n, int64_t k, const float *a, const float *b,
                    float *c, const float *bias)
{
    struct gemm gemm = { .form = form,
                         .m = m,
                         .n = n,
                         .k = k,
                         .a = a,
                         .b = b,
                         .c = c,
                         .bias = bias };
    return model->kernels->gemm(&model->ctx, DTYPE_F32, &gemm);
}

enum err model_gemm_add(struct model *model, enum gemm_form form, int64_t m,
                        int64_t n, int64_t k, const float *a, const float *b,
                        float *c)
{
    struct gemm gemm = { .form = form,
                         .m = m,
                         .n = n,
                         .k = k,
                         .a = a,
                         .b = b,
                         .c = c,
                         .accumulate = true };
    return model->kernels->gemm(&model->ctx, DTYPE_F32, &gemm);
}

enum err model_train_leaf(struct model *model,
                          const struct param_access *access,
                          const struct leaf *leaf, double *loss_sum)
{
    enum err rc = ERR_OK;
    assert(leaf->samples >= 1 && leaf->samples <= model->samples);
    assert(leaf->seq_len >= 1 && leaf->seq_len <= model->seq_len);
    TRY(model_forward(model, access, leaf));
    TRY(model_head(model, access, leaf, true, loss_sum));
    TRY(model_backward(model, access, leaf));
out:
    return rc;
}

enum err model_eval_leaf(struct model *model, const struct param_access *access,
                         const struct leaf *leaf, double *loss_sum)
{
    enum err rc = ERR_OK;
    assert(leaf->samples >= 1 && leaf->samples <= model->samples);
    assert(leaf->seq_len >= 1 && leaf->seq_len <= model->seq_len);
    TRY(model_forward(model, access, leaf));
    TRY(model_head(model, access, leaf, false, loss_sum));
out:
    return rc;
}
