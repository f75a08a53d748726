/* NumPy's generator and its draws; what follows from what is in the header.
 *
 * Streaming shuffles with NumPy, so its orders can only be had with the same
 * bits drawn in the same sequence. Three layers: SeedSequence hashes the seed
 * into a pool and fills the state from it; PCG64 is a 128-bit linear
 * congruential generator (state * factor + increment) of which each output
 * folds the two halves by XOR and rotates them by the top six bits (XSL-RR); on
 * top are the ways to a number below a limit, of which NumPy has two that draw
 * differently: by masks and rejection where shuffle() and permutation() are
 * concerned, by Lemire's multiplication in integers() and choice(). Constants
 * are NumPy's (numpy/random/bit_generator.pyx and src/pcg64). */
#include "src/data/set/numpy_rng.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"

__extension__ typedef unsigned __int128 numpy_u128;

/* SeedSequence: a pool of 32-bit words, into which the seed is hashed. */
#define NUMPY_POOL 4

static uint32_t numpy_rng_hash(uint32_t value, uint32_t *constant)
{
    value ^= *constant;
    *constant *= 0x931e8875u;
    value *= *constant;
    return value ^ value >> 16;
}

static uint32_t numpy_rng_mix(uint32_t x, uint32_t y)
{
    uint32_t mixed = 0xca01f9ddu * x - 0x4973f715u * y;
    return mixed ^ mixed >> 16;
}

/* Four words of 64 bits from the seed. */
static void numpy_rng_spread(uint64_t seed, uint64_t out[4])
{
    const uint32_t entropy[NUMPY_POOL] = { (uint32_t)seed,
                                           (uint32_t)(seed >> 32), 0, 0 };
    uint32_t pool[NUMPY_POOL];
    uint32_t words[8];
    uint32_t constant = 0x43b0d7e5u;
    for (int i = 0; i < NUMPY_POOL; i++)
        pool[i] = numpy_rng_hash(entropy[i], &constant);
    /* every word of the pool is mixed into every other one */
    for (int from = 0; from < NUMPY_POOL; from++)
        for (int to = 0; to < NUMPY_POOL; to++)
            if (from != to)
                pool[to] = numpy_rng_mix(pool[to],
                                         numpy_rng_hash(pool[from], &constant));
    /* out of the pool again, with other constants: eight words */
    constant = 0x8b51f9ddu;
    for (int i = 0; i < 8; i++) {
        uint32_t value = pool[i % NUMPY_POOL] ^ constant;
        constant *= 0x58f38dedu;
        value *= constant;
        words[i] = value ^ value >> 16;
    }
    for (int i = 0; i < 4; i++)
        out[i] = (uint64_t)words[2 * i + 1] << 32 | words[2 * i];
}

static numpy_u128 numpy_rng_wide(uint64_t high, uint64_t low)
{
    return (numpy_u128)high << 64 | low;
}

static void numpy_rng_step(struct numpy_rng *rng, numpy_u128 add)
{
    const numpy_u128 factor =
        numpy_rng_wide(0x2360ed051fc65da4u, 0x4385df649fccf645u);
    numpy_u128 state = numpy_rng_wide(rng->state[1], rng->state[0]) + add;
    state =
        state * factor + numpy_rng_wide(rng->increment[1], rng->increment[0]);
    rng->state[0] = (uint64_t)state;
    rng->state[1] = (uint64_t)(state >> 64);
}

void numpy_rng_seed(struct numpy_rng *rng, uint64_t seed)
{
    uint64_t words[4];
    numpy_rng_spread(seed, words);
    numpy_u128 increment = numpy_rng_wide(words[2], words[3]) << 1 | 1;
    memset(rng, 0, sizeof *rng);
    rng->increment[0] = (uint64_t)increment;
    rng->increment[1] = (uint64_t)(increment >> 64);
    /* the increment has to be odd for the full period; the seed enters between
     * two steps, as in PCG's own seeding */
    numpy_rng_step(rng, 0);
    numpy_rng_step(rng, numpy_rng_wide(words[0], words[1]));
}

static uint64_t numpy_rng_u64(struct numpy_rng *rng)
{
    numpy_rng_step(rng, 0);
    uint64_t value = rng->state[0] ^ rng->state[1];
    unsigned turn = (unsigned)(rng->state[1] >> 58);
    return value >> turn | value << ((64 - turn) & 63);
}

static uint32_t numpy_rng_u32(struct numpy_rng *rng)
{
    rng->has_half = !rng->has_half;
    if (!rng->has_half)
        return rng->half;
    uint64_t value = numpy_rng_u64(rng);
    rng->half = (uint32_t)(value >> 32);
    return (uint32_t)value;
}

double numpy_rng_uniform(struct numpy_rng *rng, double low, double high)
{
    /* 53 bits in [0, 1), NumPy's random() */
    double random =
        (double)(numpy_rng_u64(rng) >> 11) * (1.0 / 9007199254740992.0);
    return low + (high - low) * random;
}

/* Lemire's way ("Fast Random Integer Generation in an Interval", 2019):
 * 0 <= x <= max, in as many bits as max needs. The high half of draw * count is
 * the number; the low halves below 2^bits mod count would come once too often
 * for some numbers, and are drawn again. */
