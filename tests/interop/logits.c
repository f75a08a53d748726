/* Our side of logits.sh: what a model makes of tokens. Sequences come from
 * stdin, each its length and that many tokens (int32).
 *
 *   logits losses MODEL        -log p of each token but the first (fp64), by the
 *                              model that trains
 *   logits logits MODEL        [length, vocabulary] (fp32), by the one that
 *                              generates: half of the tokens at once, the others
 *                              one by one
 *   logits greedy MODEL COUNT  the COUNT tokens that follow (int32)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/infer/infer.h"
#include "src/base/exit_code.h"
#include "src/base/new.h"
#include "src/model/model.h"
#include "src/formats/weights.h"

#define LENGTH_MAX 4096

struct side {
    const struct model_config *config;
    struct weights *weights;
    struct params *params;
    float *values;
    struct param_access access;
    struct model *model;
    struct infer *infer;
    int64_t count; /* of tokens that follow */
};

/* A leaf for each token: all labels but one bear no loss. */
static enum err losses(struct side *s, const int32_t *tokens, int64_t length)
{
    int32_t labels[LENGTH_MAX];
    for (int64_t t = 1; t < length; t++) {
        struct leaf_loss loss;
        const struct leaf leaf = {
            .samples = 1, .seq_len = length, .tokens = tokens, .labels = labels
        };
        for (int64_t i = 0; i < length; i++)
            labels[i] = i + 1 == t ? tokens[t] : -1;
        TRY(model_eval_leaf(s->model, &s->access, &leaf, &loss));
        fwrite(&loss.cross_entropy, sizeof loss.cross_entropy, 1, stdout);
    }
    return ERR_OK;
}

static enum err logits(struct side *s, const int32_t *tokens, int64_t length)
{
    enum err rc = ERR_OK;
    size_t vocab = (size_t)s->config->vocab_size;
    float *first = calloc((size_t)length * vocab, sizeof *first);
    const struct infer_tokens half = { .count = length / 2,
                                       .tokens = tokens,
                                       .wanted = length / 2,
                                       .logits = first };
    if (first == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    infer_cut(s->infer, 0, 0);
    TRY_OUT(infer_forward(s->infer, NULL, &half, 1));
    fwrite(first, vocab * sizeof *first, (size_t)(length / 2), stdout);
    for (int64_t t = length / 2; t < length; t++) {
        const struct infer_tokens one = {
            .count = 1, .tokens = tokens + t, .wanted = 1, .logits = first
        };
        TRY_OUT(infer_forward(s->infer, NULL, &one, 1));
        fwrite(first, sizeof *first, vocab, stdout);
    }
out:
    free(first);
    return rc;
}

static enum err greedy(struct side *s, const int32_t *tokens, int64_t length)
{
    int32_t next = 0;
    infer_cut(s->infer, 0, 0);
    for (int64_t i = 0; i < s->count; i++) {
        const struct infer_tokens more = { .count = i == 0 ? length : 1,
                                           .tokens = i == 0 ? tokens : &next,
                                           .wanted = 1,
                                           .argmax = &next };
        TRY(infer_forward(s->infer, NULL, &more, 1));
        fwrite(&next, sizeof next, 1, stdout);
    }
    return ERR_OK;
}

static const struct {
    const char *name;
    bool trains;
    enum err (*run)(struct side *s, const int32_t *tokens, int64_t length);
} modes[] = {
    { "losses", true, losses },
    { "logits", false, logits },
    { "greedy", false, greedy },
};
#define MODES ((int)(sizeof modes / sizeof modes[0]))

static enum err gather(void *arg, int block, const void **weights)
{
    const struct side *s = arg;
    *weights = s->values + s->params->blocks[block].offset;
    return ERR_OK;
}

static enum err release(void *arg, int block)
{
    (void)arg, (void)block;
    return ERR_OK;
}

static enum err open_model(struct side *s, const char *path, int mode)
{
    const struct kernels *kernels = NULL;
    int threads = kernels_threads_default(1);
    int64_t length = LENGTH_MAX;
    TRY(kernels_find("cpu", "auto", &kernels));
    TRY(weights_open(path, &s->weights));
    s->config = &weights_about(s->weights)->config;
    if (length > s->config->max_seq_len)
        length = s->config->max_seq_len;
    const struct model_options train = { .threads = threads,
                                         .samples = 1,
                                         .seq_len = length };
    const struct infer_options infer = {
        .threads = threads, .sequences = 1, .positions = length, .rows = 64
    };
    TRY(params_create(s->config, &s->params));
    TRY(new_room(&s->values, (size_t)s->params->elements));
    TRY(weights_match(s->weights, s->params, NULL, ""));
    TRY(weights_fill(s->weights, s->params, NULL, 0, s->params->elements,
                     s->values));
    s->access =
        (struct param_access){ .arg = s, .gather = gather, .release = release };
    if (modes[mode].trains)
        return model_create(s->config, s->params, kernels, &train, &s->model);
    TRY(infer_create(s->config, s->params, kernels, &infer, &s->infer));
    return infer_hold(s->infer, &s->access, INFER_F32);
}

static enum err run(struct side *s, int mode)
{
    int32_t length;
    int32_t tokens[LENGTH_MAX];
    while (fread(&length, sizeof length, 1, stdin) == 1) {
        if (length < 2 || length > LENGTH_MAX ||
            fread(tokens, sizeof tokens[0], (size_t)length, stdin) !=
                (size_t)length)
            return err_set(ERR_DATA, "no sequence of 2 to %d tokens",
                           LENGTH_MAX);
        TRY(modes[mode].run(s, tokens, length));
    }
    return ERR_OK;
}

int main(int argc, char **argv)
{
    enum err rc = ERR_OK;
    struct side s = { .count = argc > 3 ? atoll(argv[3]) : 0 };
    int mode = 0;
    kernels_wait_passively(argv);
    while (argc > 2 && mode < MODES && strcmp(argv[1], modes[mode].name) != 0)
        mode++;
    if (argc < 3 || mode == MODES) {
        fprintf(stderr, "usage: logits losses|logits|greedy MODEL [COUNT]\n");
        return EXIT_USAGE;
    }
    TRY_OUT(open_model(&s, argv[2], mode));
    TRY_OUT(run(&s, mode));
out:
    infer_destroy(s.infer);
    model_destroy(s.model);
    free(s.values);
    params_destroy(s.params);
    weights_close(s.weights);
    if (rc != ERR_OK)
        fprintf(stderr, "logits: %s\n", err_text());
    return err_exit_code(rc);
}
