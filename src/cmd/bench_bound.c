#include "src/cmd/bench_bound.h"

#include <cblas.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/arena.h"
#include "src/base/clock.h"

#define TRIAD_ELEMENTS (8 << 20)

struct bench_bound {
    pid_t child;
    int to_child;
    int from_child;
};

struct bound_reply {
    double gemm_s;
    double triad_bytes_per_s;
};

static double gemm_pass(const struct bench_shape *shapes, int count, float *x,
                        float *w, float *y)
{
    double begin = clock_now();
    for (int i = 0; i < count; i++) {
        int m = (int)shapes[i].m;
        int n = (int)shapes[i].n;
        int k = (int)shapes[i].k;
        for (int t = 0; t < shapes[i].times; t++) {
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

/* Values stay tiny and finite over any number of passes. */
static void fill(float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)(i % 97 - 48) * 1e-4f;
}

static _Noreturn void child_main(const struct bench_shape *shapes, int count,
                                 int threads, int in, int out)
{
    struct arena arena = { 0 };
    int64_t x = 0, w = 0, y = 0;
    char go;
    for (int i = 0; i < count; i++) {
        const struct bench_shape *s = &shapes[i];
        x = s->m * s->k > x ? s->m * s->k : x;
        w = s->n * s->k > w ? s->n * s->k : w;
        y = s->m * s->n > y ? s->m * s->n : y;
    }
    if (w < 3 * TRIAD_ELEMENTS)
        w = 3 * TRIAD_ELEMENTS;
    if (arena_create((size_t)(x + w + y) * sizeof(float) + 4096, &arena) !=
        ERR_OK)
        _exit(1);
    float *px = arena_take(&arena, (size_t)x * sizeof(float));
    float *pw = arena_take(&arena, (size_t)w * sizeof(float));
    float *py = arena_take(&arena, (size_t)y * sizeof(float));
    openblas_set_num_threads(threads);
    while (read(in, &go, 1) == 1) {
        struct bound_reply reply;
        fill(px, x);
        fill(pw, w);
        reply.gemm_s = gemm_pass(shapes, count, px, pw, py);
        fill(pw, w);
        reply.triad_bytes_per_s = triad_pass(threads, pw);
        if (write(out, &reply, sizeof reply) != (ssize_t)sizeof reply)
            _exit(1);
    }
    _exit(0);
}

enum err bench_bound_create(const struct bench_shape *shapes, int count,
                            int threads, struct bench_bound **out)
{
    int down[2], up[2];
    struct bench_bound *bound = calloc(1, sizeof *bound);
    if (bound == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    if (pipe(down) != 0 || pipe(up) != 0) {
        free(bound);
        return err_errno("pipe");
    }
    bound->child = fork();
    if (bound->child == 0) {
        close(down[1]);
        close(up[0]);
        child_main(shapes, count, threads, down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    bound->to_child = down[1];
    bound->from_child = up[0];
    if (bound->child < 0) {
        bench_bound_destroy(bound);
        return err_errno("fork");
    }
    *out = bound;
    return ERR_OK;
}

void bench_bound_destroy(struct bench_bound *bound)
{
    if (bound == NULL)
        return;
    close(bound->to_child);
    close(bound->from_child);
    if (bound->child > 0)
        waitpid(bound->child, NULL, 0);
    free(bound);
}

enum err bench_bound_measure(struct bench_bound *bound, double *gemm_s,
                             double *triad_bytes_per_s)
{
    struct bound_reply reply;
    if (write(bound->to_child, "g", 1) != 1 ||
        read(bound->from_child, &reply, sizeof reply) != (ssize_t)sizeof reply)
        return err_set(ERR_MEMORY,
                       "the process that measures the bound has ended: is "
                       "there 1 GiB of free memory?");
    *gemm_s = reply.gemm_s;
    *triad_bytes_per_s = reply.triad_bytes_per_s;
    return ERR_OK;
}
