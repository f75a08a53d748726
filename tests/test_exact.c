#include "src/base/exact.h"

#include <float.h>

#include "src/base/rng.h"
#include "tests/tap.h"

#define COUNT 1000

static uint64_t draw(uint64_t index)
{
    return rng_u64(29, index, 6);
}

static void merge(struct exact *to, const struct exact *from)
{
    for (int w = 0; w < EXACT_WORDS; w++)
        to->word[w] += from->word[w];
}

/* Whole numbers whose sum 64 bits hold, in units of every size there is. */
static void test_reference(void)
{
    int wrong = 0;
    for (int unit = -304; unit <= 240; unit++) {
        struct exact sum = { { 0 } };
        uint64_t want = 0;
        for (uint64_t i = 0; i < COUNT; i++) {
            uint64_t at = i + (uint64_t)(unit + 304) * COUNT;
            uint64_t x = draw(at) >> 11 >> draw(at + (1 << 30)) % 53;
            want += x;
            exact_add(&sum, ldexp((double)x, unit));
        }
        wrong += exact_value(&sum) != ldexp((double)want, unit);
    }
    tap_ok(wrong == 0, "1000 numbers are rounded once, %d wrong", wrong);
}

/* Squares of floats of all sizes, in any order and by parts. */
static void test_order(void)
{
    static double values[COUNT];
    struct exact forward = { { 0 } }, backward = { { 0 } };
    struct exact parts[7] = { { { 0 } } };
    double plain = 0.0;
    for (uint64_t i = 0; i < COUNT; i++) {
        float x = ldexpf((float)(draw(i) >> 40), (int)(draw(~i) % 240) - 149);
        values[i] = (double)x * (double)x;
        plain += values[i];
        exact_add(&forward, values[i]);
        exact_add(&parts[draw(i + COUNT) % 7], values[i]);
    }
    for (int i = COUNT - 1; i >= 0; i--)
        exact_add(&backward, values[i]);
    for (int p = 1; p < 7; p++)
        merge(&parts[0], &parts[p]);
    double value = exact_value(&forward);
    tap_ok(value == exact_value(&backward), "backward the same bits");
    tap_ok(value == exact_value(&parts[0]), "in 7 parts the same bits");
    tap_ok(fabs(plain - value) <= COUNT * DBL_EPSILON * value,
           "as fp64 has it, off by %.1e", fabs(plain - value) / value);
}

static double sum_of(const double *values, int count)
{
    struct exact sum = { { 0 } };
    for (int i = 0; i < count; i++)
        exact_add(&sum, values[i]);
    return exact_value(&sum);
}

static void test_ends(void)
{
    const double least = (double)FLT_TRUE_MIN * (double)FLT_TRUE_MIN;
    const double most = (double)FLT_MAX * (double)FLT_MAX;
    const struct {
        double values[3], want;
        const char *what;
    } cases[] = {
        { { 0 }, 0, "nothing" },
        { { -0.0 }, 0, "minus zero" },
        { { least }, least, "the least square" },
        { { least, least, least }, 3 * least, "three of them" },
        { { DBL_TRUE_MIN, 1 }, 1, "what no square is" },
        { { most, most }, 2 * most, "the largest squares" },
        { { 0x1p53, 1 }, 0x1p53, "a tie goes to even, down" },
        { { 0x1p53, 1, 2 }, 0x1p53 + 4, "a tie goes to even, up" },
        { { 0x1p53, 1, least }, 0x1p53 + 2, "hardly more than a tie" },
        { { 0x1p300, 1 }, INFINITY, "too large" },
        { { INFINITY, 1 }, INFINITY, "infinite" },
        { { 1, INFINITY, NAN }, NAN, "NaN" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double value = sum_of(cases[i].values, 3);
        tap_ok(value == cases[i].want || (isnan(value) && isnan(cases[i].want)),
               "%s", cases[i].what);
    }
    struct exact large = { { 0 } }, whole = { { 0 } };
    for (int i = 0; i < 1 << 16; i++)
        exact_add(&large, 0x1.fffffffffffffp52);
    for (int i = 0; i < 1 << 14; i++)
        merge(&whole, &large); /* 2^30 values of all ones */
    tap_ok(exact_value(&whole) == ldexp(0x1.fffffffffffffp52, 30),
           "as many as there may be");
}

int main(void)
{
    test_reference();
    test_order();
    test_ends();
    return tap_done();
}
