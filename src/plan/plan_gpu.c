/* The table of GPUs. Who adds one adds a row.
 *
 * Peaks, memory bandwidth and links: NVIDIA's data sheets of A100, H100, H200 and HGX
 * B200, without sparsity; a link is half of what they say for both directions. Nodes
 * have 8 GPUs and for each a network card of 200 Gb/s (DGX A100), 400 (DGX H100, H200,
 * B200); those of the PCIe card, which is without NVLink here, are assumed: 8 in a
 * node and 200 Gb/s. A model's share of the peak counts by the data sheet, so an H100
 * has 989.5e12.
 *
 * Shares: the best products of ml-engineering's "maximum achievable matmul FLOPS"
 * (compute/accelerator, and insights/when-to-upgrade-gpus for B200). h100-pcie has none
 * there; what the A100's PCIe card loses against its SXM (0.811 of 0.869) was taken.
 * Attention: FlashAttention-2, heads of 128, causal, 16k tokens, as its authors drew
 * it for A100 and H100; the H200 computes as the H100, and the two others were taken by
 * their peaks. Memory: what PyTorch says of such a device's total capacity. */
#include "src/plan/plan_gpu.h"

#include <string.h>

#include "src/base/clean.h"

#define GIB (1024 * 1024 * 1024.0)

static const struct plan_gpu gpus[] = {
    { "a100-40", 312e12, 0, 0.869, 0, 189e12, (int64_t)(39.4 * GIB), 1.555e12,
      300e9, 25e9, 8 },
    { "a100-80", 312e12, 0, 0.869, 0, 189e12, (int64_t)(79.1 * GIB), 2.039e12,
      300e9, 25e9, 8 },
    { "h100-pcie", 756e12, 1513e12, 0.75, 0.66, 258e12, (int64_t)(79.1 * GIB),
      2.0e12, 64e9, 25e9, 8 },
    { "h100-sxm", 989.5e12, 1979e12, 0.803, 0.709, 338e12,
      (int64_t)(79.1 * GIB), 3.35e12, 450e9, 50e9, 8 },
    { "h200", 989.5e12, 1979e12, 0.803, 0.734, 338e12, (int64_t)(139.7 * GIB),
      4.8e12, 450e9, 50e9, 8 },
    { "b200", 2250e12, 4500e12, 0.776, 0.763, 768e12, (int64_t)(178.0 * GIB),
      8.0e12, 900e9, 50e9, 8 },
};

#define COUNT (sizeof gpus / sizeof *gpus)

enum err plan_gpu_find(const char *name, const struct plan_gpu **out)
{
    char all[128] = "";
    for (size_t i = 0; i < COUNT; i++) {
        if (strcmp(gpus[i].name, name) == 0) {
            *out = &gpus[i];
            return ERR_OK;
        }
        clean_join(all, sizeof all, ", ", "%s", gpus[i].name);
    }
    return err_set(ERR_USAGE, "--gpu takes %s, not '%.64s'", all, name);
}
