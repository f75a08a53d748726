/* How GGUF files store numbers: types of tensors, whose numbers lie in blocks
 * of a fixed number of bytes, and floats out of them and back.
 *
 * Floats out of blocks are those of the gguf package of Python, bit for bit (a
 * NaN is a NaN, of some payload): every product and sum is rounded to a float,
 * in its order. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers are those of files. */
enum gguf_blocks_type {
    GGUF_BLOCKS_F32 = 0,
    GGUF_BLOCKS_F16 = 1,
    GGUF_BLOCKS_Q4_0 = 2,
    GGUF_BLOCKS_Q4_1 = 3,
    GGUF_BLOCKS_Q5_0 = 6,
    GGUF_BLOCKS_Q5_1 = 7,
    GGUF_BLOCKS_Q8_0 = 8,
    GGUF_BLOCKS_Q4_K = 12,
    GGUF_BLOCKS_Q5_K = 13,
    GGUF_BLOCKS_Q6_K = 14,
    GGUF_BLOCKS_BF16 = 30
};

#define GGUF_BLOCKS_NAMES                                                      \
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K"

/* The most numbers that a block of any type holds. */
#define GGUF_BLOCKS_NUMBERS_MAX 256

struct gguf_blocks_layout {
    unsigned numbers, bytes; /* of one block */
    void (*read)(const uint8_t *block, float *out);
};

/* NULL: numbers of this type cannot be read here. */
const struct gguf_blocks_layout *gguf_blocks_layout(uint32_t type);
/* Also of types that cannot be read; "?" for one that is not known. */
const char *gguf_blocks_name(uint32_t type);

/* The numbers of `count` blocks of a type that can be read. `blocks` need not
 * be aligned. */
void gguf_blocks_read(enum gguf_blocks_type type, const void *blocks,
                      size_t count, float *out);

/* `count` blocks of a type that can be written, as the gguf package and
 * llama.cpp make them. Returns how many numbers the type cannot hold: those too
 * large for it, which become infinite, and with Q8_0 all of a block that has
 * such a number, an infinity or a NaN, which become NaN. */
size_t gguf_blocks_write(enum gguf_blocks_type type, const float *numbers,
                         size_t count, void *blocks);
