/* Bob Jenkins' lookup3, with which HDF5 guards its metadata. Checkpoints' own
 * checksums are CRC32C (src/base/crc32c.c). */
#include "checkpoint/files/ckpt_lookup3.h"

#include <string.h>

static uint32_t rotate(uint32_t x, int bits)
{
    return x << bits | x >> (32 - bits);
}

uint32_t ckpt_lookup3(const unsigned char *data, size_t bytes)
{
    uint32_t a = 0xdeadbeef + (uint32_t)bytes, b = a, c = a;
    while (bytes > 0) {
        uint32_t words[3] = { 0 };
        size_t part = bytes < sizeof words ? bytes : sizeof words;
        memcpy(words, data, part);
        a += words[0], b += words[1], c += words[2];
        data += part;
        bytes -= part;
        if (bytes == 0) {
            c ^= b, c -= rotate(b, 14);
            a ^= c, a -= rotate(c, 11);
            b ^= a, b -= rotate(a, 25);
            c ^= b, c -= rotate(b, 16);
            a ^= c, a -= rotate(c, 4);
            b ^= a, b -= rotate(a, 14);
            c ^= b, c -= rotate(b, 24);
        } else {
            a -= c, a ^= rotate(c, 4), c += b;
            b -= a, b ^= rotate(a, 6), a += c;
            c -= b, c ^= rotate(b, 8), b += a;
            a -= c, a ^= rotate(c, 16), c += b;
            b -= a, b ^= rotate(a, 19), a += c;
            c -= b, c ^= rotate(b, 4), b += a;
        }
    }
    return c;
}
