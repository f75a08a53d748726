/* Placing stored elements: every pair of parts against a walk over all
 * elements, and conversion against a search for the nearest number. */

#include "checkpoint/ckpt_place.h"
#include "src/base/rng.h"
#include "tests/tap.h"

#define DIMS 3
#define ELEMENTS 210
#define POISON 0x5a5a5a5a
#define TRIALS 2000

static const int64_t shape[CKPT_DIMS_MAX] = { 5, 6, 7 };

/* --- parts --- */

static int64_t draw(uint64_t *state, int64_t end)
{
    return (int64_t)(rng_u64(7, 1, (*state)++) % (uint64_t)end);
}

static struct ckpt_part random_part(uint64_t *state)
{
    struct ckpt_part part = { .boxed = draw(state, 3) > 0 };
    if (!part.boxed) {
        part.begin = draw(state, ELEMENTS + 1);
        part.end = part.begin + draw(state, ELEMENTS + 1 - part.begin);
        return part;
    }
    for (int d = 0; d < DIMS; d++) {
        part.origin[d] = draw(state, shape[d] + 1);
        part.sides[d] = draw(state, shape[d] - part.origin[d] + 1);
        if (draw(state, 3) == 0) {
            part.origin[d] = 0;
            part.sides[d] = shape[d];
        }
    }
    return part;
}

static bool contains(const struct ckpt_part *part, int64_t element)
{
    if (!part->boxed)
        return element >= part->begin && element < part->end;
    for (int d = DIMS - 1; d >= 0; d--) {
        int64_t index = element % shape[d];
        element /= shape[d];
        if (index < part->origin[d] ||
            index >= part->origin[d] + part->sides[d])
            return false;
    }
    return true;
}

/* The part's elements in order; how many. */
static int list(const struct ckpt_part *part, int32_t *elements)
{
    int count = 0;
    for (int32_t e = 0; e < ELEMENTS; e++)
        if (contains(part, e))
            elements[count++] = e;
    return count;
}

static bool place_once(uint64_t *state)
{
    struct ckpt_place place = { .dims = DIMS,
                                .shape = shape,
                                .stored = random_part(state),
                                .wanted = random_part(state),
                                .stored_dtype = DTYPE_I32,
                                .wanted_dtype = DTYPE_I32 };
    int32_t stored[ELEMENTS], wanted[ELEMENTS], got[ELEMENTS + 2];
    int have = list(&place.stored, stored), want = list(&place.wanted, wanted);
    int first = (int)draw(state, have + 1);
    int end = first + (int)draw(state, have - first + 1);
    bool touches = false, good = true;
    for (int i = 0; i < ELEMENTS + 2; i++)
        got[i] = POISON;
    place.data = got + 1;
    (void)ckpt_place_copy(&place, first, end, stored + first);
    for (int i = 0; i < want; i++) {
        bool given = false;
        for (int k = first; k < end; k++)
            given = given || stored[k] == wanted[i];
        touches = touches || given;
        good = good && got[i + 1] == (given ? wanted[i] : POISON);
    }
    good = good && got[0] == POISON;
    for (int i = want + 1; i < ELEMENTS + 2; i++)
        good = good && got[i] == POISON;
    return good && touches == ckpt_place_touches(DIMS, shape, &place.stored,
                                                 first, end, &place.wanted);
}

static void test_parts(void)
{
    uint64_t state = 0;
    int bad = 0;
    for (int i = 0; i < TRIALS; i++)
        bad += !place_once(&state);
    tap_is_int(bad, 0, "%d pairs of intervals and boxes", TRIALS);
}

/* --- conversion --- */

static double bf16_value(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* The nearest bf16, ties to even, by search among the finite ones; past them
 * the next power of two stands for Inf, as IEEE 754 has it. */
static uint16_t nearest(double value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value);
    uint16_t low = 0, high = 0x7f80;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (bf16_value(middle) <= size)
            low = middle;
        else
            high = middle;
    }
    double above = high == 0x7f80 ? 0x1p128 : bf16_value(high);
    double down = size - bf16_value(low), up = above - size;
    bool higher = up < down || (up == down && (high & 1) == 0);
    return (uint16_t)(sign | (higher ? high : low));
}

