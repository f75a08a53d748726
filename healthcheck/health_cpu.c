/* Arithmetic and memory of the processors.
 *
 * A core that computes wrongly is rare and does not say so: every core must
 * reproduce, bit for bit, one product that was checked against fp64. Products
 * that take far longer than their multiply-adds come from kernels that do not
 * suit the processor, or from memory: all jobs would be that slow.
 *
 * Each thread is bound to a processor of its own, so that a wrong element has a
 * name that an administrator can use. The product is small enough for a core's
 * cache: it is the arithmetic that is looked at, and memory has a check of its
 * own, McCalpin's triad, on arrays that no cache holds.
 *
 * Root's program (HEALTH_NODE) is linked with libc alone, and its product is a
 * plain loop for three instruction sets: a node on which nothing is
 * installed must still be judged. */
#include "healthcheck/health_checks.h"

#include <assert.h>
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/rng.h"
#ifndef HEALTH_NODE
#include "kernels/kernels.h"
#endif

#define CPU_SIDE 384
#define CPU_ELEMENTS (CPU_SIDE * CPU_SIDE)
#define CPU_FLOP (2.0 * CPU_SIDE * CPU_ELEMENTS)
#define CPU_SEED 20251
#define CPU_TRIAD_BYTES_MAX (768.0 * 1048576.0)
#define CPU_TRIAD_PASSES 5

struct cpu_gemm {
#ifndef HEALTH_NODE
    const struct kernels *kernels;
#endif
    float *a, *b;
    float *good;          /* the product that all must reproduce */
    size_t product_bytes; /* with scratch behind it */
    int threads;
    double seconds;
    bool inject;
};

struct cpu_tally {
    int64_t products;
    int64_t wrong; /* elements */
    int cpu;       /* where, the first time; -1: nowhere */
    double span_s;
    double best; /* FLOP/s of the fastest product; of all: their sum */
};

