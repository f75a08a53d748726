/* NumPy's draws. The values are NumPy's own, of 1.24 and 2.4;
 * tests/interop/order.py compares many more. */
#include "src/data/set/numpy_rng.h"

#include "tests/tap.h"

static void test_draws(void)
{
    struct numpy_rng rng;
    char text[32];
    numpy_rng_seed(&rng, 12345);
    snprintf(text, sizeof text, "%.17g", numpy_rng_uniform(&rng, 0, 1));
    tap_is_str(text, "0.22733602246716966", "default_rng(12345).random()");
    numpy_rng_seed(&rng, 42);
    tap_ok(numpy_rng_uniform(&rng, 0, 1) == 0.7739560485559633, "of seed 42");
    numpy_rng_seed(&rng, 12345);
    static const int64_t want[] = { 6, 2, 7 };
    for (int i = 0; i < 3; i++)
        tap_is_int(numpy_rng_integers(&rng, 0, 10), want[i],
                   "integers(0, 10), number %d", i);
}

static void test_shuffle(void)
{
    static const struct {
        uint64_t seed;
        int64_t want[10];
    } list[] = {
        { 0, { 4, 6, 2, 7, 3, 5, 9, 0, 8, 1 } },
        { 42, { 5, 6, 0, 7, 3, 2, 4, 9, 1, 8 } },
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct numpy_rng rng;
        int64_t values[10];
        numpy_rng_seed(&rng, list[i].seed);
        numpy_rng_permutation(&rng, 10, values);
        tap_ok(memcmp(values, list[i].want, sizeof values) == 0,
               "shuffle of seed %d", (int)list[i].seed);
    }
}

/* Both ways to choose: each value at most once, none outside. */
static void test_choice(void)
{
    static const int64_t sizes[][2] = { { 0, 0 },        { 1, 1 },
                                        { 1, 0 },        { 7, 7 },
                                        { 100, 3 },      { 10000, 9999 },
                                        { 10001, 200 },  { 10001, 201 },
                                        { 10001, 10001 } };
    struct numpy_rng rng;
    numpy_rng_seed(&rng, 3);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int64_t population = sizes[i][0], count = sizes[i][1];
        int64_t *out = calloc((size_t)count + 1, sizeof *out);
        char *seen = calloc((size_t)population + 1, 1);
        int bad = numpy_rng_choice(&rng, population, count, out) != ERR_OK;
        for (int64_t k = 0; k < count; k++)
            bad += out[k] < 0 || out[k] >= population || seen[out[k]]++ != 0;
        tap_is_int(bad, 0, "%lld of %lld", (long long)count,
                   (long long)population);
        free(out);
        free(seen);
    }
}

static void test_range(void)
{
    struct numpy_rng rng;
    int bad = 0;
    numpy_rng_seed(&rng, UINT64_MAX);
    for (int i = 0; i < 1000; i++) {
        double x = numpy_rng_uniform(&rng, -2.5, 4.0);
        bad += x < -2.5 || x >= 4.0;
        int64_t k = numpy_rng_integers(&rng, -5, 3);
        bad += k < -5 || k >= 3;
        k = numpy_rng_integers(&rng, 0, ((int64_t)1 << 40) + 3);
        bad += k < 0 || k > (int64_t)1 << 40 << 1;
        bad += numpy_rng_integers(&rng, 7, 8) != 7;
        k = numpy_rng_interval(&rng, ((int64_t)5 << 32) + 1);
        bad += k < 0 || k > ((int64_t)5 << 32) + 1;
    }
    tap_is_int(bad, 0, "draws are within their bounds");
}

int main(void)
{
    test_draws();
    test_shuffle();
    test_choice();
    test_range();
    return tap_done();
}