static bool to_bf16_is(double value)
{
    uint16_t got = 0, want = nearest(value);
    ckpt_place_convert(DTYPE_F64, &value, DTYPE_BF16, &got, 1);
    bool good = got == want;
    float narrow = (float)value;
    if ((double)narrow == value) {
        ckpt_place_convert(DTYPE_F32, &narrow, DTYPE_BF16, &got, 1);
        good = good && got == want;
    }
    if (!good)
        tap_note("%a: %04x, not %04x", value, got, want);
    return good;
}

static void test_rounding(void)
{
    static const double cases[] =
        TUPLE(0.0, -0.0, 1.0, 0x1.01p0, 0x1.03p0, 0x1.0101p0, 0x1.010000001p0,
              0x1.00fffffffp0, 0x1.02fffffffp0, 0x1.030000001p0, 0x1p-126,
              0x1p-133, 0x1p-134, 0x1.8p-133, 0x1.00000001p-134, 0x1p-149,
              0x1.fep127, 0x1.fefffffffp127, 0x1.ffp127, 0x1.feffffp127,
              0x1.ffp300, -0x1.ffp127, 0x1p-1074);
    int bad = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        bad += !to_bf16_is(cases[i]) + !to_bf16_is(-cases[i]);
    for (uint64_t i = 0; i < 20000; i++) {
        int exponent = (int)(rng_u64(1, 2, i) % 290) - 150;
        double value = ldexp(1.0 + rng_uniform(1, 3, i), exponent);
        bad += !to_bf16_is(value);
        /* just beside the middle of two bf16 numbers */
        double middle = ldexp(
            1.0 + (double)(2 * (rng_u64(1, 4, i) % 128) + 1) / 256, exponent);
        bad += !to_bf16_is(middle) + !to_bf16_is(nextafter(middle, INFINITY)) +
               !to_bf16_is(nextafter(middle, 0.0));
    }
    tap_is_int(bad, 0, "bf16 is the nearest, ties to even");
}

static void test_exact(void)
{
    int bad = 0;
    for (uint32_t half = 0; half < 0x10000; half++) {
        uint16_t from = (uint16_t)half, back = 0, again = 0;
        double wide;
        float narrow;
        ckpt_place_convert(DTYPE_BF16, &from, DTYPE_F64, &wide, 1);
        ckpt_place_convert(DTYPE_F64, &wide, DTYPE_BF16, &back, 1);
        ckpt_place_convert(DTYPE_BF16, &from, DTYPE_F32, &narrow, 1);
        ckpt_place_convert(DTYPE_F32, &narrow, DTYPE_BF16, &again, 1);
        bool is_nan = (from & 0x7f80) == 0x7f80 && (from & 0x7f) != 0;
        uint16_t want = is_nan ? (uint16_t)(from | 0x40) : from;
        bad += back != want || again != want || isnan(wide) != is_nan;
    }
    tap_is_int(bad, 0, "every bf16 comes back, NaN quiet, with its bits");
    double wide[4] = { 0x1.fffffffp127, -0x1p-149, 0x1.8p-150, INFINITY };
    float narrow[4];
    ckpt_place_convert(DTYPE_F64, wide, DTYPE_F32, narrow, 4);
    tap_ok(isinf(narrow[0]) && narrow[1] == -0x1p-149f &&
               narrow[2] == 0x1p-149f && isinf(narrow[3]),
           "f64 to f32 overflows to Inf and keeps denormals");
    tap_ok(!ckpt_place_converts(DTYPE_I32, DTYPE_F32) &&
               !ckpt_place_converts(DTYPE_F64, DTYPE_I32) &&
               ckpt_place_converts(DTYPE_I32, DTYPE_I32),
           "integers are not converted");
}

int main(void)
{
    test_parts();
    test_rounding();
    test_exact();
    return tap_done();
}