static void *cpu_allocate(size_t bytes)
{
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

#ifdef HEALTH_NODE
/* Without any library, for the program that root runs on every node. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#endif
static void
cpu_multiply(const float *restrict a, const float *restrict b,
             float *restrict c)
{
    memset(c, 0, CPU_ELEMENTS * sizeof *c);
    for (int i = 0; i < CPU_SIDE; i++)
        for (int k = 0; k < CPU_SIDE; k++)
            for (int j = 0; j < CPU_SIDE; j++)
                c[i * CPU_SIDE + j] +=
                    a[i * CPU_SIDE + k] * b[k * CPU_SIDE + j];
}

static enum err cpu_product(const struct cpu_gemm *test, float *out)
{
    cpu_multiply(test->a, test->b, out);
    return ERR_OK;
}

static enum err cpu_begin(struct cpu_gemm *test)
{
    test->product_bytes = CPU_ELEMENTS * sizeof *test->good;
    return ERR_OK;
}

static int cpu_threads(void)
{
    return omp_get_num_procs();
}

/* Its product is a plain loop, which no job computes with. */
static double cpu_peak(const struct cpu_gemm *test)
{
    (void)test;
    return 0;
}
#else
static enum err cpu_product(const struct cpu_gemm *test, float *out)
{
    size_t bytes = CPU_ELEMENTS * sizeof *out;
    assert(test->product_bytes >= bytes);
    struct kernel_ctx ctx = { .threads = 1,
                              .scratch = out + CPU_ELEMENTS,
                              .scratch_bytes = test->product_bytes - bytes };
    struct gemm gemm = { GEMM_OF(GEMM_NN, CPU_SIDE, CPU_SIDE, CPU_SIDE, test->a,
                                 test->b, out) };
    return test->kernels->gemm(&ctx, DTYPE_F32, &gemm);
}

static enum err cpu_begin(struct cpu_gemm *test)
{
    enum err rc = kernels_find("cpu", "auto", &test->kernels);
    struct kernel_limits limits = { .threads = 1,
                                    .tokens = CPU_SIDE,
                                    .batch = 1,
                                    .seq = CPU_SIDE,
                                    .width = CPU_SIDE,
                                    .heads = 1,
                                    .head_dim = CPU_SIDE,
                                    .vocab = CPU_SIDE };
    if (rc == ERR_OK)
        test->product_bytes = CPU_ELEMENTS * sizeof *test->good +
                              test->kernels->scratch_bytes(&limits);
    return rc;
}

static int cpu_threads(void)
{
    return kernels_threads_default(1);
}

/* FLOP/s of the threads that have computed the products, where they did. */
static double cpu_peak(const struct cpu_gemm *test)
{
    struct kernel_ctx ctx = { .threads = test->threads };
    const char *source;
    return test->kernels->peak_flops(&ctx, DTYPE_F32, false, &source);
}
#endif

/* Elements of `good` that are off by more than the op table allows. */
static int64_t cpu_against_fp64(const struct cpu_gemm *test)
{
    double row[CPU_SIDE];
    int64_t wrong = 0;
    /* The largest element is of order 4 sqrt(k); tolerance 2e-6 sqrt(k) of it
     */
    double tolerance = 2e-6 * CPU_SIDE * 6;
    for (int i = 0; i < CPU_SIDE; i++) {
        memset(row, 0, sizeof row);
        for (int k = 0; k < CPU_SIDE; k++) {
            double left = (double)test->a[i * CPU_SIDE + k];
            const float *right = test->b + (size_t)k * CPU_SIDE;
            for (int j = 0; j < CPU_SIDE; j++)
                row[j] += left * (double)right[j];
        }
        for (int j = 0; j < CPU_SIDE; j++) {
            double error = fabs((double)test->good[i * CPU_SIDE + j] - row[j]);
            wrong += !(error <= tolerance); /* NaN is wrong, too */
        }
    }
    return wrong;
}

static int64_t cpu_differences(const float *a, const float *b)
{
    int64_t count = 0;
    if (memcmp(a, b, CPU_ELEMENTS * sizeof *a) == 0)
        return 0;
    for (int i = 0; i < CPU_ELEMENTS; i++)
        count += memcmp(&a[i], &b[i], sizeof a[i]) != 0;
    return count;
}

/* One processor of the mask per thread, so that each is tested. */
static void cpu_bind(const cpu_set_t *mask, int index)
{
    cpu_set_t one;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, mask) || index-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

/* The thread's own: what others take of a busy node is no fault of its
 * processors. */
static double cpu_time(void)
{
    struct timespec t = { 0 };
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One thread: products for `seconds`, at least one. */
static enum err cpu_loop(const struct cpu_gemm *test, struct cpu_tally *tally)
{
    enum err rc = ERR_OK;
    float *c = cpu_allocate(test->product_bytes);
    tally->cpu = -1;
    if (c == NULL)
        return err_set(ERR_MEMORY, "no memory for a matrix");
    double start = clock_now();
    do {
        double begin = cpu_time();
        TRY_OUT(cpu_product(test, c));
        tally->best =
            fmax(tally->best, CPU_FLOP / fmax(cpu_time() - begin, 1e-9));
        if (test->inject && omp_get_thread_num() == 0)
            c[CPU_ELEMENTS / 2] = -c[CPU_ELEMENTS / 2];
        int64_t wrong = cpu_differences(c, test->good);
        if (wrong > 0 && tally->cpu < 0)
            tally->cpu = sched_getcpu();
        tally->wrong += wrong;
        tally->products++;
        tally->span_s = clock_now() - start;
    } while (tally->span_s < test->seconds);
out:
    free(c);
    return rc;
}

static enum err cpu_all(const struct cpu_gemm *test, struct cpu_tally *total)
{
    enum err rc = ERR_OK;
    cpu_set_t mask;
    memset(total, 0, sizeof *total);
    total->cpu = -1;
    CPU_ZERO(&mask);
    sched_getaffinity(0, sizeof mask, &mask);
    assert(test->threads >= 1);
#pragma omp parallel num_threads(test->threads)
    {
        struct cpu_tally own = { .cpu = -1 };
        cpu_bind(&mask, omp_get_thread_num());
        enum err own_rc = cpu_loop(test, &own);
#pragma omp critical(health_cpu)
        {
            if (own_rc != ERR_OK && rc == ERR_OK)
                rc = err_set(own_rc, "gemm: a thread failed");
            total->products += own.products;
            total->wrong += own.wrong;
            total->best += own.best;
            if (own.cpu >= 0 && total->cpu < 0)
                total->cpu = own.cpu;
            total->span_s = fmax(total->span_s, own.span_s);
        }
    }
    return rc;
}

static void cpu_wrong(struct health_result *out, int64_t wrong, int cpu)
{
    if (cpu >= 0)
        health_say(out, HEALTH_BAD, "GEMM_WRONG",
                   "%lld elements differ, first on processor %d",
                   (long long)wrong, cpu);
    else
        health_say(out, HEALTH_BAD, "GEMM_WRONG",
                   "%lld elements are off the fp64 reference",
                   (long long)wrong);
}

static enum err cpu_judge(const struct health_env *env,
                          const struct cpu_gemm *test,
                          struct health_result *out)
{
    struct cpu_tally tally;
    int64_t wrong = cpu_against_fp64(test);
    if (wrong > 0) {
        cpu_wrong(out, wrong, -1);
        return ERR_OK;
    }
    TRY(cpu_all(test, &tally));
    out->value =
        CPU_FLOP * (double)tally.products / fmax(tally.span_s, 1e-9) / 1e9;
    out->limit = env->limits.gemm_min_gflops;
    double peak = cpu_peak(test);
    if (peak > 0)
        out->peak_ratio = tally.best / peak;
    if (tally.wrong > 0) {
        cpu_wrong(out, tally.wrong, tally.cpu);
    } else if (out->value < out->limit) {
        out->state = HEALTH_BAD;
        out->retest = true;
        snprintf(out->code, sizeof out->code, "GEMM_SLOW");
    } else if (peak > 0 && out->peak_ratio < env->limits.gemm_peak_ratio_min) {
        out->retest = true;
        health_say(out, HEALTH_WARN, "GEMM_BELOW_PEAK",
                   "products reach %.2f of the processors' %.4g GFLOP/s",
                   out->peak_ratio, peak / 1e9);
    }
    return ERR_OK;
}

enum err health_cpu_gemm(const struct health_env *env,
                         struct health_result *out)
{
    enum err rc = ERR_OK;
    struct cpu_gemm test = {
        .threads = cpu_threads(),
        .seconds = env->phase == HEALTH_JOB ? 3.0 : 0.3,
        .inject = health_injected(env->inject, "gemm", env->host, "wrong"),
        .a = cpu_allocate(CPU_ELEMENTS * sizeof(float)),
        .b = cpu_allocate(CPU_ELEMENTS * sizeof(float)),
    };
    snprintf(out->unit, sizeof out->unit, "GFLOP/s");
    TRY_OUT(cpu_begin(&test));
    test.good = cpu_allocate(test.product_bytes);
    if (test.a == NULL || test.b == NULL || test.good == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "no memory for three matrices"));
    rng_fill_normal(CPU_SEED, rng_stream("health.a"), 0, CPU_ELEMENTS, 1.0f,
                    test.a);
    rng_fill_normal(CPU_SEED, rng_stream("health.b"), 0, CPU_ELEMENTS, 1.0f,
                    test.b);
    TRY_OUT(cpu_product(&test, test.good));
    TRY_OUT(cpu_judge(env, &test, out));
out:
    free(test.good);
    free(test.b);
    free(test.a);
    return rc;
}

/* Elements per array: three fit in a quarter of the free memory. */
static int64_t cpu_triad_count(void)
{
    double pages = (double)sysconf(_SC_AVPHYS_PAGES);
    double bytes = pages * (double)sysconf(_SC_PAGESIZE) / 4;
    if (!(bytes > 0) || bytes > CPU_TRIAD_BYTES_MAX)
        bytes = CPU_TRIAD_BYTES_MAX;
    int64_t count = (int64_t)(bytes / 24) / 1024 * 1024;
    return count < 1024 ? 1024 : count;
}

static double cpu_triad_pass(double *a, const double *b, const double *c,
                             int64_t count, int threads)
{
    double start = clock_now();
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; i++)
        a[i] = b[i] + 3.0 * c[i];
    return clock_now() - start;
}

