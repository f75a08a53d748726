/* One leaf forward and backward without an optimizer, for tessera-bench
 * memory. */
#include "src/cmd/bench_leaf.h"

#include <stdlib.h>

#include "src/base/clock.h"
#include "src/cmd/bench_model.h"

#define SEED 17

struct bench_leaf {
    struct model_options options;
    const struct kernels *kernels;
    struct params *params;
    struct model *model;
    const float *weights;
    float *gradient;
    int32_t *tokens, *labels; /* [samples, seq_len] */
};

static enum err access_gather(void *arg, int block, const void **weights)
{
    const struct bench_leaf *bench = arg;
    *weights = bench->weights + bench->params->blocks[block].offset;
    return ERR_OK;
}

static enum err access_gradient(void *arg, int block, float **gradient)
{
    const struct bench_leaf *bench = arg;
    *gradient = bench->gradient + bench->params->blocks[block].offset;
    return ERR_OK;
}

static enum err access_done(void *arg, int block)
{
    (void)arg;
    (void)block;
    return ERR_OK;
}

enum err bench_leaf_create(const struct model_config *config,
                           const struct model_options *options,
                           const float *weights, float *gradient,
                           struct bench_leaf **out)
{
    enum err rc = ERR_OK;
    size_t count = (size_t)(options->samples * options->seq_len);
    struct bench_leaf *bench = calloc(1, sizeof *bench);
    *out = NULL;
    if (bench == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    bench->options = *options;
    bench->weights = weights;
    bench->gradient = gradient;
    bench->tokens = malloc(count * sizeof bench->tokens[0]);
    bench->labels = malloc(count * sizeof bench->labels[0]);
    if (bench->tokens == NULL || bench->labels == NULL) {
        rc = err_set(ERR_MEMORY, "out of memory");
        goto out;
    }
    bench_model_batch(config->vocab_size, (int)options->samples,
                      (int)options->seq_len, bench->tokens, bench->labels);
    TRY_OUT(kernels_find("cpu", "auto", &bench->kernels));
    TRY_OUT(params_create(config, &bench->params));
    TRY_OUT(model_create(config, bench->params, bench->kernels, options,
                         &bench->model));
    *out = bench;
    bench = NULL;
out:
    bench_leaf_destroy(bench);
    return rc;
}

void bench_leaf_destroy(struct bench_leaf *bench)
{
    if (bench == NULL)
        return;
    model_destroy(bench->model);
    params_destroy(bench->params);
    free(bench->labels);
    free(bench->tokens);
    free(bench);
}

enum err bench_leaf_run(struct bench_leaf *bench, double *seconds)
{
    struct leaf_loss loss;
    struct param_access access = { .arg = bench,
                                   .gather = access_gather,
                                   .release = access_done,
                                   .gradient = access_gradient,
                                   .gradient_done = access_done };
    struct leaf leaf = { .samples = bench->options.samples,
                         .seq_len = bench->options.seq_len,
                         .tokens = bench->tokens,
                         .labels = bench->labels };
    TRY(bench->kernels->zero(model_ctx(bench->model), DTYPE_F32,
                             bench->params->elements, bench->gradient));
    double begin = clock_now();
    TRY(model_train_leaf(bench->model, &access, &leaf, &loss));
    *seconds = clock_now() - begin;
    return ERR_OK;
}

enum err bench_leaf_elements(const struct model_config *config,
                             int64_t *elements)
{
    struct params *params = NULL;
    enum err rc = params_create(config, &params);
    if (rc == ERR_OK)
        *elements = params->elements;
    params_destroy(params);
    return rc;
}

enum err bench_leaf_init(const struct model_config *config, float *weights)
{
    struct params *params = NULL;
    enum err rc = params_create(config, &params);
    if (rc == ERR_OK)
        params_init(params, SEED, 0, params->elements, weights);
    params_destroy(params);
    return rc;
}

enum err bench_leaf_plan(const struct model_config *config,
                         const struct model_options *options,
                         struct model_bytes *bytes)
{
    const struct kernels *kernels;
    TRY(kernels_find("cpu", "auto", &kernels));
    return model_plan(config, kernels, options, bytes);
}
