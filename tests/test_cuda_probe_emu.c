/* The health checks' kernels on the processor: patterns, numbers and counts of
 * every length, with what is wrong found wherever it is. */
#define CUDA_EMULATED
#include "kernels/cuda/cuda_probe.h"

#include "tests/tap.h"

#define N_MAX 70000

static uint32_t words[N_MAX + 1], others[N_MAX + 1];
static uint64_t counts[CUDA_PROBE_COUNTS];
static const struct kernel_ctx ctx = { .threads = 1 };

static uint64_t counted(void)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < CUDA_PROBE_COUNTS; i++)
        sum += counts[i];
    memset(counts, 0, sizeof counts);
    return sum;
}

static void test_pattern(int64_t n)
{
    const int64_t places[] = { 0, n / 2, n - 1 };
    words[n] = 0x1234567;
    cuda_probe_fill_emulated(&ctx, n, 7, words);
    int64_t off = 0;
    for (int64_t i = 0; i < n; i++)
        off += words[i] != cuda_probe_word(7, i);
    tap_is_int(off, 0, "%lld words are the host's", (long long)n);
    tap_is_int(words[n], 0x1234567, "the word after them is left alone");
    cuda_probe_wrong_emulated(&ctx, n, 7, words, counts);
    tap_is_int((long long)counted(), 0, "nothing is wrong");
    cuda_probe_wrong_emulated(&ctx, n, 8, words, counts);
    tap_is_int((long long)counted(), n, "another pattern is wrong everywhere");
    memcpy(others, words, sizeof words);
    cuda_probe_checksum_emulated(&ctx, n, words, counts);
    uint64_t checksum = counted();
    for (size_t i = 0; i < 3; i++) {
        others[places[i]] ^= 1u << (i * 13);
        cuda_probe_wrong_emulated(&ctx, n, 7, others, counts);
        tap_is_int((long long)counted(), 1, "a flipped bit is found");
        cuda_probe_differ_emulated(&ctx, n, words, others, counts);
        tap_is_int((long long)counted(), 1, "and differs");
        cuda_probe_checksum_emulated(&ctx, n, others, counts);
        tap_ok(counted() != checksum, "and changes the checksum");
        others[places[i]] = words[places[i]];
    }
    cuda_probe_wrong_emulated(&ctx, n, 8, words, counts);
    cuda_probe_wrong_emulated(&ctx, n, 8, words, counts);
    tap_is_int((long long)counted(), 2 * n, "counts add up");
}

static void test_numbers(int64_t n)
{
    float *sums = malloc((size_t)n * sizeof *sums);
    uint16_t *halves = malloc((size_t)n * sizeof *halves);
    int64_t off = 0;
    cuda_probe_numbers_emulated(&ctx, DTYPE_BF16, n, 3, halves);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)halves[i] << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        off += x != (float)cuda_probe_number(3, i) || x < -128 || x > 127;
    }
    tap_is_int(off, 0, "%lld bf16 numbers are the host's", (long long)n);
    cuda_probe_numbers_emulated(&ctx, DTYPE_F32, n, 3, sums);
    cuda_probe_wrong_sum_emulated(&ctx, n, 3, 1, sums, counts);
    tap_is_int((long long)counted(), 0, "fp32 numbers are sums of one");
    for (int64_t i = 0; i < n; i++)
        sums[i] += (float)(cuda_probe_number(4, i) + cuda_probe_number(5, i));
    cuda_probe_wrong_sum_emulated(&ctx, n, 3, 3, sums, counts);
    tap_is_int((long long)counted(), 0, "three sequences add up");
    uint32_t nan = 0x7fc00000;
    memcpy(&sums[n - 1], &nan, sizeof nan);
    sums[0] += 1;
    cuda_probe_wrong_sum_emulated(&ctx, n, 3, 3, sums, counts);
    tap_is_int((long long)counted(), n > 1 ? 2 : 1, "a NaN is wrong, too");
    free(halves);
    free(sums);
}

int main(void)
{
    static const int64_t lengths[] = { 1, 31, 257, 4097, N_MAX };
    double mean = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        test_pattern(lengths[i]);
        test_numbers(lengths[i]);
    }
    for (int64_t i = 0; i < N_MAX; i++)
        mean += (double)cuda_probe_number(1, i) / N_MAX;
    tap_is_close(mean, -0.5, 1.5, "numbers are spread evenly");
    tap_is_int(cuda_probe_numbers_emulated(&ctx, DTYPE_F64, 1, 1, words),
               ERR_UNSUPPORTED, "other dtypes are refused");
    tap_ok(strstr(err_text(), "f64") != NULL, "by name: %s", err_text());
    return tap_done();
}
