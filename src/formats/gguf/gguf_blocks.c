/* Numbers of GGUF files: the layouts of their blocks.
 *
 * Few bits a number are enough if neighbours share a scale: a block has so many
 * whole numbers of 4 to 8 bits and one fp16 factor (Q4_0, Q8_0), or a factor
 * and an offset (Q4_1, Q5_1). The K kinds share twice: 256 numbers have one
 * fp16 pair, and each 16 or 32 of them a scale of 6 to 8 bits under it. Where
 * which bit lies is ggml's (ggml-common.h):
 *
 *   Q8_0  f16 d; i8 q[32]                              d q
 *   Q4_0  f16 d; u4 q[32]                              d (q - 8)
 *   Q4_1  f16 d, m; u4 q[32]                           d q + m
 *   Q5_0  f16 d; u1 h[32]; u4 q[32]                    d (16 h + q - 16)
 *   Q5_1  f16 d, m; u1 h[32]; u4 q[32]                 d (16 h + q) + m
 *   Q4_K  f16 d, m; u6 s[8], l[8]; u4 q[256]           d s q - m l
 *   Q5_K  f16 d, m; u6 s[8], l[8]; u1 h[256]; u4 ..    d s (16 h + q) - m l
 *   Q6_K  u4 q[256]; u2 h[256]; i8 s[16]; f16 d        d s (16 h + q - 32)
 *
 * Of two numbers in a byte of the small kinds the low half is number i and the
 * high half number i + 16. Products are rounded one by one, in the order of
 * Python's gguf package, whose floats these are bit for bit. */
#include "src/formats/gguf/gguf_blocks.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "src/formats/safetensors/half.h"

#define SMALL 32 /* numbers of a block */
#define LARGE 256
#define SCALES 12 /* bytes of the scales of Q4_K and Q5_K */

static const char *const blocks_names[] = {
    [0] = "F32",      [1] = "F16",     [2] = "Q4_0",     [3] = "Q4_1",
    [6] = "Q5_0",     [7] = "Q5_1",    [8] = "Q8_0",     [9] = "Q8_1",
    [10] = "Q2_K",    [11] = "Q3_K",   [12] = "Q4_K",    [13] = "Q5_K",
    [14] = "Q6_K",    [15] = "Q8_K",   [16] = "IQ2_XXS", [17] = "IQ2_XS",
    [18] = "IQ3_XXS", [19] = "IQ1_S",  [20] = "IQ4_NL",  [21] = "IQ3_S",
    [22] = "IQ2_S",   [23] = "IQ4_XS", [24] = "I8",      [25] = "I16",
    [26] = "I32",     [27] = "I64",    [28] = "F64",     [29] = "IQ1_M",
    [30] = "BF16",    [34] = "TQ1_0",  [35] = "TQ2_0",   [39] = "MXFP4",
    [40] = "NVFP4",
};

const char *gguf_blocks_name(uint32_t type)
{
    return type < sizeof blocks_names / sizeof *blocks_names &&
                   blocks_names[type] != NULL
               ? blocks_names[type]
               : "?";
}

static uint16_t blocks_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static void blocks_put_u16(uint8_t *at, uint16_t bits)
{
    at[0] = (uint8_t)bits;
    at[1] = (uint8_t)(bits >> 8);
}

static float blocks_f16(const uint8_t *at)
{
    return half_from_f16(blocks_u16(at));
}

/* Nibble `i` of 16 bytes: the low ones first. */
static unsigned blocks_nibble(const uint8_t *at, int i)
{
    return i < SMALL / 2 ? at[i] & 0xFu : (unsigned)at[i - SMALL / 2] >> 4;
}

static void blocks_read_q4_0(const uint8_t *block, float *out)
{
    float scale = blocks_f16(block);
    for (int i = 0; i < SMALL; i++)
        out[i] = scale * (float)((int)blocks_nibble(block + 2, i) - 8);
}

static void blocks_read_q4_1(const uint8_t *block, float *out)
{
    float scale = blocks_f16(block), least = blocks_f16(block + 2);
    for (int i = 0; i < SMALL; i++)
        out[i] = scale * (float)blocks_nibble(block + 4, i) + least;
}

/* The fifth bit of number `i`. */
static unsigned blocks_fifth(const uint8_t *at, int i)
{
    return (at[i / 8] >> i % 8 & 1u) << 4;
}

