/* Conversions by bits, the same on every machine.
 *
 * bf16 is the upper half of a float; what is cut off decides whether it is
 * rounded up: more than a half does, and a half where the rest is odd. fp16 has
 * another bias (15 in place of 127, hence 112) and 10 bits of fraction. Below
 * 2^-14 its numbers are whole multiples of 2^-24, and from 65520 on, the middle
 * to what would be the next number, it has infinity. A NaN keeps its upper bits
 * and gets the bit that makes it quiet. */
#include "src/formats/safetensors/half.h"

#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float value_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* bits / 2^shift, to nearest, ties to even; shift from 1 to 31. */
static uint32_t shift_round(uint32_t bits, int shift)
{
    uint32_t half = 1u << (shift - 1);
    uint32_t rest = bits & ((half << 1) - 1);
    uint32_t whole = bits >> shift;
    if (rest > half || (rest == half && (whole & 1) != 0))
        whole++;
    return whole;
}

float half_from_bf16(uint16_t bits)
{
    return value_of((uint32_t)bits << 16);
}

uint16_t half_to_bf16(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)shift_round(bits, 16);
}

float half_from_f16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = bits >> 10 & 0x1fu;
    uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0x1f)
        return value_of(sign | 0x7f800000u | fraction << 13);
    if (exponent > 0)
        return value_of(sign | (exponent + 112) << 23 | fraction << 13);
    /* a subnormal is fraction 2^-24, which a float holds exactly */
    float size = (float)fraction * 0x1p-24f;
    return value_of(sign | bits_of(size));
}

uint16_t half_to_f16(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t size = bits & 0x7fffffffu;
    if (size > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (size >> 13 & 0x3ffu));
    if (size >= 0x477ff000u) /* 65520, the middle between 65504 and 65536 */
        return (uint16_t)(sign | 0x7c00u);
    if (size >= 0x38800000u) /* 2^-14, the smallest normal number */
        return (uint16_t)(sign | shift_round(size - (112u << 23), 13));
    if (size < 0x33000000u) /* below 2^-25, half of the smallest */
        return (uint16_t)sign;
    /* counts of 2^-24: the fraction with its leading 1, less what the exponent
     * lacks */
    uint32_t exponent = size >> 23;
    uint32_t fraction = (size & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | shift_round(fraction, 126 - (int)exponent));
}
