/* CRC32C by the processor's instruction, or by a table where it has none.
 *
 * The instruction takes 3 cycles but a new one can start in each, so long
 * buffers run as four streams: three would do, the fourth fills the gaps. With
 * c0 to c3 the remainders of four adjacent blocks of B bytes, the whole is
 * c0 x^(24B) + c1 x^(16B) + c2 x^(8B) + c3 modulo the polynomial. A carry-less
 * product by x^(8B-33) followed by the instruction (which multiplies by x^32
 * and reduces; reflected products are one bit short) gives such a term in two
 * instructions. */
#include "src/base/digest.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* The table is linear in the index: an entry is the sum of the entries of the
 * index's bits, so the compiler can build it from eight numbers. */
#define T1(i)                                                                  \
    (((i)&1 ? 0xf26b8303u : 0) ^ ((i)&2 ? 0xe13b70f7u : 0) ^                   \
     ((i)&4 ? 0xc79a971fu : 0) ^ ((i)&8 ? 0x8ad958cfu : 0) ^                   \
     ((i)&16 ? 0x105ec76fu : 0) ^ ((i)&32 ? 0x20bd8edeu : 0) ^                 \
     ((i)&64 ? 0x417b1dbcu : 0) ^ ((i)&128 ? 0x82f63b78u : 0))
#define T4(i) T1(i), T1((i) + 1), T1((i) + 2), T1((i) + 3)
#define T16(i) T4(i), T4((i) + 4), T4((i) + 8), T4((i) + 12)
#define T64(i) T16(i), T16((i) + 16), T16((i) + 32), T16((i) + 48)

static const uint32_t crc32c_entries[256] = { T64(0), T64(64), T64(128),
                                              T64(192) };

uint32_t crc32c_table(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    crc = ~crc;
    for (size_t i = 0; i < bytes; i++)
        crc = crc32c_entries[(crc ^ p[i]) & 255] ^ (crc >> 8);
    return ~crc;
}

/* Modulo the polynomial, bit-reflected: bit 31 is x^0. */
static uint32_t crc32c_product(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (; a != 0; a <<= 1) {
        product ^= a & 0x80000000u ? b : 0;
        b = (b >> 1) ^ (b & 1 ? 0x82f63b78u : 0);
    }
    return product;
}

uint32_t crc32c_shift(uint32_t crc, uint64_t bytes)
{
    uint32_t power = 0x80000000u >> 8; /* x^8, then its square, ... */
    for (; bytes > 0; bytes >>= 1) {
        if (bytes & 1)
            crc = crc32c_product(crc, power);
        power = crc32c_product(power, power);
    }
    return crc;
}

#if defined(__x86_64__)

#define CRC32C_HARDWARE __attribute__((target("sse4.2,pclmul")))

/* A block size of the four streams, a multiple of 8, with x^(8B-33), x^(16B-33)
 * and x^(24B-33) modulo the polynomial, bit-reflected. */
struct crc32c_block {
    size_t bytes;
    uint32_t shift1, shift2, shift3;
};

static const struct crc32c_block crc32c_blocks[] = {
    { 8192, 0x54a86326, 0x1dc403cc, 0x6a173fa1 },
    { 1024, 0x170076fa, 0xa51b6135, 0x359674f7 },
    { 256, 0xb9e02b86, 0xdd7e3b0c, 0xd7a4825c },
};

static inline uint64_t crc32c_word(const unsigned char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

CRC32C_HARDWARE static __m128i crc32c_term(uint64_t c, uint32_t shift)
{
    return _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)c),
                                _mm_cvtsi64_si128(shift), 0);
}

CRC32C_HARDWARE static uint64_t crc32c_four(uint64_t c0, const unsigned char *p,
                                            const struct crc32c_block *block)
{
    const unsigned char *p1 = p + block->bytes;
    const unsigned char *p2 = p1 + block->bytes;
    const unsigned char *p3 = p2 + block->bytes;
    uint64_t c1 = 0;
    uint64_t c2 = 0;
    uint64_t c3 = 0;
    for (size_t i = 0; i < block->bytes; i += 8) {
        c0 = _mm_crc32_u64(c0, crc32c_word(p + i));
        c1 = _mm_crc32_u64(c1, crc32c_word(p1 + i));
        c2 = _mm_crc32_u64(c2, crc32c_word(p2 + i));
        c3 = _mm_crc32_u64(c3, crc32c_word(p3 + i));
    }
    __m128i sum = _mm_xor_si128(crc32c_term(c0, block->shift3),
                                crc32c_term(c1, block->shift2));
    sum = _mm_xor_si128(sum, crc32c_term(c2, block->shift1));
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(sum)) ^ c3;
}

CRC32C_HARDWARE static uint32_t
crc32c_hardware(uint32_t crc, const unsigned char *p, size_t bytes)
{
    uint64_t c = (uint32_t)~crc;
    for (size_t i = 0; i < sizeof crc32c_blocks / sizeof *crc32c_blocks; i++) {
        const struct crc32c_block *block = &crc32c_blocks[i];
        while (bytes >= 4 * block->bytes) {
            c = crc32c_four(c, p, block);
            p += 4 * block->bytes;
            bytes -= 4 * block->bytes;
        }
    }
    for (; bytes >= 8; p += 8, bytes -= 8)
        c = _mm_crc32_u64(c, crc32c_word(p));
    uint32_t last = (uint32_t)c;
    for (; bytes > 0; p++, bytes--)
        last = _mm_crc32_u8(last, *p);
    return ~last;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
        return crc32c_hardware(crc, data, bytes);
    return crc32c_table(crc, data, bytes);
}

#else

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
    return crc32c_table(crc, data, bytes);
}

#endif
