/* Our side of logits.sh: a Hugging Face folder's model on tokens.
 *
 *   logits FOLDER LENGTH   reads sequences of LENGTH tokens (int32) from stdin
 *                          and writes, for each token but the first of each,
 *                          -log p of it after those before (fp64)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/hf/hf_names.h"
#include "src/hf/safetensors.h"
#include "src/job/exit_code.h"
#include "src/model/model.h"

struct loaded {
    struct model_config config;
    struct params *params;
    float *weights; /* [params->elements] */
};

/* Rows of one of our parameters, from one tensor of theirs. */
static enum err read_piece(const struct safetensors *set,
                           const struct hf_piece *piece, struct loaded *m)
{
    enum err rc = ERR_OK;
    const struct param *ours = &m->params->list[piece->param];
    const struct safetensors_tensor *t = safetensors_find(set, piece->name);
    int64_t cols = ours->dims == 1 ? 1 : ours->shape[1];
    float *out = m->weights + ours->offset + piece->row * cols;
    float *theirs = NULL;
    if (t == NULL || t->numel != piece->rows * cols)
        return err_set(ERR_DATA, "%s is missing, or of another shape",
                       piece->name);
    if (!piece->transposed)
        return safetensors_read_f32(set, t, 0, t->numel, out);
    theirs = malloc((size_t)t->numel * sizeof *theirs);
    if (theirs == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    TRY_OUT(safetensors_read_f32(set, t, 0, t->numel, theirs));
    for (int64_t r = 0; r < piece->rows; r++)
        for (int64_t c = 0; c < cols; c++)
            out[r * cols + c] = theirs[c * piece->rows + r];
out:
    free(theirs);
    return rc;
}

static enum err load(const char *folder, struct loaded *m)
{
    enum err rc = ERR_OK;
    enum hf_arch arch;
    struct safetensors *set = NULL;
    struct hf_names *names = NULL;
    TRY_OUT(hf_config_read(folder, &arch, &m->config));
    TRY_OUT(params_create(&m->config, &m->params));
    TRY_OUT(hf_names_create(arch, &m->config, m->params, m->config.vocab_size,
                            &names));
    m->weights = calloc((size_t)m->params->elements, sizeof *m->weights);
    if (m->weights == NULL)
        rc = err_set(ERR_MEMORY, "out of memory");
    TRY_OUT(rc);
    TRY_OUT(safetensors_open(folder, &set));
    for (int i = 0; i < names->count; i++)
        TRY_OUT(read_piece(set, &names->list[i], m));
out:
    safetensors_close(set);
    hf_names_destroy(names);
    return rc;
}

static enum err gather(void *arg, int block, const void **weights)
{
    const struct loaded *m = arg;
    *weights = m->weights + m->params->blocks[block].offset;
    return ERR_OK;
}

static enum err release(void *arg, int block)
{
    (void)arg;
    (void)block;
    return ERR_OK;
}

/* A leaf for each token: all labels but one bear no loss. */
static enum err score(struct model *model, const struct param_access *access,
                      const int32_t *tokens, int64_t length, int32_t *labels)
{
    for (int64_t t = 1; t < length; t++) {
        struct leaf_loss loss;
        const struct leaf leaf = { .samples = 1,
                                   .seq_len = length,
                                   .tokens = tokens,
                                   .labels = labels };
        for (int64_t i = 0; i < length; i++)
            labels[i] = i + 1 == t ? tokens[t] : -1;
        TRY(model_eval_leaf(model, access, &leaf, &loss));
        fwrite(&loss.cross_entropy, sizeof loss.cross_entropy, 1, stdout);
    }
    return ERR_OK;
}

static enum err run(struct loaded *m, int64_t length)
{
    enum err rc = ERR_OK;
    struct model *model = NULL;
    const struct kernels *kernels = NULL;
    const struct param_access access = { .arg = m,
                                         .gather = gather,
                                         .release = release };
    int32_t *tokens = calloc(2 * (size_t)length, sizeof *tokens);
    const struct model_options options = { .threads =
                                               kernels_threads_default(1),
                                           .samples = 1,
                                           .seq_len = length };
    if (tokens == NULL)
        rc = err_set(ERR_MEMORY, "out of memory");
    TRY_OUT(rc);
    TRY_OUT(kernels_find("cpu", "auto", &kernels));
    TRY_OUT(model_create(&m->config, m->params, kernels, &options, &model));
    while (fread(tokens, sizeof *tokens, (size_t)length, stdin) ==
           (size_t)length)
        TRY_OUT(score(model, &access, tokens, length, tokens + length));
out:
    model_destroy(model);
    free(tokens);
    return rc;
}

int main(int argc, char **argv)
{
    enum err rc = ERR_OK;
    struct loaded m = { .params = NULL };
    kernels_wait_passively(argv);
    int64_t length = argc == 3 ? atoll(argv[2]) : 0;
    if (length < 2) {
        fprintf(stderr, "usage: logits FOLDER LENGTH\n");
        return EXIT_USAGE;
    }
    TRY_OUT(load(argv[1], &m));
    TRY_OUT(run(&m, length));
out:
    params_destroy(m.params);
    free(m.weights);
    if (rc != ERR_OK)
        fprintf(stderr, "logits: %s\n", err_text());
    return err_exit_code(rc);
}
