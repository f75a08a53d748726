/* tessera-bench memory: what each way of keeping activations takes and costs,
 * and what it does to the gradient. */
#include "src/cmd/bench_memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "src/base/arena.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/median.h"
#include "src/cmd/bench_child.h"
#include "src/cmd/bench_leaf.h"

#define SAMPLES 4
#define SEQ_LEN 256
#define ROUNDS_MAX 6
#define ROUNDS_MIN 1
#define LEAVES 2 /* counted, of a child */

enum { VALUE_DIFFERENCE, VALUE_SECONDS, VALUES = VALUE_SECONDS + LEAVES };

static const struct {
    const char *name;
    const char *checkpoint;
    enum packing packing;
} ways[] = {
    { "neither", "none", PACKING_NONE },
    { "checkpoint", "block", PACKING_NONE },
    { "bf16", "none", PACKING_BF16 },
    { "int8", "none", PACKING_INT8 },
    { "both", "block", PACKING_INT8 },
};
#define WAYS ((int)(sizeof ways / sizeof ways[0]))

struct memory_bench {
    struct model_config config;
    struct model_options options[WAYS];
    struct model_bytes bytes[WAYS];
    int64_t elements;
    float *weights;   /* [elements], shared with the children */
    float *reference; /* [elements] the gradient of neither, likewise */
    double seconds[WAYS][ROUNDS_MAX * LEAVES];
    double difference[WAYS];
    int rounds;
};

struct way {
    const struct memory_bench *bench;
    int number;
};

/* Children write into it, the parent has it too. */
static enum err share(size_t bytes, float **out)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return err_errno("%zu bytes of shared memory", bytes);
    *out = memory;
    return ERR_OK;
}

static enum err init_weights(const void *arg, double *values)
{
    const struct memory_bench *bench = arg;
    (void)values;
    return bench_leaf_init(&bench->config, bench->weights);
}

static double difference(const struct memory_bench *bench,
                         const float *gradient)
{
    double difference = 0.0, whole = 0.0;
    for (int64_t i = 0; i < bench->elements; i++) {
        double d = (double)gradient[i] - (double)bench->reference[i];
        difference += d * d;
        whole += (double)bench->reference[i] * (double)bench->reference[i];
    }
    return sqrt(difference / whole);
}

/* In a child. The first way's gradient becomes the reference. */
static enum err measure_way(const void *arg, double *values)
{
    enum err rc = ERR_OK;
    const struct way *way = arg;
    const struct memory_bench *bench = way->bench;
    size_t bytes = (size_t)bench->elements * sizeof(float);
    struct arena arena = { 0 };
    struct bench_leaf *leaf = NULL;
    double unused;
    TRY_OUT(arena_create(bytes, &arena));
    float *gradient = arena_take(&arena, bytes);
    TRY_OUT(bench_leaf_create(&bench->config, &bench->options[way->number],
                              bench->weights, gradient, &leaf));
    TRY_OUT(bench_leaf_run(leaf, &unused)); /* first touch, not counted */
    for (int i = 0; i < LEAVES; i++)
        TRY_OUT(bench_leaf_run(leaf, &values[VALUE_SECONDS + i]));
    if (way->number == 0)
        memcpy(bench->reference, gradient, bytes);
    values[VALUE_DIFFERENCE] = difference(bench, gradient);
out:
    bench_leaf_destroy(leaf);
    arena_destroy(&arena);
    return rc;
}

static enum err one_round(struct memory_bench *bench)
{
    double values[VALUES];
    for (int i = 0; i < WAYS; i++) {
        struct way way = { bench, i };
        TRY(bench_child(measure_way, &way, values, VALUES));
        memcpy(&bench->seconds[i][bench->rounds * LEAVES],
               &values[VALUE_SECONDS], LEAVES * sizeof values[0]);
        bench->difference[i] = values[VALUE_DIFFERENCE];
        log_info("round %d: %s %.0f ms", bench->rounds + 1, ways[i].name,
                 values[VALUE_SECONDS] * 1e3);
    }
    bench->rounds++;
    return ERR_OK;
}

static enum err plan(struct memory_bench *bench, int threads)
{
    TRY(model_config_preset("mpt-125m", &bench->config));
    bench->config.max_seq_len = SEQ_LEN;
    for (int i = 0; i < WAYS; i++) {
        struct model_options *options = &bench->options[i];
        options->threads = threads;
        options->samples = SAMPLES;
        options->seq_len = SEQ_LEN;
        options->memory.packing = ways[i].packing;
        TRY(model_memory_parse(ways[i].checkpoint, bench->config.n_layers,
                               &options->memory));
        TRY(bench_leaf_plan(&bench->config, options, &bench->bytes[i]));
    }
    return bench_leaf_elements(&bench->config, &bench->elements);
}

static void set(json_t *result, const char *way, const char *what, double value)
{
    char key[64];
    snprintf(key, sizeof key, "%s_%s", way, what);
    json_object_set_new(result, key, json_real(value));
}

static json_t *report(struct memory_bench *bench)
{
    double whole = (double)bench->bytes[0].total;
    double time = 0.0;
    json_t *result =
        json_pack("{s:s, s:i, s:i}", "bench", "memory", "threads",
                  bench->options[0].threads, "rounds", bench->rounds * LEAVES);
    for (int i = 0; i < WAYS; i++) {
        double bytes = (double)bench->bytes[i].total;
        double median = median_of(bench->seconds[i], bench->rounds * LEAVES);
        if (i == 0)
            time = median;
        set(result, ways[i].name, "bytes", bytes);
        set(result, ways[i].name, "saved_bytes", (double)bench->bytes[i].saved);
        set(result, ways[i].name, "ms", median * 1e3);
        if (i == 0)
            continue;
        set(result, ways[i].name, "ratio", whole / bytes);
        set(result, ways[i].name, "time", median / time);
        set(result, ways[i].name, "difference", bench->difference[i]);
    }
    json_object_set(result, "activation_ratio",
                    json_object_get(result, "both_ratio"));
    json_object_set(result, "activation_time",
                    json_object_get(result, "both_time"));
    return result;
}

enum err bench_memory(const struct bench_options *options, json_t **result)
{
    enum err rc = ERR_OK;
    struct memory_bench bench = { .rounds = 0 };
    double begin = clock_now(), unused;
    size_t bytes = 0;
    TRY_OUT(plan(&bench, options->threads));
    bytes = (size_t)bench.elements * sizeof(float);
    TRY_OUT(share(bytes, &bench.weights));
    TRY_OUT(share(bytes, &bench.reference));
    TRY_OUT(bench_child(init_weights, &bench, &unused, 1));
    while (
        bench.rounds < ROUNDS_MAX &&
        (bench.rounds < ROUNDS_MIN || clock_now() - begin < options->seconds))
        TRY_OUT(one_round(&bench));
    *result = report(&bench);
out:
    if (bench.weights != NULL)
        munmap(bench.weights, bytes);
    if (bench.reference != NULL)
        munmap(bench.reference, bytes);
    return rc;
}
