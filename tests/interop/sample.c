/* Distributions for a Python peer: reads records from standard input (vocab and
 * number of tokens so far, int32; top_k, int64; temperature, top_p, min_p and
 * repetition_penalty, double; logits, float; tokens, int32) and writes the
 * probabilities of each, doubles. */
#include "src/infer/sample.h"
#include "tests/interop/need.h"

static void *get(size_t size, size_t count)
{
    void *data = malloc(size * count + 1);
    if (data == NULL || fread(data, size, count, stdin) != count) {
        fprintf(stderr, "sample: half a record\n");
        exit(1);
    }
    return data;
}

int main(void)
{
    int32_t head[2];
    while (fread(head, sizeof head, 1, stdin) == 1) {
        struct sample *sample = NULL;
        const double *probability;
        int64_t *top_k = get(sizeof *top_k, 1);
        double *real = get(sizeof *real, 4);
        float *logits = get(sizeof *logits, (size_t)head[0]);
        int32_t *tokens = get(sizeof *tokens, (size_t)head[1]);
        const struct sample_options options = { .temperature = real[0],
                                                .top_k = *top_k,
                                                .top_p = real[1],
                                                .min_p = real[2],
                                                .repetition_penalty = real[3] };
        const struct sample_history history = { tokens, (size_t)head[1] };
        need(sample_check(&options));
        need(sample_create(head[0], &sample));
        need(sample_distribution(sample, &options, logits, history,
                                 &probability));
        fwrite(probability, sizeof *probability, (size_t)head[0], stdout);
        sample_destroy(sample);
        free(top_k);
        free(real);
        free(logits);
        free(tokens);
    }
    return fflush(stdout) != 0;
}
