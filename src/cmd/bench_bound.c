/* What a step could take at best: its products by another library, and the
 * memory's bandwidth (triad). */
#include "src/cmd/bench_bound.h"

#include "src/base/arena.h"
#include "src/base/clock.h"
#include "src/cmd/bench_peer.h"

#define TRIAD_ELEMENTS (8 << 20)
#define TRIAD_TRIES 4

void bench_bound_shapes(const struct model_config *config,
                        struct bench_shape shapes[BENCH_BOUND_SHAPES])
{
    int64_t d = config->d_model;
    int64_t f = config->ffn_width;
    int64_t kv = d / config->n_heads * config->n_kv_heads;
    int layers = (int)config->n_layers;
    shapes[0] = (struct bench_shape){ "qkv", d + 2 * kv, d, layers };
    shapes[1] = (struct bench_shape){ "out", d, d, layers };
    shapes[2] = (struct bench_shape){ "up", config->ffn == FFN_GLU ? 2 * f : f,
                                      d, layers };
    shapes[3] = (struct bench_shape){ "down", d, f, layers };
    shapes[4] = (struct bench_shape){ "head", config->vocab_size, d, 1 };
}

static enum err time_shape(struct bench_peer *peer, int64_t tokens,
                           const struct bench_shape *shape,
                           double seconds[BENCH_BOUND_ROUNDS])
{
    static const enum gemm_form forms[] = { GEMM_NT, GEMM_NN, GEMM_TN };
    for (int f = 0; f < 3; f++) {
        struct bench_product product = bench_product_linear(
            forms[f], tokens, shape->outputs, shape->inputs);
        TRY(bench_peer_prepare(peer, &product));
        for (int round = 0; round < BENCH_BOUND_ROUNDS; round++) {
            double one;
            TRY(bench_peer_time(peer, shape->times, &one));
            seconds[round] += shape->times * one;
        }
    }
    return ERR_OK;
}

enum err bench_bound_gemm(const struct bench_blas_choice *choice,
                          const struct bench_model_kind *kind,
                          double seconds[BENCH_BOUND_ROUNDS])
{
    enum err rc = ERR_OK;
    struct bench_shape shapes[BENCH_BOUND_SHAPES];
    struct bench_peer *peer = NULL;
    bench_bound_shapes(&kind->config, shapes);
    for (int round = 0; round < BENCH_BOUND_ROUNDS; round++)
        seconds[round] = 0.0;
    TRY_OUT(bench_peer_start(choice, &peer));
    for (int i = 0; i < BENCH_BOUND_SHAPES; i++)
        TRY_OUT(time_shape(peer, (int64_t)kind->samples * kind->seq_len,
                           &shapes[i], seconds));
out:
    bench_peer_stop(peer);
    return rc;
}

static double triad_pass(int threads, float *a)
{
    float *b = a + TRIAD_ELEMENTS;
    float *c = b + TRIAD_ELEMENTS;
    double best = 1e30;
    for (int i = 0; i < TRIAD_TRIES; i++) {
        double begin = clock_now();
#pragma omp parallel for simd num_threads(threads) schedule(static)
        for (int e = 0; e < TRIAD_ELEMENTS; e++)
            a[e] = b[e] + 0.5f * c[e];
        double seconds = clock_now() - begin;
        if (seconds < best)
            best = seconds;
    }
    return 12.0 * TRIAD_ELEMENTS / best;
}

enum err bench_bound_triad(const void *arg, double *values)
{
    enum err rc = ERR_OK;
    const int *threads = arg;
    struct arena arena = { 0 };
    size_t bytes = 3 * (size_t)TRIAD_ELEMENTS * sizeof(float);
    TRY_OUT(arena_create(bytes, &arena));
    float *a = arena_take(&arena, bytes);
    for (int64_t i = 0; i < 3 * TRIAD_ELEMENTS; i++)
        a[i] = (float)(i % 97 - 48) * 1e-4f; /* no subnormal numbers */
    for (int round = 0; round < BENCH_BOUND_ROUNDS; round++)
        values[round] = triad_pass(*threads, a);
out:
    arena_destroy(&arena);
    return rc;
}
