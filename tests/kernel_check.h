/* What the kernel tests share: random inputs, poisoned outputs, contexts with
 * poisoned scratch, and errors against an fp64 reference. */
#pragma once

#include <stdarg.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "kernels/kernels.h"
#include "tests/tap.h"

#ifndef CHECK_THREADS_MAX
#define CHECK_THREADS_MAX 3
#endif

/* Uniform in [-1, 1), a function of seed and index (splitmix64). */
static inline double check_uniform(uint64_t seed, int64_t index)
{
    uint64_t z = seed * 0xd1342543de82ef95u + (uint64_t)index;
    z = (z + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 31)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 29)) >> 11) * 0x1p-52 - 1.0;
}

/* What check_alloc() has given since check_release(). */
static struct {
    void **pieces;
    size_t count, room;
} check_kept;

/* Memory until check_release(). Ends where it ends: AddressSanitizer finds what
 * is read behind it. */
static inline void *check_alloc(size_t bytes)
{
    size_t whole = (bytes + 63) / 64 * 64;
    char *p = aligned_alloc(64, whole);
    if (check_kept.count == check_kept.room) {
        check_kept.room = 2 * check_kept.room + 64;
        check_kept.pieces =
            realloc(check_kept.pieces, check_kept.room * sizeof(char *));
    }
    if (p == NULL || check_kept.pieces == NULL)
        abort();
    check_kept.pieces[check_kept.count++] = p;
#if defined(__SANITIZE_ADDRESS__)
    __asan_poison_memory_region(p + bytes, whole - bytes);
#endif
    return p;
}

/* All memory of a case goes at once, at its end: a test has no more to name. */
static inline void check_release(void)
{
    while (check_kept.count > 0)
        free(check_kept.pieces[--check_kept.count]);
}

/* NaNs with a payload, which sloppy bit tricks turn into numbers. */
static inline float check_nan(void)
{
    uint32_t bits = 0x7fc12345u;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline float *check_poisoned(int64_t n)
{
    float *x = check_alloc((size_t)n * sizeof(*x));
    for (int64_t i = 0; i < n; i++)
        x[i] = check_nan();
    return x;
}

static inline float *check_random(int64_t n, uint64_t seed, double scale)
{
    float *x = check_alloc((size_t)n * sizeof(*x));
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(scale * check_uniform(seed, i));
    return x;
}

static inline float *check_copy(const float *from, int64_t n)
{
    float *x = check_alloc((size_t)n * sizeof(*x));
    memcpy(x, from, (size_t)n * sizeof(*x));
    return x;
}

/* A copy where ops reach it: a GPU reaches check_alloc()'s memory only. */
static inline void *check_held(const void *from, size_t bytes)
{
    return memcpy(check_alloc(bytes), from, bytes);
}

/* The same of values: CHECK_HELD(float, 1, 2, 3). */
#define CHECK_HELD(type, ...)                                                  \
    ((type *)check_held((const type[]){ __VA_ARGS__ },                         \
                        sizeof((const type[]){ __VA_ARGS__ })))

static inline double *check_f64(int64_t n)
{
    double *x = check_alloc((size_t)n * sizeof(*x));
    for (int64_t i = 0; i < n; i++)
        x[i] = 0;
    return x;
}

static inline double *check_widened(const float *from, int64_t n)
{
    double *x = check_f64(n);
    for (int64_t i = 0; i < n; i++)
        x[i] = (double)from[i];
    return x;
}

/* Largest difference over the largest absolute reference value; a NaN on
 * either side is infinitely far off. */
static inline double check_error(const float *got, const double *want,
                                 int64_t n)
{
    double worst = 0;
    double largest = 1e-30;
    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - want[i]);
        if (isnan(off))
            return INFINITY;
        worst = fmax(worst, off);
        largest = fmax(largest, fabs(want[i]));
    }
    return worst / largest;
}

static inline bool check_same(const float *a, const float *b, int64_t n)
{
    return memcmp(a, b, (size_t)n * sizeof(*a)) == 0;
}

static inline bool check_all_nan(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isnan(x[i]))
            return false;
    return true;
}

static inline bool check_no_nan(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (isnan(x[i]))
            return false;
    return true;
}

/* Rounded to bf16 by ties to even, for finite numbers: fp64 holds the middle
 * between two neighbours exactly. */
static inline float check_bf16_of(float x)
{
    int exponent;
    frexp((double)x, &exponent);
    return (float)ldexp(nearbyint(ldexp((double)x, 8 - exponent)),
                        exponent - 8);
}

/* A context with exactly the scratch that `limits` asks for, poisoned. */
static inline struct kernel_ctx
check_ctx(const struct kernels *table, struct kernel_limits limits, int threads)
{
    limits.threads = threads;
    size_t bytes = table->scratch_bytes(&limits);
    struct kernel_ctx ctx = { .threads = threads, .scratch_bytes = bytes };
    ctx.scratch = check_alloc(bytes);
    memset(ctx.scratch, 0xff, bytes);
    return ctx;
}

/* For ops whose scratch does not depend on shapes. */
static inline struct kernel_ctx check_ctx_of(const struct kernels *table,
                                             int threads)
{
    return check_ctx(table, (struct kernel_limits){ 0 }, threads);
}

/* True, after a visible skip, if `rc` says that the table lacks the op. */
static inline bool check_lacks(const struct kernels *table, enum err rc)
{
    if (rc != ERR_UNSUPPORTED)
        return false;
    tap_skip("%s/%s: %s", table->backend, table->kernel_set, err_text());
    return true;
}

/* Emulated threads cost a thousand times what a processor's do. */
static inline bool check_emulated(const struct kernels *table)
{
    return strcmp(table->kernel_set, "emulated") == 0;
}

/* How often, on 1, 2 and 3 threads, the bits must be the same: a device, which
 * does not compute by them, computes once and once more. */
static inline int check_runs(const struct kernels *table)
{
    return strcmp(table->backend, "cpu") == 0 ? CHECK_THREADS_MAX
           : CHECK_THREADS_MAX < 2            ? CHECK_THREADS_MAX
                                              : 2;
}

/* A point that says which table: "cpu/avx2 add: ...". */
#define check_that(table, pass, ...)                                           \
    check_point((table), (pass), __FILE__, __LINE__, __VA_ARGS__)

__attribute__((format(printf, 5, 6))) static inline bool
check_point(const struct kernels *table, bool pass, const char *file, int line,
            const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return tap_check(pass, file, line, "%s/%s %s", table->backend,
                     table->kernel_set, text);
}

/* "cpu/avx2 <op>" is below the tolerance. */
static inline void check_below(const struct kernels *table, const char *op,
                               const char *what, double error, double tolerance)
{
    if (!check_that(table, error <= tolerance, "%s: %s within %.1e", op, what,
                    tolerance))
        tap_note("error %.3e", error);
}
