/* The bus between host and GPUs: pinned memory both ways, one GPU after the
 * other, since some share a switch. Its generation and width are looked at
 * while it is busy, because an idle bus saves power.
 *
 * A pattern is made on the GPU, brought to the host and back into memory that
 * holds its opposite by then: what was lost on the way is not hidden by what
 * was there. */
#include <assert.h>
#include <string.h>

#include "healthcheck/health_gpu.h"
#include "healthcheck/health_checks.h"
#include "healthcheck/health_probe.h"
#include "src/base/clock.h"

#define PCIE_SEED 31
#define PCIE_PASSES 5
#define PCIE_QUEUED 4 /* copies under way while the bus is looked at */

static enum err pcie_pass(struct health_probe_gpu *gpu, size_t bytes, bool up,
                          double *gbps)
{
    double start = clock_now();
    TRY(up ? gpu->memory->upload(gpu->ctx.stream, bytes, gpu->host.base,
                                 gpu->tensors.base)
           : gpu->memory->download(gpu->ctx.stream, bytes, gpu->tensors.base,
                                   gpu->host.base));
    TRY(gpu->memory->wait(gpu->ctx.stream));
    double got = (double)bytes / (clock_now() - start) / 1e9;
    *gbps = got > *gbps ? got : *gbps;
    return ERR_OK;
}

static enum err pcie_look(const struct health_probe *probe,
                          struct health_probe_gpu *gpu, size_t bytes,
                          struct health_measure *out)
{
    enum err rc = ERR_OK;
    struct health_nvml nvml;
    struct health_nvml_state s;
    int index;
    bool hidden = true;
    if (probe->nvml == NULL || health_nvml_open(probe->nvml, &nvml) != ERR_OK)
        return ERR_OK;
    if (health_nvml_find(&nvml, gpu->bus, &index) != ERR_OK)
        goto out;
    for (int i = 0; i < PCIE_QUEUED; i++)
        TRY_OUT(gpu->memory->upload(gpu->ctx.stream, bytes, gpu->host.base,
                                    gpu->tensors.base));
    enum err looked = health_nvml_look(&nvml, index, false, &s, &hidden);
    TRY_OUT(gpu->memory->wait(gpu->ctx.stream));
    if (looked == ERR_OK && !hidden && out->state == HEALTH_OK &&
        s.generation > 0 && s.width > 0 &&
        (s.generation < s.generation_max || s.width < s.width_max))
        health_say(out, HEALTH_BAD, "PCIE_LINK",
                   "PCIe generation %d x%d under load, of %d x%d", s.generation,
                   s.width, s.generation_max, s.width_max);
out:
    health_nvml_close(&nvml);
    return rc;
}

static enum err pcie_one(const struct health_probe *probe, int number,
                         struct health_measure *out)
{
    enum err rc = ERR_OK;
    const struct health_env *env = probe->env;
    struct health_probe_gpu gpu = { .memory = NULL };
    size_t bytes = (size_t)probe->copy_bytes;
    int64_t words = probe->copy_bytes / 4;
    uint64_t wrong = 0;
    assert(probe->copy_bytes > 0 && probe->copy_bytes % 4 == 0);
    TRY_OUT(health_probe_open(probe->gpus, number, &gpu));
    snprintf(out->bus, sizeof out->bus, "%s", gpu.bus);
    TRY_OUT(gpu.memory->tensors_create(bytes, &gpu.tensors));
    TRY_OUT(gpu.memory->host_create(bytes, &gpu.host));
    uint32_t *words_there = (uint32_t *)(void *)gpu.tensors.base;
    TRY_OUT(gpu.gpus->fill(&gpu.ctx, words, PCIE_SEED, words_there));
    TRY_OUT(gpu.memory->wait(gpu.ctx.stream));
    for (int i = 0; i < PCIE_PASSES; i++)
        TRY_OUT(pcie_pass(&gpu, bytes, false, &out->values[1]));
    TRY_OUT(gpu.gpus->fill(&gpu.ctx, words, ~(uint32_t)PCIE_SEED, words_there));
    TRY_OUT(gpu.memory->wait(gpu.ctx.stream));
    if (health_injected(env->inject, "pcie", env->host, "wrong"))
        gpu.host.base[words] ^= 4;
    for (int i = 0; i < PCIE_PASSES; i++)
        TRY_OUT(pcie_pass(&gpu, bytes, true, &out->values[0]));
    TRY_OUT(gpu.gpus->wrong(&gpu.ctx, words, PCIE_SEED, words_there,
                            (uint64_t *)(void *)gpu.counts.base));
    TRY_OUT(health_probe_counted(&gpu, &wrong));
    if (wrong > 0)
        health_say(out, HEALTH_BAD, "PCIE_WRONG",
                   "%llu words changed on the way to the host and back",
                   (unsigned long long)wrong);
    TRY_OUT(pcie_look(probe, &gpu, bytes, out));
out:
    health_probe_close(&gpu);
    return rc;
}

enum err health_probe_pcie_run(const struct health_probe *probe,
                               struct health_result *out)
{
    double floor = probe->env->limits.gpu_pcie_min_gbps;
    struct health_measure measures[HEALTH_PROBE_GPUS];
    int count =
        health_probe_measure(probe, "GB/s", false, pcie_one, measures, out);
    if (count == 0)
        return ERR_OK;
    health_probe_result(probe, "pcie", "GB/s to the GPU", floor, measures,
                        count, 0, out);
    health_probe_result(probe, "pcie", "GB/s from the GPU", floor, measures,
                        count, 1, out);
    out->retest |= strcmp(out->code, "PCIE_LINK") == 0;
    health_probe_print(out,
                       "# pinned host memory, %lld bytes\n"
                       "# %3s  %-16s %10s %10s\n",
                       (long long)probe->copy_bytes, "GPU", "bus", "to GB/s",
                       "from GB/s");
    for (int i = 0; i < count; i++)
        health_probe_print(out, "  %3d  %-16s %10.1f %10.1f\n", i,
                           measures[i].bus, measures[i].values[0],
                           measures[i].values[1]);
    return ERR_OK;
}

HEALTH_PROBE_CHECK(pcie)
