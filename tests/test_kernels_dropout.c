/* Dropout and jitter on every table against the generator's own blocks. */
#include "src/base/rng.h"
#include "tests/kernel_check.h"

/* Element e of sample s as kernel_shapes.h defines it. */
static uint32_t word_of(const struct random_place *random, int64_t s, int64_t e)
{
    uint64_t number = (uint64_t)(random->first_sample + s);
    uint64_t key = rng_u64(random->seed, random->stream, number);
    uint64_t block = (uint64_t)e / 4;
    const uint32_t halves[2] = { (uint32_t)key, (uint32_t)(key >> 32) };
    const uint32_t counter[4] = { (uint32_t)block, (uint32_t)(block >> 32) };
    uint32_t words[4];
    rng_philox(halves, counter, words);
    return words[e % 4];
}

static struct random_place place_of(int64_t first_sample)
{
    return (struct random_place){ .seed = 0x123456789abcdefu,
                                  .stream = rng_stream("blocks.3.resid"),
                                  .first_sample = first_sample };
}

static void check_dropout(const struct kernels *table, int64_t samples,
                          int64_t elements, float p, float scale)
{
    const struct random_place random = place_of(((int64_t)1 << 40) + 7);
    int64_t n = samples * elements, kept = 0;
    float *x = check_random(n, 1, 1);
    float *first = check_poisoned(n);
    double *want = check_f64(n);
    bool same = true, right = true;
    struct kernel_ctx one = { .threads = 1 };
    table->dropout(&one, DTYPE_F32, samples, elements, p, &random, scale, x,
                   first);
    for (int64_t i = 0; i < n; i++) {
        double word = word_of(&random, i / elements, i % elements);
        bool keep = word >= floor((double)p * 0x1p32);
        kept += keep;
        right &= keep || first[i] == 0;
        want[i] = keep ? (double)x[i] * (double)scale / (1 - (double)p) : 0;
    }
    for (int t = 1; t <= CHECK_THREADS_MAX; t++) {
        struct kernel_ctx ctx = { .threads = t };
        float *y = check_copy(x, n);
        table->dropout(&ctx, DTYPE_F32, samples, elements, p, &random, scale, y,
                       y);
        same &= check_same(y, first, n);
    }
    check_below(table, "dropout", "values", check_error(first, want, n), 1e-6);
    check_that(table, right && same,
               "dropout %g: %lld x %lld, same bits on 1, 2, 3 threads and in "
               "place",
               (double)p, (long long)samples, (long long)elements);
    double spread = sqrt((double)p * (1 - (double)p) * (double)n);
    check_that(table,
               fabs((double)kept - (1 - (double)p) * (double)n) <= 5 * spread,
               "dropout %g: as many are kept as should be", (double)p);
    check_release();
}

static void check_jitter(const struct kernels *table, int64_t samples,
                         int64_t elements, float amount)
{
    const struct random_place random = place_of(3);
    int64_t n = samples * elements;
    float *x = check_random(n, 1, 1);
    float *first = check_poisoned(n);
    double *want = check_f64(n);
    bool same = true;
    struct kernel_ctx one = { .threads = 1 };
    table->jitter(&one, DTYPE_F32, samples, elements, amount, &random, x,
                  first);
    for (int64_t i = 0; i < n; i++) {
        uint32_t word = word_of(&random, i / elements, i % elements);
        double u = (double)(word >> 8) * 0x1p-24;
        want[i] = (double)x[i] * (1 - (double)amount + 2 * (double)amount * u);
    }
    for (int t = 1; t <= CHECK_THREADS_MAX; t++) {
        struct kernel_ctx ctx = { .threads = t };
        float *y = check_copy(x, n);
        table->jitter(&ctx, DTYPE_F32, samples, elements, amount, &random, y,
                      y);
        same &= check_same(y, first, n);
    }
    check_below(table, "jitter", "values", check_error(first, want, n), 1e-6);
    check_that(table, same,
               "jitter: same bits on 1, 2, 3 threads and in place");
    check_release();
}

/* Samples taken apart, as other ranks would hold them, give the same. */
static void check_grouping(const struct kernels *table)
{
    enum { SAMPLES = 5, ELEMENTS = 4133, COUNT = SAMPLES * ELEMENTS };
    struct kernel_ctx ctx = { .threads = 2 };
    struct random_place random = place_of(100);
    float *x = check_random(COUNT, 1, 1);
    float *whole = check_poisoned(2 * COUNT),
          *parts = check_poisoned(2 * COUNT);
    table->dropout(&ctx, DTYPE_F32, SAMPLES, ELEMENTS, 0.3f, &random, 1, x,
                   whole);
    table->jitter(&ctx, DTYPE_F32, SAMPLES, ELEMENTS, 0.3f, &random, x,
                  whole + COUNT);
    for (int64_t s = 0; s < SAMPLES; s++) {
        int64_t at = s * ELEMENTS;
        random.first_sample = 100 + s;
        table->dropout(&ctx, DTYPE_F32, 1, ELEMENTS, 0.3f, &random, 1, x + at,
                       parts + at);
        table->jitter(&ctx, DTYPE_F32, 1, ELEMENTS, 0.3f, &random, x + at,
                      parts + COUNT + at);
    }
    check_that(table, check_same(whole, parts, 2 * COUNT),
               "dropout, jitter: independent of how samples are grouped");
    random.stream++;
    table->dropout(&ctx, DTYPE_F32, SAMPLES, ELEMENTS, 0.3f, &random, 1, x,
                   parts);
    check_that(table, !check_same(whole, parts, ELEMENTS),
               "dropout: another stream draws other numbers");
    check_release();
}

static void check_none(const struct kernels *table)
{
    enum { COUNT = 9001 };
    struct kernel_ctx ctx = { .threads = 2 };
    const struct random_place random = place_of(0);
    float *x = check_random(COUNT + 1, 1, 1), *y = check_poisoned(COUNT + 1);
    bool right = true;
    table->dropout(&ctx, DTYPE_F32, 1, COUNT, 0, &random, 0.7f, x, y);
    for (int64_t i = 0; i < COUNT; i++)
        right &= y[i] == x[i] * 0.7f;
    check_that(table, right && isnan(y[COUNT]),
               "dropout 0: scales and no more");
    x[5] = check_nan();
    table->dropout(&ctx, DTYPE_F32, 1, COUNT, 0.999f, &random, 1, x, y);
    check_that(table, isnan(y[5]) && check_no_nan(y + 6, COUNT - 6),
               "dropout: a NaN stays one even where it is dropped");
    check_release();
}

int main(void)
{
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        check_dropout(*t, 1, 1, 0.5f, 1);
        check_dropout(*t, 3, 37, 0.1f, 1);
        check_dropout(*t, 2, 4097, 0.5f, 0.25f);
        check_dropout(*t, 3, 12289, 0.9f, 2);
        check_jitter(*t, 1, 5, 0.01f);
        check_jitter(*t, 3, 4101, 0.5f);
        check_grouping(*t);
        check_none(*t);
    }
    return tap_done();
}
