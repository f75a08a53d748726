/* A fixed-point number wide enough for all sums of squares of floats, as Kulisch's
 * accumulator is for all products of them (Kulisch, Computer Arithmetic and
 * Validity, 2008, chapter 8).
 *
 * The least square is 2^-298, and all sums of doubles are multiples of it; the
 * largest is below 2^256. Twenty digits of 32 bits hold these with room above.
 * A word has 64 bits for its digit, so that 2^30 values are added, and words of
 * many ranks as well, before anybody has to carry. */
#include "src/base/exact.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define DIGITS 20
#define INFINITIES 20 /* words that count values */
#define NANS 21
#define UNIT (-304) /* exponent of the lowest digit's lowest bit */
#define LIMIT 0x1p300
#define DIGIT_BITS 32
#define DIGIT_MASK 0xffffffffu
#define FRACTION_BITS 52
#define EXPONENT_MASK 0x7ff
#define BIAS 1023

void exact_add(struct exact *sum, double x)
{
    uint64_t bits;
    assert(!(x < 0.0));
    if (!(x < LIMIT)) {
        sum->word[isnan(x) ? NANS : INFINITIES]++;
        return;
    }
    memcpy(&bits, &x, sizeof bits);
    int at = (int)(bits >> FRACTION_BITS & EXPONENT_MASK) - BIAS -
             FRACTION_BITS - UNIT;
    bits &= ((uint64_t)1 << FRACTION_BITS) - 1;
    bits |= (uint64_t)1 << FRACTION_BITS;
    if (at < 0) {
        bits = at > -DIGIT_BITS * 2 ? bits >> -at : 0;
        at = 0;
    }
    uint64_t low = (bits & DIGIT_MASK) << at % DIGIT_BITS;
    uint64_t high = (bits >> DIGIT_BITS) << at % DIGIT_BITS;
    int64_t *word = &sum->word[at / DIGIT_BITS];
    word[0] += (int64_t)(low & DIGIT_MASK);
    word[1] += (int64_t)((low >> DIGIT_BITS) + (high & DIGIT_MASK));
    word[2] += (int64_t)(high >> DIGIT_BITS);
}

/* The 64 bits that begin with the digits' highest, times 2^*exponent; the last
 * one is set as well where any of those that follow is. */
static uint64_t leading(const uint32_t digit[DIGITS], int *exponent)
{
    int top = DIGITS - 1;
    while (top > 1 && digit[top] == 0)
        top--;
    uint64_t bits = (uint64_t)digit[top] << DIGIT_BITS | digit[top - 1];
    uint32_t next = top > 1 ? digit[top - 2] : 0;
    *exponent = (top - 1) * DIGIT_BITS + UNIT;
    for (; bits != 0 && bits >> 63 == 0; next <<= 1, --*exponent)
        bits = bits << 1 | next >> (DIGIT_BITS - 1);
    uint32_t rest = next;
    for (int i = 0; i < top - 2; i++)
        rest |= digit[i];
    return bits | (rest != 0);
}

double exact_value(const struct exact *sum)
{
    uint32_t digit[DIGITS];
    uint64_t carry = 0;
    int exponent;
    for (int i = 0; i < DIGITS; i++) {
        carry += (uint64_t)sum->word[i];
        digit[i] = (uint32_t)carry;
        carry >>= DIGIT_BITS;
    }
    assert(carry == 0);
    if (sum->word[NANS] > 0)
        return NAN;
    if (sum->word[INFINITIES] > 0)
        return INFINITY;
    uint64_t bits = leading(digit, &exponent);
    return ldexp((double)bits, exponent);
}