static void blocks_read_q5_0(const uint8_t *block, float *out)
{
    float scale = blocks_f16(block);
    for (int i = 0; i < SMALL; i++) {
        unsigned q = blocks_nibble(block + 6, i) | blocks_fifth(block + 2, i);
        out[i] = scale * (float)((int)q - 16);
    }
}

static void blocks_read_q5_1(const uint8_t *block, float *out)
{
    float scale = blocks_f16(block), least = blocks_f16(block + 2);
    for (int i = 0; i < SMALL; i++) {
        unsigned q = blocks_nibble(block + 8, i) | blocks_fifth(block + 4, i);
        out[i] = scale * (float)q + least;
    }
}

static void blocks_read_q8_0(const uint8_t *block, float *out)
{
    float scale = blocks_f16(block);
    for (int i = 0; i < SMALL; i++)
        out[i] = (float)(int8_t)block[2 + i] * scale;
}

/* The scale and the least number of part `part` of 8 in a block of Q4_K or
 * Q5_K, of 6 bits each: those of the first four parts are the low bits of bytes
 * 0 to 3 and 4 to 7; of the others the low four bits are in bytes 8 to 11, and
 * the high two where the first bytes have them to spare. */
static void blocks_scales(const uint8_t *scales, int part, unsigned *scale,
                          unsigned *least)
{
    if (part < 4) {
        *scale = scales[part] & 0x3Fu;
        *least = scales[part + 4] & 0x3Fu;
        return;
    }
    *scale = (scales[part + 4] & 0xFu) | (scales[part - 4] >> 2 & 0x30u);
    *least = (unsigned)scales[part + 4] >> 4 | (scales[part] >> 2 & 0x30u);
}

/* Q4_K, and Q5_K if there are fifth bits. */
static void blocks_read_k(const uint8_t *block, const uint8_t *fifth,
                          const uint8_t *nibbles, float *out)
{
    float d = blocks_f16(block), d_least = blocks_f16(block + 2);
    for (int part = 0; part < LARGE / SMALL; part++) {
        unsigned part_scale = 0, part_least = 0;
        blocks_scales(block + 4, part, &part_scale, &part_least);
        float scale = d * (float)part_scale;
        float least = d_least * (float)part_least;
        for (int i = 0; i < SMALL; i++) {
            unsigned q = nibbles[part / 2 * SMALL + i] >> part % 2 * 4 & 0xFu;
            if (fifth != NULL)
                q |= (fifth[i] >> part & 1u) << 4;
            out[part * SMALL + i] = scale * (float)q - least;
        }
    }
}

static void blocks_read_q6_k(const uint8_t *block, float *out)
{
    const uint8_t *high = block + 128, *scales = high + 64;
    float d = blocks_f16(scales + 16);
    for (int i = 0; i < LARGE; i++) {
        int half = i / 128, part = i / SMALL % 4, at = i % SMALL;
        unsigned q = block[half * 64 + part % 2 * SMALL + at] >> part / 2 * 4;
        q = (q & 0xFu) | (high[half * SMALL + at] >> part * 2 & 3u) << 4;
        float scale = d * (float)(int8_t)scales[i / 16];
        out[i] = scale * (float)((int)q - 32);
    }
}

static void blocks_read_f32(const uint8_t *block, float *out)
{
    memcpy(out, block, sizeof *out);
}

static void blocks_read_f16(const uint8_t *block, float *out)
{
    *out = blocks_f16(block);
}

static void blocks_read_bf16(const uint8_t *block, float *out)
{
    *out = half_from_bf16(blocks_u16(block));
}

static void blocks_read_q4_k(const uint8_t *block, float *out)
{
    blocks_read_k(block, NULL, block + 4 + SCALES, out);
}

static void blocks_read_q5_k(const uint8_t *block, float *out)
{
    blocks_read_k(block, block + 4 + SCALES, block + 4 + SCALES + 32, out);
}

