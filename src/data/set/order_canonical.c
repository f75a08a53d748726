/* The sample at a position of the shuffled stream, computed and not stored.
 *
 * A stored permutation of 10^9 samples would be 8 GB on every rank, and a
 * resume would have to make it again. A Feistel network (Luby and Rackoff 1988)
 * of a few rounds over the bits of the position is a permutation of [0, 2^2h)
 * whatever its round function is; here that is Philox, keyed by the seed and
 * counted by the epoch. Positions that land beyond the number of samples are
 * sent through once more until they land below it, which keeps it a permutation
 * (cycle walking: Black and Rogaway 2002). */
#include "src/data/set/order_canonical.h"

#include <assert.h>

#include "src/base/rng.h"

#define ORDER_CANONICAL_ROUNDS 8

/* Bits of half a block: the smallest h with 2^2h >= samples. */
static unsigned order_canonical_half_bits(uint64_t samples)
{
    unsigned half = 0;
    while (half < 32 && (samples - 1) >> (2 * half) != 0)
        half++;
    return half;
}

static uint64_t order_canonical_feistel(uint64_t seed, uint64_t epoch,
                                        unsigned half, uint64_t value)
{
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    const uint32_t mask = (uint32_t)(((uint64_t)1 << half) - 1);
    uint32_t left = (uint32_t)(value >> half);
    uint32_t right = (uint32_t)value & mask;
    for (uint32_t round = 0; round < ORDER_CANONICAL_ROUNDS; round++) {
        const uint32_t counter[4] = { right, round, (uint32_t)epoch,
                                      (uint32_t)(epoch >> 32) };
        uint32_t random[4];
        rng_philox(key, counter, random);
        uint32_t next = left ^ (random[0] & mask);
        left = right;
        right = next;
    }
    return (uint64_t)left << half | right;
}

int64_t order_canonical(uint64_t seed, int64_t samples, int64_t position)
{
    assert(samples > 0 && position >= 0);
    uint64_t count = (uint64_t)samples;
    uint64_t epoch = (uint64_t)position / count;
    uint64_t value = (uint64_t)position % count;
    unsigned half = order_canonical_half_bits(count);
    /* A permutation of the larger domain, walked along its cycle until it
     * returns below `samples`, is one of the smaller. The domain is less than
     * four times as large, so this takes less than four turns on average. */
    do
        value = order_canonical_feistel(seed, epoch, half, value);
    while (value >= count);
    return (int64_t)value;
}
