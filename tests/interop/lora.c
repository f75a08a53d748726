/* Our side of lora.sh.
 *
 *   lora train MODEL OUT RANK ALPHA LENGTH STEPS TARGETS
 *       trains adapters on sequences of LENGTH tokens (int32, stdin), always
 *       the same, with AdamW (1e-2, 0.9, 0.95, 1e-8), and prints the mean loss
 *       of each step. OUT gets `names` (name, offset, rows, columns), and flat
 *       fp32 `start` and `gradient` of the first step. B starts as A does.
 *   lora loss MODEL LENGTH    prints the mean loss on stdin's tokens
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/exit_code.h"
#include "src/model/model.h"
#include "src/parallel/optimizer/optimizer.h"
#include "src/formats/weights.h"

#define TOKENS_MAX (1 << 16)
#define THREADS 1

struct side {
    struct weights *weights;
    struct params *params;
    const struct kernels *kernels;
    struct model *model;
    float *values, *frozen, *gradient, *moments[2];
    int32_t tokens[TOKENS_MAX], labels[TOKENS_MAX];
    struct leaf leaf;
    int64_t count; /* labels */
};

static float *floats(int64_t count)
{
    float *out =
        aligned_alloc(64, ((size_t)count * sizeof *out + 63) / 64 * 64);
    if (out == NULL)
        abort();
    memset(out, 0, (size_t)count * sizeof *out);
    return out;
}

static enum err gather(void *arg, int block, const void **weights)
{
    struct side *side = arg;
    *weights = side->values + side->params->blocks[block].offset;
    return ERR_OK;
}

static enum err frozen(void *arg, int block, const void **weights)
{
    struct side *side = arg;
    *weights = side->frozen + side->params->frozen->blocks[block].offset;
    return ERR_OK;
}

static enum err gradient(void *arg, int block, float **out)
{
    struct side *side = arg;
    *out = side->gradient + side->params->blocks[block].offset;
    return ERR_OK;
}

static enum err nothing(void *arg, int block)
{
    (void)arg, (void)block;
    return ERR_OK;
}

static enum err read_tokens(struct side *side, int64_t length)
{
    size_t got = fread(side->tokens, sizeof side->tokens[0], TOKENS_MAX, stdin);
    int64_t samples = (int64_t)got / length;
    for (int64_t i = 0; i < samples * length; i++) {
        bool last = (i + 1) % length == 0;
        side->labels[i] = last ? -100 : side->tokens[i + 1];
        side->count += !last;
    }
    side->leaf = (struct leaf){ .samples = samples,
                                .seq_len = length,
                                .tokens = side->tokens,
                                .labels = side->labels };
    return samples > 0 ? ERR_OK : err_set(ERR_DATA, "too few tokens");
}

static enum err open_side(struct side *side, const char *path,
                          const struct params_tuning *tuning, double alpha,
                          int64_t length)
{
    TRY(weights_open(path, &side->weights));
    const struct model_config *config = &weights_about(side->weights)->config;
    TRY(params_create_tuned(config, tuning, &side->params));
    TRY(kernels_find("cpu", "auto", &side->kernels));
    TRY(read_tokens(side, length));
    side->values = floats(side->params->elements);
    params_init(side->params, 5, 0, side->params->elements, side->values);
    TRY(weights_fill(side->weights, side->params, "*.lora_?.weight", 0,
                     side->params->elements, side->values));
    if (side->params->frozen != NULL) {
        side->frozen = floats(side->params->frozen->elements);
        TRY(weights_fill(side->weights, side->params->frozen, NULL, 0,
                         side->params->frozen->elements, side->frozen));
    }
    struct model_options options = {
        .threads = THREADS,
        .samples = side->leaf.samples,
        .seq_len = length,
        .frozen = side->params->frozen != NULL,
    };
    if (tuning != NULL)
        options.lora = (struct lora_options){ .rank = tuning->rank,
                                              .alpha = alpha,
                                              .targets = tuning->targets };
    return model_create(config, side->params, side->kernels, &options,
                        &side->model);
}

static struct param_access access_of(struct side *side)
{
    return (struct param_access){ .arg = side,
                                  .gather = gather,
                                  .release = nothing,
                                  .frozen = frozen,
                                  .gradient = gradient,
                                  .gradient_done = nothing };
}

