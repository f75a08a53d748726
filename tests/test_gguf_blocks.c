/* Numbers of GGUF files: floats out of blocks have the bits that the gguf package
 * of Python makes of the same bytes, and the other way round. */

#include "src/formats/gguf/gguf_blocks.h"
#include "tests/tap.h"

#define BLOCKS 64
#define NUMBERS 2048

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state;
}

/* FNV-1a */
static uint64_t hash(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint64_t sum = 0xcbf29ce484222325;
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ at[i]) * 0x100000001b3;
    return sum;
}

static void check_hash(uint64_t got, uint64_t want, const char *name,
                       const char *what)
{
    tap_ok(got == want, "%s: %s (%016llx)", name, what,
           (unsigned long long)got);
}

/* Bytes of a generator, with finite scales at these places of each block. */
static void test_read(enum gguf_blocks_type type, int first, int second,
                      uint64_t want)
{
    static uint8_t blocks[BLOCKS * 256];
    static float numbers[BLOCKS * GGUF_BLOCKS_NUMBERS_MAX];
    const struct gguf_blocks_layout *layout = gguf_blocks_layout(type);
    uint64_t state = type;
    for (size_t i = 0; i < (size_t)BLOCKS * layout->bytes; i++)
        blocks[i] = (uint8_t)(draw(&state) >> 56);
    for (size_t b = 0; b < BLOCKS; b++) {
        blocks[b * layout->bytes + (size_t)first + 1] &= 0xBF;
        blocks[b * layout->bytes + (size_t)second + 1] &= 0xBF;
    }
    gguf_blocks_read(type, blocks, BLOCKS, numbers);
    check_hash(hash(numbers, BLOCKS * layout->numbers * sizeof *numbers), want,
               gguf_blocks_name(type), "the floats of gguf");
}

static void test_write(enum gguf_blocks_type type, uint64_t want)
{
    static float numbers[NUMBERS], back[NUMBERS];
    static uint8_t blocks[NUMBERS * 4];
    const struct gguf_blocks_layout *layout = gguf_blocks_layout(type);
    size_t count = NUMBERS / layout->numbers;
    uint64_t state = 99;
    double worst = 0;
    for (int i = 0; i < NUMBERS; i++)
        numbers[i] = (float)(int32_t)(uint32_t)(draw(&state) >> 32) *
                     ldexpf(1, -(20 + i / 32 % 20));
    size_t lost = gguf_blocks_write(type, numbers, count, blocks);
    check_hash(hash(blocks, count * layout->bytes), want,
               gguf_blocks_name(type), "the bytes of gguf");
    gguf_blocks_read(type, blocks, count, back);
    for (int i = 0; i < NUMBERS; i++)
        worst = fmax(worst, fabs((double)numbers[i] - (double)back[i]) / 2048);
    tap_ok(worst < 0x1p-8 && lost == 0, "%s: read back within %g",
           gguf_blocks_name(type), worst);
}

static size_t lost(enum gguf_blocks_type type, float x, float *back)
{
    float numbers[32] = { 1, -1 }, all[32];
    uint8_t blocks[128];
    size_t count = 32 / gguf_blocks_layout(type)->numbers;
    numbers[5] = x;
    size_t number = gguf_blocks_write(type, numbers, count, blocks);
    gguf_blocks_read(type, blocks, count, all);
    *back = all[5];
    return number;
}

static void test_lost(void)
{
    float x = 0;
    tap_ok(lost(GGUF_BLOCKS_F16, 65519, &x) == 0 && x == 65504,
           "F16: what is rounded to the largest is not lost");
    tap_ok(lost(GGUF_BLOCKS_F16, 65520, &x) == 1 && isinf(x),
           "F16: more becomes infinite and is told");
    tap_ok(lost(GGUF_BLOCKS_F16, INFINITY, &x) == 0 && isinf(x) &&
               lost(GGUF_BLOCKS_F16, NAN, &x) == 0 && isnan(x),
           "F16: infinity and NaN stay");
    tap_ok(lost(GGUF_BLOCKS_BF16, 3.4e38f, &x) == 1 && isinf(x) &&
               lost(GGUF_BLOCKS_BF16, NAN, &x) == 0 && isnan(x),
           "BF16: as well");
    tap_ok(lost(GGUF_BLOCKS_Q8_0, NAN, &x) == 32 && isnan(x) &&
               lost(GGUF_BLOCKS_Q8_0, -INFINITY, &x) == 32 && isnan(x) &&
               lost(GGUF_BLOCKS_Q8_0, 1e8f, &x) == 32 && isnan(x),
           "Q8_0: a block that cannot be is NaN and told");
    tap_ok(lost(GGUF_BLOCKS_Q8_0, 8e6f, &x) == 0 && x > 7e6f,
           "Q8_0: the largest scales");
    float tiny[32] = { 1e-40f, -1e-45f }, back[32];
    uint8_t block[34];
    size_t number = gguf_blocks_write(GGUF_BLOCKS_Q8_0, tiny, 1, block);
    gguf_blocks_read(GGUF_BLOCKS_Q8_0, block, 1, back);
    tap_ok(number == 0 && back[0] == 0 && back[1] == 0,
           "Q8_0: numbers whose scale has no inverse");
}

int main(void)
{
    test_read(GGUF_BLOCKS_Q4_0, 0, 0, 0xaf6c1d603ae08a95);
    test_read(GGUF_BLOCKS_Q4_1, 0, 2, 0x5304f06615c1b51d);
    test_read(GGUF_BLOCKS_Q5_0, 0, 0, 0x65edb1b326261bed);
    test_read(GGUF_BLOCKS_Q5_1, 0, 2, 0x071bbe2880a932be);
    test_read(GGUF_BLOCKS_Q8_0, 0, 0, 0xd9d19617718b6c7d);
    test_read(GGUF_BLOCKS_Q4_K, 0, 2, 0x6f1844c51520f935);
    test_read(GGUF_BLOCKS_Q5_K, 0, 2, 0x306d76b4e715fac3);
    test_read(GGUF_BLOCKS_Q6_K, 208, 208, 0x437af967d04f23e8);
    test_write(GGUF_BLOCKS_F16, 0x392faff6d2be773c);
    test_write(GGUF_BLOCKS_BF16, 0xb769653bed931271);
    test_write(GGUF_BLOCKS_Q8_0, 0x0694ef8048eeaac2);
    test_lost();
    return tap_done();
}
