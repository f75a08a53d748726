#include "src/base/digest.h"

#include "src/base/rng.h"
#include "tests/tap.h"

enum { BUFFER_BYTES = 100000 };

/* RFC 3720 appendix B.4 and the usual check value. */
static void test_known_answers(void)
{
    unsigned char zeros[32] = { 0 };
    unsigned char ones[32];
    unsigned char up[32];
    unsigned char down[32];
    for (int i = 0; i < 32; i++) {
        ones[i] = 0xff;
        up[i] = (unsigned char)i;
        down[i] = (unsigned char)(31 - i);
    }
    const struct {
        const char *name;
        const void *data;
        size_t bytes;
        uint32_t want;
    } cases[] = {
        { "nothing", "", 0, 0 },
        { "123456789", "123456789", 9, 0xe3069283 },
        { "zeros", zeros, 32, 0x8a9136aa },
        { "ones", ones, 32, 0x62a8ab43 },
        { "increasing", up, 32, 0x46dd794e },
        { "decreasing", down, 32, 0x113fdb5c },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tap_is_int(crc32c(0, cases[i].data, cases[i].bytes), cases[i].want,
                   "crc32c of %s", cases[i].name);
        tap_is_int(crc32c_table(0, cases[i].data, cases[i].bytes),
                   cases[i].want, "table crc32c of %s", cases[i].name);
    }
}

/* Lengths around every block size of the streams, at every alignment. */
static void test_same_as_table(const unsigned char *data)
{
    static const size_t lengths[] = { 1,     7,     8,     9,     255,
                                      767,   1023,  1024,  1025,  2048,
                                      4095,  4096,  4097,  5120,  32767,
                                      32768, 32769, 38000, 49999, 90000 };
    int wrong = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t shift = 0; shift < 9; shift++) {
            uint32_t start = (uint32_t)rng_u64(2, i, shift);
            wrong += crc32c(start, data + shift, lengths[i]) !=
                     crc32c_table(start, data + shift, lengths[i]);
        }
    tap_is_int(wrong, 0, "both implementations agree");
}

static void test_continues(const unsigned char *data)
{
    uint32_t whole = crc32c(0, data, BUFFER_BYTES);
    int wrong = 0;
    for (uint64_t i = 0; i < 100; i++) {
        size_t cut = rng_u64(3, 0, i) % (BUFFER_BYTES + 1);
        uint32_t crc = crc32c(0, data, cut);
        wrong += crc32c(crc, data + cut, BUFFER_BYTES - cut) != whole;
    }
    tap_is_int(wrong, 0, "a sum in two parts is the sum of the whole");
}

/* In any order, and of parts that would not fit in memory. */
static void test_parts(const unsigned char *data)
{
    uint32_t whole = crc32c(0, data, BUFFER_BYTES);
    int wrong = 0;
    for (uint64_t i = 0; i < 100; i++) {
        size_t a = rng_u64(5, 0, i) % (BUFFER_BYTES + 1);
        size_t b = a + rng_u64(5, 1, i) % (BUFFER_BYTES + 1 - a);
        uint32_t sum = crc32c(0, data + b, BUFFER_BYTES - b);
        sum ^= crc32c_shift(crc32c(0, data + a, b - a), BUFFER_BYTES - b);
        sum ^= crc32c_shift(crc32c(0, data, a), BUFFER_BYTES - a);
        wrong += sum != whole;
        uint64_t far = rng_u64(5, 2, i) >> 3;
        uint64_t near = rng_u64(5, 3, i) >> 3;
        wrong += crc32c_shift(crc32c_shift(whole, far), near) !=
                 crc32c_shift(whole, far + near);
    }
    tap_is_int(wrong, 0, "the sums of parts make that of the whole");
}

static void test_finds_flips(unsigned char *data)
{
    uint32_t whole = crc32c(0, data, BUFFER_BYTES);
    int missed = 0;
    for (uint64_t i = 0; i < 200; i++) {
        uint64_t bit = rng_u64(4, 0, i) % (8 * BUFFER_BYTES);
        unsigned char mask = (unsigned char)(1u << (bit % 8));
        data[bit / 8] ^= mask;
        missed += crc32c(0, data, BUFFER_BYTES) == whole;
        data[bit / 8] ^= mask;
    }
    tap_is_int(missed, 0, "every flipped bit changes the sum");
}

int main(void)
{
    test_known_answers();
    unsigned char *data = malloc(BUFFER_BYTES);
    if (tap_ok(data != NULL, "memory for the buffer")) {
        for (uint64_t i = 0; i < BUFFER_BYTES; i++)
            data[i] = (unsigned char)rng_u64(1, 0, i);
        test_same_as_table(data);
        test_continues(data);
        test_parts(data);
        test_finds_flips(data);
    }
    free(data);
    return tap_done();
}
