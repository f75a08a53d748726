/* tessera-bench context; see bench_memory.h. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "src/base/arena.h"
#include "src/base/log.h"
#include "src/cmd/bench_child.h"
#include "src/cmd/bench_leaf.h"
#include "src/cmd/bench_memory.h"

#define LENGTHS 4
#define SHORTEST 4096

enum { VALUE_BYTES, VALUE_GROWN, VALUE_SECONDS, VALUES };

struct context {
    struct model_config config;
    struct model_options options;
};

static enum err context_of(int64_t seq_len, int threads,
                           struct context *context)
{
    memset(context, 0, sizeof *context);
    TRY(model_config_preset("mpt-tiny", &context->config));
    context->config.n_layers = 2;
    context->config.n_heads = context->config.n_kv_heads = 2;
    context->config.positions = POSITIONS_ROPE;
    context->config.max_seq_len = seq_len;
    context->options = (struct model_options){ .threads = threads,
                                               .samples = 1,
                                               .seq_len = seq_len };
    return model_config_check(&context->config);
}

static double largest_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return 1024.0 * (double)usage.ru_maxrss;
}

/* In a child: weights and gradient are there and touched before the model is
 * made. */
static enum err measure_context(const void *arg, double *values)
{
    enum err rc = ERR_OK;
    const struct context *context = arg;
    struct arena arena = { 0 };
    struct bench_leaf *leaf = NULL;
    struct model_bytes planned;
    int64_t elements;
    TRY_OUT(bench_leaf_elements(&context->config, &elements));
    size_t bytes = (size_t)elements * sizeof(float);
    TRY_OUT(arena_create(2 * bytes, &arena));
    float *weights = arena_take(&arena, bytes);
    float *gradient = arena_take(&arena, bytes);
    TRY_OUT(bench_leaf_init(&context->config, weights));
    TRY_OUT(bench_leaf_plan(&context->config, &context->options, &planned));
    double before = largest_bytes();
    TRY_OUT(bench_leaf_create(&context->config, &context->options, weights,
                              gradient, &leaf));
    TRY_OUT(bench_leaf_run(leaf, &values[VALUE_SECONDS]));
    values[VALUE_BYTES] = (double)planned.total;
    values[VALUE_GROWN] = largest_bytes() - before;
out:
    bench_leaf_destroy(leaf);
    arena_destroy(&arena);
    return rc;
}

enum err bench_memory_context(const struct bench_options *options,
                              json_t **result)
{
    static const char *names[VALUES] = { "bytes", "grown_bytes", "seconds" };
    enum err rc = ERR_OK;
    double values[LENGTHS][VALUES];
    json_t *object = json_pack("{s:s, s:i}", "bench", "context", "threads",
                               options->threads);
    for (int i = 0; i < LENGTHS; i++) {
        struct context context;
        int64_t seq_len = (int64_t)SHORTEST << i;
        TRY_OUT(context_of(seq_len, options->threads, &context));
        TRY_OUT(bench_child(measure_context, &context, values[i], VALUES));
        log_info("%lld tokens: %.1f MB, %.1f s", (long long)seq_len,
                 values[i][VALUE_BYTES] * 1e-6, values[i][VALUE_SECONDS]);
        for (int k = 0; k < VALUES; k++) {
            char key[64];
            snprintf(key, sizeof key, "%s_%lld", names[k], (long long)seq_len);
            json_object_set_new(object, key, json_real(values[i][k]));
        }
    }
    double longer = (double)(1 << (LENGTHS - 1));
    json_object_set_new(object, "context_bytes_ratio",
                        json_real(values[LENGTHS - 1][VALUE_BYTES] / longer /
                                  values[0][VALUE_BYTES]));
    json_object_set_new(object, "context_grown_ratio",
                        json_real(values[LENGTHS - 1][VALUE_GROWN] / longer /
                                  values[0][VALUE_GROWN]));
    *result = object;
    object = NULL;
out:
    json_decref(object);
    return rc;
}
