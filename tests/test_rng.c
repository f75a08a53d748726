#include "src/base/rng.h"

#include "tests/tap.h"

/* The known answers that Random123 publishes for philox4x32-10. */
static void test_known_answers(void)
{
    static const struct {
        uint32_t counter[4];
        uint32_t key[2];
        uint32_t want[4];
    } cases[] = {
        { { 0, 0, 0, 0 },
          { 0, 0 },
          { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t out[4];
        rng_philox(cases[i].key, cases[i].counter, out);
        for (int j = 0; j < 4; j++)
            tap_is_int(out[j], cases[i].want[j], "known answer %zu word %d", i,
                       j);
    }
    /* seed is the key, index and stream are the counter, low words first */
    tap_ok(rng_u64(0x299f31d0a4093822, 0x0370734413198a2e,
                   0x85a308d3243f6a88) == 0x94fdccebd16cfe09,
           "u64 places seed, stream and index");
    uint64_t base = rng_u64(1, 2, 3);
    tap_ok(base != rng_u64(2, 2, 3) && base != rng_u64(1, 3, 3) &&
               base != rng_u64(1, 2, 4),
           "seed, stream and index all matter");
}

static void test_uniform(void)
{
    enum { COUNT = 200000 };
    double sum = 0;
    double squares = 0;
    double low = 1;
    double high = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        double u = rng_uniform(17, 5, i);
        sum += u;
        squares += u * u;
        low = fmin(low, u);
        high = fmax(high, u);
    }
    double mean = sum / COUNT;
    tap_ok(low >= 0 && high < 1, "uniform lies in [0, 1)");
    tap_is_close(mean, 0.5, 0.003, "mean of uniform");
    tap_is_close(squares / COUNT - mean * mean, 1.0 / 12, 0.002,
                 "variance of uniform");
}

static void test_normal(void)
{
    enum { COUNT = 200000 };
    double moments[5] = { 0 };
    double lagged = 0;
    double last = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        double x = rng_normal(17, 6, i);
        double power = 1;
        for (int k = 1; k <= 4; k++)
            moments[k] += (power *= x) / COUNT;
        lagged += x * last / COUNT;
        last = x;
    }
    tap_is_close(moments[1], 0, 0.01, "mean of normal");
    tap_is_close(moments[2], 1, 0.015, "variance of normal");
    tap_is_close(moments[3], 0, 0.04, "third moment of normal");
    tap_is_close(moments[4], 3, 0.04, "fourth moment of normal");
    tap_is_close(lagged, 0, 0.01, "neighbours are not correlated");
}

static void test_fill(void)
{
    enum { COUNT = 10000 };
    float *whole = malloc(COUNT * sizeof *whole);
    float *parts = malloc(COUNT * sizeof *parts);
    if (!tap_ok(whole != NULL && parts != NULL, "memory for the fill"))
        goto out;
    rng_fill_normal(3, 4, 100, COUNT, 0.02f, whole);
    rng_fill_normal(3, 4, 100, 77, 0.02f, parts);
    rng_fill_normal(3, 4, 177, COUNT - 77, 0.02f, parts + 77);
    tap_ok(memcmp(whole, parts, COUNT * sizeof *whole) == 0,
           "a fill in parts gives the same bits");
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        double want = (double)0.02f * rng_normal(3, 4, 100 + (uint64_t)i);
        wrong += whole[i] != (float)want;
    }
    tap_is_int(wrong, 0, "a fill is scaled single draws");
    parts[0] = 5;
    rng_fill_normal(3, 4, 0, 0, 1, parts);
    tap_ok(parts[0] == 5, "an empty fill writes nothing");
out:
    free(whole);
    free(parts);
}

int main(void)
{
    test_known_answers();
    test_uniform();
    test_normal();
    test_fill();
    /* the published FNV-1a 64 values */
    tap_ok(rng_stream("") == 0xcbf29ce484222325u, "stream of the empty name");
    tap_ok(rng_stream("a") == 0xaf63dc4c8601ec8cu, "stream of 'a'");
    tap_ok(rng_stream("foobar") == 0x85944171f73967e8u, "stream of 'foobar'");
    return tap_done();
}