static enum err write_floats(const char *out, const char *name,
                             const float *values, int64_t count)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/%s", out, name));
    return fsio_write_atomic(path, values, (size_t)count * sizeof *values);
}

static enum err write_names(const struct params *params, const char *out)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/names", out));
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return err_errno("%s: open", path);
    for (int i = 0; i < params->count; i++)
        fprintf(file, "%s %lld %lld %lld\n", params->list[i].name,
                (long long)params->list[i].offset,
                (long long)params->list[i].shape[0],
                (long long)params->list[i].shape[1]);
    return fclose(file) == 0 ? ERR_OK : err_errno("%s: write", path);
}

/* B as A is: otherwise A has no gradient. */
static void start_b(const struct side *side)
{
    for (int i = 0; i < side->params->count; i++) {
        const struct param *p = &side->params->list[i];
        for (int64_t j = 0; j < p->numel && p->init == PARAM_INIT_ZERO; j++)
            side->values[p->offset + j] =
                0.05f * (float)((j * 37 + i) % 19 - 9) / 9.0f;
    }
}

static enum err step(struct side *side, int64_t number, const char *out)
{
    struct leaf_loss loss;
    int64_t elements = side->params->elements;
    struct param_access access = access_of(side);
    const struct kernel_ctx *ctx = model_ctx(side->model);
    struct optimizer_step adamw = { .lr = 1e-2,
                                    .grad_scale = 1.0 / (double)side->count,
                                    .beta1 = 0.9,
                                    .beta2 = 0.95,
                                    .eps = 1e-8,
                                    .count = number + 1 };
    struct optimizer_partition partition = { .params = side->params,
                                             .elements = elements,
                                             .weights = side->values,
                                             .gradient = side->gradient,
                                             .moments = { side->moments[0],
                                                          side->moments[1] } };
    memset(side->gradient, 0, (size_t)elements * sizeof(float));
    TRY(model_train_leaf(side->model, &access, &side->leaf, &loss));
    printf("%.9g\n", loss.cross_entropy / (double)side->count);
    if (number == 0)
        TRY(write_floats(out, "gradient", side->gradient, elements));
    return optimizer_at(0)->update(&adamw, side->kernels, ctx, &partition);
}

static enum err train(struct side *side, char **argv)
{
    const char *out = argv[1];
    struct params_tuning tuning = { .freeze = "",
                                    .targets = argv[6],
                                    .rank = atoll(argv[2]) };
    TRY(open_side(side, argv[0], &tuning, atof(argv[3]), atoll(argv[4])));
    int64_t elements = side->params->elements;
    start_b(side);
    side->gradient = floats(elements);
    side->moments[0] = floats(elements);
    side->moments[1] = floats(elements);
    TRY(write_names(side->params, out));
    TRY(write_floats(out, "start", side->values, elements));
    for (int64_t i = 0; i < atoll(argv[5]); i++)
        TRY(step(side, i, out));
    return ERR_OK;
}

static enum err tell_loss(struct side *side, char **argv)
{
    struct leaf_loss loss;
    TRY(open_side(side, argv[0], NULL, 0.0, atoll(argv[1])));
    struct param_access access = access_of(side);
    TRY(model_eval_leaf(side->model, &access, &side->leaf, &loss));
    printf("%.9g\n", loss.cross_entropy / (double)side->count);
    return ERR_OK;
}

int main(int argc, char **argv)
{
    static struct side side;
    enum err rc = err_set(ERR_USAGE, "usage: see the file's head");
    if (argc == 9 && strcmp(argv[1], "train") == 0)
        rc = train(&side, argv + 2);
    else if (argc == 4 && strcmp(argv[1], "loss") == 0)
        rc = tell_loss(&side, argv + 2);
    if (rc != ERR_OK)
        fprintf(stderr, "lora: %s\n", err_text());
    model_destroy(side.model);
    params_destroy(side.params);
    weights_close(side.weights);
    free(side.values);
    free(side.frozen);
    free(side.gradient);
    free(side.moments[0]);
    free(side.moments[1]);
    return rc == ERR_OK ? EXIT_DONE : err_exit_code(rc);
}
