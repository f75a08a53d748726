/* The GPUs' own memory: patterns over most of what is free, written, copied and
 * read back; the speed of the copy counts what is read and what is written.
 *
 * A word of a pattern follows from its place, so an address that is mapped
 * twice shows as well as a bit that is stuck. Errors that the card corrects do
 * not show. */
#include <assert.h>

#include "healthcheck/health_checks.h"
#include "healthcheck/health_probe.h"
#include "src/base/clock.h"

#define HBM_ALIGN ((size_t)1 << 20)
#define HBM_PATTERNS 2

/* One pattern in one half, copied to the other one. */
static enum err hbm_pattern(const struct health_probe *probe,
                            struct health_probe_gpu *gpu, uint32_t seed,
                            size_t half, double *gbps, uint64_t *wrong)
{
    const struct health_env *env = probe->env;
    char *from = gpu->tensors.base;
    char *to = from + half;
    int64_t words = (int64_t)(half / sizeof(uint32_t));
    uint64_t *counts = (uint64_t *)(void *)gpu->counts.base;
    assert(2 * half <= gpu->tensors.capacity);
    TRY(gpu->gpus->fill(&gpu->ctx, words, seed, (uint32_t *)(void *)from));
    TRY(gpu->memory->wait(gpu->ctx.stream));
    double start = clock_now();
    TRY(gpu->memory->copy(gpu->ctx.stream, half, from, to));
    TRY(gpu->memory->wait(gpu->ctx.stream));
    *gbps = 2 * (double)half / (clock_now() - start) / 1e9;
    if (health_injected(env->inject, "hbm", env->host, "wrong"))
        TRY(gpu->gpus->fill(&gpu->ctx, 1, ~seed, (uint32_t *)(void *)to));
    TRY(gpu->gpus->wrong(&gpu->ctx, words, seed, (uint32_t *)(void *)from,
                         counts));
    TRY(gpu->gpus->wrong(&gpu->ctx, words, seed, (uint32_t *)(void *)to,
                         counts));
    return health_probe_counted(gpu, wrong);
}

static enum err hbm_one(const struct health_probe *probe, int number,
                        struct health_measure *out)
{
    enum err rc = ERR_OK;
    struct health_probe_gpu gpu = { .memory = NULL };
    uint64_t wrong = 0;
    TRY_OUT(health_probe_open(probe->gpus, number, &gpu));
    snprintf(out->bus, sizeof out->bus, "%s", gpu.bus);
    size_t half = (size_t)((double)gpu.bytes_free * probe->memory_part / 2) /
                  HBM_ALIGN * HBM_ALIGN;
    half = half < HBM_ALIGN ? HBM_ALIGN : half;
    TRY_OUT(gpu.memory->tensors_create(2 * half, &gpu.tensors));
    for (uint32_t i = 0; i < HBM_PATTERNS; i++) {
        double gbps;
        uint64_t now;
        TRY_OUT(hbm_pattern(probe, &gpu, 21 + i, half, &gbps, &now));
        out->values[0] = gbps > out->values[0] ? gbps : out->values[0];
        wrong += now;
    }
    out->values[1] = 2 * (double)half / 1073741824.0;
    if (wrong > 0)
        health_say(out, HEALTH_BAD, "HBM_WRONG", "%llu words of its memory lie",
                   (unsigned long long)wrong);
out:
    health_probe_close(&gpu);
    return rc;
}

enum err health_probe_hbm_run(const struct health_probe *probe,
                              struct health_result *out)
{
    struct health_measure measures[HEALTH_PROBE_GPUS];
    int count =
        health_probe_measure(probe, "GB/s", true, hbm_one, measures, out);
    if (count == 0)
        return ERR_OK;
    health_probe_result(probe, "hbm", "GB/s",
                        probe->env->limits.gpu_hbm_min_gbps, measures, count, 0,
                        out);
    health_probe_print(out,
                       "# copies in the GPU's memory, %d patterns\n"
                       "# %3s  %-16s %10s %10s\n",
                       HBM_PATTERNS, "GPU", "bus", "GB/s", "GiB seen");
    for (int i = 0; i < count; i++)
        health_probe_print(out, "  %3d  %-16s %10.1f %10.2f\n", i,
                           measures[i].bus, measures[i].values[0],
                           measures[i].values[1]);
    return ERR_OK;
}

HEALTH_PROBE_CHECK(hbm)