static uint64_t numpy_rng_bounded(struct numpy_rng *rng, uint64_t max)
{
    if (max == 0)
        return 0;
    if (max == UINT32_MAX)
        return numpy_rng_u32(rng);
    if (max == UINT64_MAX)
        return numpy_rng_u64(rng);
    if (max < UINT32_MAX) {
        uint32_t count = (uint32_t)max + 1;
        uint32_t least = -count % count;
        uint64_t product = (uint64_t)numpy_rng_u32(rng) * count;
        while ((uint32_t)product < least)
            product = (uint64_t)numpy_rng_u32(rng) * count;
        return product >> 32;
    }
    uint64_t count = max + 1;
    uint64_t least = -count % count;
    numpy_u128 product = (numpy_u128)numpy_rng_u64(rng) * count;
    while ((uint64_t)product < least)
        product = (numpy_u128)numpy_rng_u64(rng) * count;
    return (uint64_t)(product >> 64);
}

int64_t numpy_rng_integers(struct numpy_rng *rng, int64_t low, int64_t high)
{
    assert(low < high);
    uint64_t max = (uint64_t)high - 1 - (uint64_t)low;
    return (int64_t)((uint64_t)low + numpy_rng_bounded(rng, max));
}

/* The smallest 2^k - 1 that is not below. */
static uint64_t numpy_rng_mask(uint64_t max)
{
    for (int shift = 1; shift < 64; shift *= 2)
        max |= max >> shift;
    return max;
}

int64_t numpy_rng_interval(struct numpy_rng *rng, int64_t i)
{
    assert(i >= 0);
    uint64_t max = (uint64_t)i;
    uint64_t mask = numpy_rng_mask(max);
    uint64_t value = 0;
    if (max == 0)
        return 0;
    do
        value = (max <= UINT32_MAX ? numpy_rng_u32(rng) : numpy_rng_u64(rng)) &
                mask;
    while (value > max);
    return (int64_t)value;
}

static void numpy_rng_swap(int64_t *values, int64_t i, int64_t j)
{
    int64_t value = values[i];
    values[i] = values[j];
    values[j] = value;
}

void numpy_rng_shuffle(struct numpy_rng *rng, int64_t *values, int64_t count)
{
    for (int64_t i = count - 1; i > 0; i--)
        numpy_rng_swap(values, i, numpy_rng_interval(rng, i));
}

void numpy_rng_permutation(struct numpy_rng *rng, int64_t count, int64_t *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = i;
    numpy_rng_shuffle(rng, out, count);
}

/* The end of a shuffle as choice() draws it, down to position `first`. */
static void numpy_rng_shuffle_end(struct numpy_rng *rng, int64_t *values,
                                  int64_t count, int64_t first)
{
    for (int64_t i = count - 1; i >= first; i--)
        numpy_rng_swap(values, i, (int64_t)numpy_rng_bounded(rng, (uint64_t)i));
}

static enum err numpy_rng_choose_end(struct numpy_rng *rng, int64_t population,
                                     int64_t count, int64_t *out)
{
    int64_t *all = NULL;
    int64_t first = population - count;
    TRY(new_room(&all, (size_t)population));
    for (int64_t i = 0; i < population; i++)
        all[i] = i;
    numpy_rng_shuffle_end(rng, all, population, first > 1 ? first : 1);
    memcpy(out, all + first, (size_t)count * sizeof *out);
    free(all);
    return ERR_OK;
}

/* Floyd's way: value j, or what was drawn instead of it, with a hash table of
 * what is taken. */
static enum err numpy_rng_choose_few(struct numpy_rng *rng, int64_t population,
                                     int64_t count, int64_t *out)
{
    uint64_t mask = numpy_rng_mask((uint64_t)(1.2 * (double)count));
    int64_t *taken = NULL;
    TRY(new_room(&taken, (size_t)(mask + 1)));
    for (uint64_t i = 0; i <= mask; i++)
        taken[i] = -1;
    for (int64_t i = 0; i < count; i++) {
        int64_t j = population - count + i;
        int64_t value = (int64_t)numpy_rng_bounded(rng, (uint64_t)j);
        uint64_t at = (uint64_t)value & mask;
        while (taken[at] != -1 && taken[at] != value)
            at = (at + 1) & mask;
        if (taken[at] == value) {
            value = j;
            at = (uint64_t)value & mask;
            while (taken[at] != -1)
                at = (at + 1) & mask;
        }
        taken[at] = value;
        out[i] = value;
    }
    free(taken);
    numpy_rng_shuffle_end(rng, out, count, 1);
    return ERR_OK;
}

enum err numpy_rng_choice(struct numpy_rng *rng, int64_t population,
                          int64_t count, int64_t *out)
{
    assert(count >= 0 && count <= population);
    /* NumPy's own limit between a tail shuffle and Floyd's set */
    return population > 10000 && count > population / 50
               ? numpy_rng_choose_end(rng, population, count, out)
               : numpy_rng_choose_few(rng, population, count, out);
}