static const struct gguf_blocks_layout blocks_layouts[] = {
    [GGUF_BLOCKS_F32] = { 1, 4, blocks_read_f32 },
    [GGUF_BLOCKS_F16] = { 1, 2, blocks_read_f16 },
    /* d, q; d, m, q; d, h, q; d, m, h, q; d, q */
    [GGUF_BLOCKS_Q4_0] = { SMALL, 2 + 16, blocks_read_q4_0 },
    [GGUF_BLOCKS_Q4_1] = { SMALL, 4 + 16, blocks_read_q4_1 },
    [GGUF_BLOCKS_Q5_0] = { SMALL, 2 + 4 + 16, blocks_read_q5_0 },
    [GGUF_BLOCKS_Q5_1] = { SMALL, 4 + 4 + 16, blocks_read_q5_1 },
    [GGUF_BLOCKS_Q8_0] = { SMALL, 2 + 32, blocks_read_q8_0 },
    /* d, m, s l, q; d, m, s l, h, q; q, h, s, d */
    [GGUF_BLOCKS_Q4_K] = { LARGE, 4 + SCALES + 128, blocks_read_q4_k },
    [GGUF_BLOCKS_Q5_K] = { LARGE, 4 + SCALES + 32 + 128, blocks_read_q5_k },
    [GGUF_BLOCKS_Q6_K] = { LARGE, 128 + 64 + 16 + 2, blocks_read_q6_k },
    [GGUF_BLOCKS_BF16] = { 1, 2, blocks_read_bf16 },
};

const struct gguf_blocks_layout *gguf_blocks_layout(uint32_t type)
{
    return type < sizeof blocks_layouts / sizeof *blocks_layouts &&
                   blocks_layouts[type].read != NULL
               ? &blocks_layouts[type]
               : NULL;
}

void gguf_blocks_read(enum gguf_blocks_type type, const void *blocks,
                      size_t count, float *out)
{
    const struct gguf_blocks_layout *layout = gguf_blocks_layout(type);
    assert(layout != NULL);
    const uint8_t *block = blocks;
    for (size_t b = 0; b < count; b++)
        layout->read(block + b * layout->bytes, out + b * layout->numbers);
}

/* F32, F16, BF16 and Q8_0 can be written. */
static bool gguf_blocks_writes(enum gguf_blocks_type type)
{
    return type == GGUF_BLOCKS_F32 || type == GGUF_BLOCKS_F16 ||
           type == GGUF_BLOCKS_BF16 || type == GGUF_BLOCKS_Q8_0;
}

/* A block of Q8_0; how many numbers it cannot hold. The largest number is 127
 * of the scale, and all are divided by the scale before that is rounded to 16
 * bits, as ggml does it. */
static size_t blocks_write_q8_0(const float *numbers, uint8_t *block)
{
    float most = 0;
    bool finite = true;
    for (int i = 0; i < SMALL; i++) {
        most = fmaxf(most, fabsf(numbers[i]));
        finite = finite && isfinite(numbers[i]);
    }
    float scale = most / 127;
    uint16_t half = half_to_f16(scale);
    if (!finite || half == 0x7C00) {
        memset(block, 0, 2 + SMALL);
        blocks_put_u16(block, 0x7E00);
        return SMALL;
    }
    /* of a scale whose inverse is no float the half is 0 as well, so that what
     * is multiplied by it does not matter */
    float inverse = scale == 0 ? 0 : 1 / scale;
    if (!isfinite(inverse))
        inverse = 0;
    blocks_put_u16(block, half);
    for (int i = 0; i < SMALL; i++)
        block[2 + i] = (uint8_t)(int8_t)roundf(numbers[i] * inverse);
    return 0;
}

size_t gguf_blocks_write(enum gguf_blocks_type type, const float *numbers,
                         size_t count, void *blocks)
{
    const struct gguf_blocks_layout *layout = gguf_blocks_layout(type);
    assert(gguf_blocks_writes(type) && layout != NULL);
    uint8_t *block = blocks;
    size_t lost = 0;
    for (size_t b = 0; b < count; b++, block += layout->bytes) {
        float x = numbers[b * layout->numbers];
        uint16_t bits = 0;
        if (type == GGUF_BLOCKS_Q8_0) {
            lost += blocks_write_q8_0(numbers + b * SMALL, block);
        } else if (type == GGUF_BLOCKS_F32) {
            memcpy(block, &x, sizeof x);
        } else if (type == GGUF_BLOCKS_F16) {
            bits = half_to_f16(x);
            lost += isfinite(x) && (bits & 0x7C00) == 0x7C00;
            blocks_put_u16(block, bits);
        } else {
            bits = half_to_bf16(x);
            lost += isfinite(x) && (bits & 0x7F80) == 0x7F80;
            blocks_put_u16(block, bits);
        }
    }
    return lost;
}
