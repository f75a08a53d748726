/* Numbers of 16 bits: bf16, the upper half of a float, and IEEE 754's binary16
 * (fp16). To a float both convert without loss; from one they are rounded to
 * nearest, ties to even. A NaN stays one, quiet, with its sign. */
#pragma once

#include <stdint.h>

float half_from_bf16(uint16_t bits);
float half_from_f16(uint16_t bits);
uint16_t half_to_bf16(float value);
uint16_t half_to_f16(float value);
