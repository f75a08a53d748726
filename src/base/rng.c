/* Random numbers by Philox (Salmon et al., Parallel random numbers: as easy as
 * 1, 2, 3, 2011).
 *
 * It is a block cipher of ten cheap rounds, used in counter mode: each draw is
 * a function of key and counter. So there is no state to save in a checkpoint,
 * no order in which threads or ranks must draw, and element i of a tensor is
 * the same on whichever rank it lies. The key is the run's seed; the counter
 * says for what the draw is (stream) and which one (index). */
#include "src/base/rng.h"

#include <assert.h>
#include <math.h>

#include "src/base/real.h"

#define RNG_ROUNDS 10
#define RNG_PI 3.14159265358979323846
/* Shorter fills are not worth waking the threads. */
#define RNG_FILL_MIN 4096

void rng_philox(const uint32_t key[2], const uint32_t counter[4],
                uint32_t out[4])
{
    uint32_t k0 = key[0];
    uint32_t k1 = key[1];
    uint32_t c0 = counter[0];
    uint32_t c1 = counter[1];
    uint32_t c2 = counter[2];
    uint32_t c3 = counter[3];
    /* a round multiplies two words, crosses high and low halves, and adds a key
     * that goes on by two odd constants, of the golden ratio and of sqrt(3) */
    for (int round = 0; round < RNG_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0;
        uint64_t p1 = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static void rng_block(uint64_t seed, uint64_t stream, uint64_t index,
                      uint64_t out[2])
{
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    const uint32_t counter[4] = { (uint32_t)index, (uint32_t)(index >> 32),
                                  (uint32_t)stream, (uint32_t)(stream >> 32) };
    uint32_t words[4];
    rng_philox(key, counter, words);
    out[0] = words[0] | (uint64_t)words[1] << 32;
    out[1] = words[2] | (uint64_t)words[3] << 32;
}

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint64_t block[2];
    rng_block(seed, stream, index, block);
    return block[0];
}

double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(rng_u64(seed, stream, index) >> 11) * 0x1p-53;
}

/* Box and Muller 1958: a radius of which the square is exponential, and an angle
 * that is uniform, make a point whose coordinates are normal. The other
 * coordinate is thrown away: a draw is one index, and one index one block. */
double rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint64_t block[2];
    rng_block(seed, stream, index, block);
    /* in (0, 1], so that the logarithm is finite */
    double radius = (double)((block[0] >> 11) + 1) * 0x1p-53;
    double turn = (double)(block[1] >> 11) * 0x1p-53;
    return sqrt(-2 * real_log(radius)) * real_cos(2 * RNG_PI * turn);
}

void rng_fill_normal(uint64_t seed, uint64_t stream, uint64_t first,
                     int64_t count, float scale, float *out)
{
    assert(count >= 0);
    /* every element is a function of its index: threads change no bit */
#pragma omp parallel for schedule(static) if (count >= RNG_FILL_MIN)
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)((double)scale *
                         rng_normal(seed, stream, first + (uint64_t)i));
}

/* The FNV-1a hash of 64 bits: so few names need no better one, and its two
 * constants are easily told to another program that has to draw the same. */
uint64_t rng_stream(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *p = name; *p != '\0'; p++)
        hash = (hash ^ (unsigned char)*p) * 0x100000001b3u;
    return hash;
}
