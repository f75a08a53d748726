#include "src/cmd/bench_bound.h"

#include <cblas.h>
#include <stdlib.h>

#include "src/base/arena.h"
#include "src/base/clock.h"

#define TRIAD_ELEMENTS (8 << 20)

static double gemm_pass(const struct bench_bound *bound, float *x, float *w,
                        float *y)
{
    double begin = clock_now();
    for (int i = 0; i < bound->count; i++) {
        const struct bench_shape *shape = &bound->shapes[i];
        int m = (int)shape->m;
        int n = (int)shape->n;
        int k = (int)shape->k;
        for (int t = 0; t < shape->times; t++) {
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.0f,
                        x, k, w, k, 0.0f, y, n);
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, k, n,
                        1.0f, y, n, w, k, 0.0f, x, k);
            cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, k, m, 1.0f,
                        y, n, x, k, 0.0f, w, k);
        }
    }
    return clock_now() - begin;
}

static double triad_pass(int threads, float *a)
{
    float *b = a + TRIAD_ELEMENTS;
    float *c = b + TRIAD_ELEMENTS;
    double best = 1e30;
    for (int round = 0; round < 4; round++) {
        double begin = clock_now();
#pragma omp parallel for simd num_threads(threads) schedule(static)
        for (int i = 0; i < TRIAD_ELEMENTS; i++)
            a[i] = b[i] + 0.5f * c[i];
        double seconds = clock_now() - begin;
        if (seconds < best)
            best = seconds;
    }
    return 12.0 * TRIAD_ELEMENTS / best;
}

/* Values stay small and finite over a pass. */
static void fill(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)(i % 97 - 48) * 1e-4f;
}

enum err bench_bound(const void *arg, double *values)
{
    enum err rc = ERR_OK;
    const struct bench_bound *bound = arg;
    struct arena arena = { 0 };
    int64_t x = 0, w = 3 * TRIAD_ELEMENTS, y = 0;
    for (int i = 0; i < bound->count; i++) {
        const struct bench_shape *s = &bound->shapes[i];
        x = s->m * s->k > x ? s->m * s->k : x;
        w = s->n * s->k > w ? s->n * s->k : w;
        y = s->m * s->n > y ? s->m * s->n : y;
    }
    TRY(arena_create((size_t)(x + w + y) * sizeof(float) + 4096, &arena));
    float *px = arena_take(&arena, (size_t)x * sizeof(float));
    float *pw = arena_take(&arena, (size_t)w * sizeof(float));
    float *py = arena_take(&arena, (size_t)y * sizeof(float));
    openblas_set_num_threads(bound->threads);
    for (int round = -1; round < BENCH_BOUND_ROUNDS; round++) {
        fill(px, x);
        fill(pw, w);
        double gemm_s = gemm_pass(bound, px, pw, py);
        fill(pw, w);
        double triad = triad_pass(bound->threads, pw);
        if (round >= 0) {
            values[2 * round] = gemm_s;
            values[2 * round + 1] = triad;
        }
    }
out:
    arena_destroy(&arena);
    return rc;
}
