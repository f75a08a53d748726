/* Products of all GPUs at once, which is when they draw their power. Operands
 * are whole numbers, so that the exact product is known and each element may be
 * off by its rounding to bf16 only; the first product is checked on some rows,
 * its checksum must be that of the other GPUs, and every later one must have
 * its bits.
 *
 * That finds three kinds of fault: a GPU that computes wrongly always (by the
 * exact rows, or by the others' checksum), one that does so now and then (by the
 * repetition), and one that is slowed by heat or by its supply, of which its
 * sensors are asked meanwhile. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "healthcheck/health_gpu.h"
#include "healthcheck/health_checks.h"
#include "healthcheck/health_probe.h"
#include "src/base/clock.h"

#define GEMM_ROWS 4
#define GEMM_SEED_A 11
#define GEMM_SEED_B 12
#define GEMM_SAMPLE_S 0.25
#define GEMM_SLOWED_MAX 0.2 /* of the samples */

struct gemm_probe {
    const struct health_probe *probe;
    struct health_probe_gpu gpu;
    void *a, *b, *c, *good;
    struct health_nvml nvml;
    int nvml_index;
    int samples, slowed, hot;
    double sampled_s;
};

static enum err gemm_product(const struct gemm_probe *test, void *c)
{
    int64_t side = test->probe->side;
    struct gemm gemm = { GEMM_OF(GEMM_NT, side, side, side, test->a, test->b,
                                 c) };
    return test->gpu.gpus->kernels->gemm(&test->gpu.ctx, DTYPE_BF16, &gemm);
}

static double bf16_value(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return (double)value;
}

static int64_t gemm_row(int64_t side, int i)
{
    return (side - 1) * i / (GEMM_ROWS - 1);
}

/* Elements of some rows that are more than a rounding off the exact product;
 * negative: no memory. */
static int64_t rows_wrong(int64_t side, const uint16_t *got)
{
    int64_t wrong = 0;
    int8_t *left = malloc((size_t)(GEMM_ROWS * side));
    if (left == NULL)
        return -1;
    for (int i = 0; i < GEMM_ROWS; i++)
        for (int64_t k = 0; k < side; k++)
            left[i * side + k] = (int8_t)cuda_probe_number(
                GEMM_SEED_A, gemm_row(side, i) * side + k);
    for (int64_t j = 0; j < side; j++) {
        int64_t exact[GEMM_ROWS] = { 0 };
        for (int64_t k = 0; k < side; k++) {
            int right = cuda_probe_number(GEMM_SEED_B, j * side + k);
            for (int i = 0; i < GEMM_ROWS; i++)
                exact[i] += left[i * side + k] * right;
        }
        for (int i = 0; i < GEMM_ROWS; i++) {
            double error =
                fabs(bf16_value(got[i * side + j]) - (double)exact[i]);
            /* NaN is wrong, too */
            wrong += !(error <= fabs((double)exact[i]) / 128);
        }
    }
    free(left);
    return wrong;
}

static enum err gemm_first(struct gemm_probe *test, struct health_measure *out)
{
    enum err rc = ERR_OK;
    const struct kernel_memory *memory = test->gpu.memory;
    const struct cuda_probe *gpus = test->gpu.gpus;
    int64_t side = test->probe->side;
    size_t row_bytes = (size_t)side * sizeof(uint16_t);
    int64_t wrong = 0;
    assert(side % 2 == 0); /* words hold two elements */
    assert(test->gpu.host.capacity >= GEMM_ROWS * row_bytes);
    TRY(gpus->numbers(&test->gpu.ctx, DTYPE_BF16, side * side, GEMM_SEED_A,
                      test->a));
    TRY(gpus->numbers(&test->gpu.ctx, DTYPE_BF16, side * side, GEMM_SEED_B,
                      test->b));
    TRY(gemm_product(test, test->good));
    TRY(gpus->checksum(&test->gpu.ctx, side * side / 2, test->good,
                       (uint64_t *)(void *)test->gpu.counts.base));
    TRY(health_probe_counted(&test->gpu, &out->checksum));
    for (int i = 0; i < GEMM_ROWS; i++)
        TRY(memory->download(test->gpu.ctx.stream, row_bytes,
                             (char *)test->good +
                                 (size_t)gemm_row(side, i) * row_bytes,
                             test->gpu.host.base + (size_t)i * row_bytes));
    TRY(memory->wait(test->gpu.ctx.stream));
    wrong = rows_wrong(side, (const uint16_t *)(void *)test->gpu.host.base);
    if (wrong < 0)
        rc = err_set(ERR_MEMORY, "no memory for some rows");
    if (wrong > 0)
        health_say(out, HEALTH_BAD, "GPUGEMM_WRONG",
                   "%lld elements of a product are wrong", (long long)wrong);
    return rc;
}

/* How the GPU fares under load; a library that does not know is no fault. */
static void gemm_sample(struct gemm_probe *test, struct health_measure *out)
{
    struct health_nvml_state state;
    bool hidden;
    double now = clock_now();
    if (test->nvml.opened == NULL || now - test->sampled_s < GEMM_SAMPLE_S ||
        health_nvml_look(&test->nvml, test->nvml_index, false, &state,
                         &hidden) != ERR_OK ||
        hidden)
        return;
    test->sampled_s = now;
    out->sm_mhz = state.sm_mhz;
    out->celsius = state.celsius;
    out->watts = state.milliwatts < 0 ? -1 : state.milliwatts / 1000;
    if (state.throttle < 0)
        return;
    test->samples++;
    test->slowed += (state.throttle & HEALTH_NVML_HARDWARE) != 0;
    test->hot += (state.throttle & HEALTH_NVML_SW_THERMAL) != 0;
}

