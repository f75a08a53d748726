/* Our own sample order: a permutation in every epoch, and a pure function. */
#include "src/data/set/order.h"

#include "tests/tap.h"

/* Epoch `epoch` holds every sample once. */
static bool is_permutation(uint64_t seed, int64_t samples, int64_t epoch)
{
    bool good = true;
    char *seen = calloc((size_t)samples, 1);
    for (int64_t p = 0; p < samples && good; p++) {
        int64_t sample = order_canonical(seed, samples, epoch * samples + p);
        good = sample >= 0 && sample < samples && seen[sample]++ == 0;
    }
    free(seen);
    return good;
}

static void test_permutations(void)
{
    static const int64_t large[] = { 1023,  1024,  1025,  4095,
                                     65536, 65537, 99991, 1 << 20 };
    int bad = 0;
    for (int64_t n = 1; n <= 300; n++)
        for (int64_t epoch = 0; epoch < 4; epoch++)
            bad += !is_permutation(17, n, epoch);
    tap_is_int(bad, 0, "n = 1..300, four epochs each");
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        tap_ok(is_permutation(0xfeedfacecafebeefu, large[i], 5), "n = %lld",
               (long long)large[i]);
    tap_ok(is_permutation(UINT64_MAX, 7, INT64_MAX / 7 - 1), "the last epochs");
}

static void test_huge(void)
{
    static const int64_t huge[] = { ((int64_t)1 << 32) + 1,
                                    ((int64_t)1 << 40) + 7,
                                    ((int64_t)1 << 62) + 1, INT64_MAX };
    for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
        int outside = 0, high = 0;
        for (int64_t p = 0; p < 2000; p++) {
            int64_t sample = order_canonical(3, huge[i], p);
            outside += sample < 0 || sample >= huge[i];
            high += sample >= huge[i] / 2;
        }
        tap_ok(outside == 0 && high > 800 && high < 1200,
               "n = %lld: in range, %d of 2000 in the upper half",
               (long long)huge[i], high);
    }
}

/* Nothing is remembered between calls: backwards gives the same. */
static void test_pure(void)
{
    int64_t forward[3000];
    int bad = 0;
    for (int64_t p = 0; p < 3000; p++)
        forward[p] = order_canonical(99, 1000, p);
    for (int64_t p = 2999; p >= 0; p--)
        bad += order_canonical(99, 1000, p) != forward[p];
    tap_is_int(bad, 0, "the same whatever was asked before");
}

/* How many of 1000 positions have the same sample in both orders; two
 * independent permutations agree in one on average. */
static int agreeing(uint64_t a, uint64_t b, int64_t epoch_b)
{
    int same = 0;
    for (int64_t p = 0; p < 1000; p++)
        same += order_canonical(a, 1000, p) ==
                order_canonical(b, 1000, epoch_b * 1000 + p);
    return same;
}

static void test_keys(void)
{
    tap_ok(agreeing(1, 1, 1) < 10, "epochs differ");
    tap_ok(agreeing(1, 2, 0) < 10, "seeds differ");
    tap_ok(agreeing(1, ((uint64_t)1 << 32) + 1, 0) < 10,
           "all 64 bits of the seed count");
}

/* Over many epochs each sample comes first about equally often: chi-square
 * with 9 degrees of freedom, which is below 27.9 with probability 0.999. */
static void test_uniform(void)
{
    int count[10] = { 0 };
    double chi2 = 0;
    for (int64_t epoch = 0; epoch < 10000; epoch++)
        count[order_canonical(5, 10, epoch * 10)]++;
    for (int i = 0; i < 10; i++)
        chi2 += (count[i] - 1000.0) * (count[i] - 1000.0) / 1000.0;
    tap_ok(chi2 < 27.9, "first samples are uniform: chi-square %.1f", chi2);
}

/* A run that is resumed depends on these: they never change. Computed by an
 * independent program from the description in order.h. */
static void test_fixed(void)
{
    static const int64_t want[] = { 15, 58, 89, 38, 40, 91,
                                    71, 31, 28, 3,  96, 11 };
    const int64_t many = ((int64_t)1 << 40) + 7;
    for (int p = 0; p < (int)(sizeof want / sizeof want[0]); p++)
        tap_is_int(order_canonical(17, 100, 95 + p), want[p], "position %d",
                   95 + p);
    tap_is_int(order_canonical(0x123456789abcdef0u, many, 12345), 395280774607,
               "of many samples");
    tap_is_int(
        order_canonical(0x123456789abcdef0u, many, ((int64_t)3 << 40) + 1),
        162755878653, "of many samples, a later epoch");
}

int main(void)
{
    test_permutations();
    test_huge();
    test_pure();
    test_keys();
    test_uniform();
    test_fixed();
    return tap_done();
}
