/* Our own order of one data set: a pure function of (seed, samples, position).
 *
 * Position p of the endless sample stream lies in epoch p / samples; within an
 * epoch samples appear in the order of a keyed permutation: a Feistel network
 * of 8 rounds over the smallest even-bit domain that holds `samples`, round
 * function Philox4x32-10 keyed by (seed, epoch), with cycle walking. O(1) per
 * sample, no state. */
#pragma once

#include <stdint.h>

/* Sample index in [0, samples) at stream position >= 0; samples > 0. */
int64_t order_canonical(uint64_t seed, int64_t samples, int64_t position);