static void gemm_throttled(const struct gemm_probe *test,
                           struct health_measure *out)
{
    bool slowed = test->slowed > GEMM_SLOWED_MAX * test->samples;
    if (out->state != HEALTH_OK || (!slowed && test->hot == 0))
        return;
    health_say(out, slowed ? HEALTH_BAD : HEALTH_WARN,
               slowed ? "GPU_SLOWED" : "GPU_HOT",
               "slowed in %d of %d samples, %d C",
               slowed ? test->slowed : test->hot, test->samples, out->celsius);
}

static enum err gemm_loop(struct gemm_probe *test, struct health_measure *out)
{
    const struct cuda_probe *gpus = test->gpu.gpus;
    const struct health_env *env = test->probe->env;
    double side = (double)test->probe->side;
    int64_t words = test->probe->side * test->probe->side / 2;
    uint64_t wrong = 0;
    double products = 0;
    double span_s = 0;
    double start = clock_now();
    do {
        for (int i = 0; i < test->probe->batch; i++) {
            TRY(gemm_product(test, test->c));
            if (out->gpu == 0 && products == 0 && i == 0 &&
                health_injected(env->inject, "gpugemm", env->host, "wrong"))
                TRY(gpus->fill(&test->gpu.ctx, 1, 1, test->c));
            TRY(gpus->differ(&test->gpu.ctx, words, test->good, test->c,
                             (uint64_t *)(void *)test->gpu.counts.base));
        }
        gemm_sample(test, out);
        uint64_t now;
        TRY(health_probe_counted(&test->gpu, &now));
        wrong += now;
        products += test->probe->batch;
        span_s = clock_now() - start;
    } while (span_s < test->probe->seconds);
    out->values[0] = 2 * side * side * side * products / span_s / 1e12;
    if (wrong > 0)
        health_say(out, HEALTH_BAD, "GPUGEMM_WRONG",
                   "%llu words differ from the first product",
                   (unsigned long long)wrong);
    return ERR_OK;
}

static enum err gemm_one(const struct health_probe *probe, int gpu,
                         struct health_measure *out)
{
    enum err rc = ERR_OK;
    struct gemm_probe test = { .probe = probe };
    size_t bytes = (size_t)(probe->side * probe->side) * sizeof(uint16_t);
    TRY_OUT(health_probe_open(probe->gpus, gpu, &test.gpu));
    snprintf(out->bus, sizeof out->bus, "%s", test.gpu.bus);
    TRY_OUT(test.gpu.memory->tensors_create(4 * bytes, &test.gpu.tensors));
    TRY_OUT(test.gpu.memory->host_create(
        GEMM_ROWS * bytes / (size_t)probe->side, &test.gpu.host));
    test.a = arena_take(&test.gpu.tensors, bytes);
    test.b = arena_take(&test.gpu.tensors, bytes);
    test.c = arena_take(&test.gpu.tensors, bytes);
    test.good = arena_take(&test.gpu.tensors, bytes);
    if (probe->nvml != NULL &&
        health_nvml_open(probe->nvml, &test.nvml) == ERR_OK &&
        health_nvml_find(&test.nvml, test.gpu.bus, &test.nvml_index) != ERR_OK)
        health_nvml_close(&test.nvml);
    TRY_OUT(gemm_first(&test, out));
    if (out->state == HEALTH_OK)
        TRY_OUT(gemm_loop(&test, out));
    gemm_throttled(&test, out);
out:
    health_nvml_close(&test.nvml);
    health_probe_close(&test.gpu);
    return rc;
}

/* GPUs of one kind run the same program: whose product has other bits than
 * most, though none has changed, computes wrongly the same way every time. */
static void gemm_checksums(struct health_measure *measures, int count)
{
    for (int i = 0; i < count; i++) {
        int same = 0, answered = 0;
        for (int j = 0; j < count; j++) {
            answered += measures[j].checksum != 0;
            same += measures[j].checksum == measures[i].checksum;
        }
        if (measures[i].checksum == 0 || measures[i].state != HEALTH_OK ||
            2 * same >= answered)
            continue;
        health_say(&measures[i], HEALTH_BAD, "GPUGEMM_WRONG",
                   "its product has other bits than most GPUs'");
    }
}

enum err health_probe_gemm_run(const struct health_probe *probe,
                               struct health_result *out)
{
    struct health_measure measures[HEALTH_PROBE_GPUS];
    int count =
        health_probe_measure(probe, "TFLOP/s", true, gemm_one, measures, out);
    if (count == 0)
        return ERR_OK;
    gemm_checksums(measures, count);
    health_probe_result(probe, "gpugemm", "TFLOP/s",
                        probe->env->limits.gpu_gemm_min_tflops, measures, count,
                        0, out);
    health_probe_print(out,
                       "# bf16 products of side %lld, all GPUs at once\n"
                       "# %3s  %-16s %10s %8s %6s %6s\n",
                       (long long)probe->side, "GPU", "bus", "TFLOP/s",
                       "SM MHz", "C", "W");
    for (int i = 0; i < count; i++)
        health_probe_print(out, "  %3d  %-16s %10.1f %8d %6d %6d\n", i,
                           measures[i].bus, measures[i].values[0],
                           measures[i].sm_mhz, measures[i].celsius,
                           measures[i].watts);
    return ERR_OK;
}

HEALTH_PROBE_CHECK(gemm)