/* The best of some passes is the memory's speed; all of a is checked, since
 * numbers are whole and small and so exact. */
enum err health_cpu_triad(const struct health_env *env,
                          struct health_result *out)
{
    enum err rc = ERR_OK;
    int threads = cpu_threads();
    int64_t count = cpu_triad_count();
    int64_t wrong = 0;
    double best_s = 1e30;
    double *a = cpu_allocate((size_t)count * sizeof *a);
    double *b = cpu_allocate((size_t)count * sizeof *b);
    double *c = cpu_allocate((size_t)count * sizeof *c);
    snprintf(out->unit, sizeof out->unit, "GB/s");
    if (a == NULL || b == NULL || c == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "no memory for three arrays"));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; i++) {
        a[i] = 0;
        b[i] = (double)(i & 0xffff);
        c[i] = (double)(i % 1021);
    }
    for (int pass = 0; pass < CPU_TRIAD_PASSES; pass++)
        best_s = fmin(best_s, cpu_triad_pass(a, b, c, count, threads));
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+:wrong)
    for (int64_t i = 0; i < count; i++)
        wrong += a[i] != (double)((i & 0xffff) + 3 * (i % 1021));
    out->value = 24.0 * (double)count / fmax(best_s, 1e-9) / 1e9;
    out->limit = env->limits.triad_min_gbps;
    if (wrong > 0) {
        health_say(out, HEALTH_BAD, "MEMORY_WRONG", "%lld elements are wrong",
                   (long long)wrong);
    } else if (out->value < out->limit) {
        out->state = HEALTH_BAD;
        out->retest = true;
        snprintf(out->code, sizeof out->code, "TRIAD_SLOW");
    }
out:
    free(c);
    free(b);
    free(a);
    return rc;
}
