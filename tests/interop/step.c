/* Our side of torch_step.sh.
 *
 *   step write MODEL DIR      the model's weights before the first step, and
 *                             its batch, for torch_step.py
 *   step times MODEL THREADS  an optimizer step for each line on stdin, and
 *                             "SECONDS LOSS" on stdout
 *
 * DIR/model: layers, width, heads, vocabulary, samples, tokens of each;
 * DIR/tensors: name and shape, one a line, in the order of DIR/weights (fp32);
 * DIR/batch: tokens, then labels, int32. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "src/base/fsio.h"
#include "src/base/new.h"
#include "tests/bench/bench_model.h"
#include "src/base/exit_code.h"

static enum err open_in(const char *dir, const char *name, FILE **out)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/%s", dir, name));
    *out = fopen(path, "wb");
    if (*out == NULL)
        return err_errno("%s", path);
    return ERR_OK;
}

static enum err close_written(FILE *file)
{
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed)
        return err_errno("write");
    return ERR_OK;
}

static enum err write_weights(const char *dir, const struct bench_model *bench)
{
    enum err rc = ERR_OK;
    FILE *tensors = NULL, *weights = NULL;
    const struct params *params = bench_model_params(bench);
    TRY_OUT(open_in(dir, "tensors", &tensors));
    TRY_OUT(open_in(dir, "weights", &weights));
    for (int i = 0; i < params->count; i++) {
        const struct param *p = &params->list[i];
        fprintf(tensors, "%s", p->name);
        for (int d = 0; d < p->dims; d++)
            fprintf(tensors, " %lld", (long long)p->shape[d]);
        fprintf(tensors, "\n");
        fwrite(bench_model_weights(bench, i), sizeof(float), (size_t)p->numel,
               weights);
    }
out:
    if (tensors != NULL && close_written(tensors) != ERR_OK)
        rc = ERR_IO;
    if (weights != NULL && close_written(weights) != ERR_OK)
        rc = ERR_IO;
    return rc;
}

static enum err write_batch(const char *dir,
                            const struct bench_model_kind *kind)
{
    enum err rc = ERR_OK;
    const struct model_config *config = &kind->config;
    size_t count = (size_t)kind->samples * (size_t)kind->seq_len;
    FILE *model = NULL, *batch = NULL;
    int32_t *tokens = NULL;
    TRY(new_zeroed(&tokens, 2 * count));
    bench_model_batch(config->vocab_size, kind->samples, kind->seq_len, tokens,
                      tokens + count);
    TRY_OUT(open_in(dir, "model", &model));
    TRY_OUT(open_in(dir, "batch", &batch));
    fprintf(model, "%lld %lld %lld %lld %d %d\n", (long long)config->n_layers,
            (long long)config->d_model, (long long)config->n_heads,
            (long long)config->vocab_size, kind->samples, kind->seq_len);
    fwrite(tokens, sizeof tokens[0], 2 * count, batch);
out:
    if (model != NULL && close_written(model) != ERR_OK)
        rc = ERR_IO;
    if (batch != NULL && close_written(batch) != ERR_OK)
        rc = ERR_IO;
    free(tokens);
    return rc;
}

static enum err print_times(struct bench_model *bench)
{
    char line[16];
    while (fgets(line, sizeof line, stdin) != NULL) {
        double loss, seconds;
        TRY(bench_model_step(bench, &loss, &seconds));
        printf("%.6f %.7f\n", seconds, loss);
        fflush(stdout);
    }
    return ERR_OK;
}

int main(int argc, char **argv)
{
    enum err rc = ERR_OK;
    struct bench_model_kind kind;
    struct bench_model *bench = NULL;
    bool writes = argc == 4 && strcmp(argv[1], "write") == 0;
    bool times = argc == 4 && strcmp(argv[1], "times") == 0;
    kernels_wait_passively(argv);
    if (!writes && !times) {
        fprintf(stderr, "usage: step write MODEL DIR | times MODEL "
                        "THREADS\n");
        return EXIT_USAGE;
    }
    TRY_OUT(bench_model_find(argv[2], &kind));
    int threads = times ? atoi(argv[3]) : 2;
    if (threads < 1)
        return EXIT_USAGE;
    TRY_OUT(bench_model_create(&kind, threads, 1, &bench));
    if (writes) {
        TRY_OUT(write_weights(argv[3], bench));
        TRY_OUT(write_batch(argv[3], &kind));
    } else {
        TRY_OUT(print_times(bench));
    }
out:
    bench_model_destroy(bench);
    if (rc != ERR_OK)
        fprintf(stderr, "step: %s\n", err_text());
    return err_exit_code(rc);
}
