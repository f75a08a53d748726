/* Every threshold has its unit in its name and its help line, because a floor
 * in the wrong unit never fires. */
#include "healthcheck/health.h"

#include <limits.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/settings.h"

#define FIELD(name) offsetof(struct health_limits, name)

static const struct setting health_limits_schema[] = {
    { "shm.free_min_mib", SETTING_FLOAT, FIELD(shm_free_min_mib), "32", 0, 1e9,
      NULL, "free space that /dev/shm must have, MiB" },
    { "shm.inodes_min", SETTING_FLOAT, FIELD(shm_inodes_min), "64", 0, 1e12,
      NULL, "free inodes that /dev/shm must have" },
    { "tmp.free_min_mib", SETTING_FLOAT, FIELD(tmp_free_min_mib), "64", 0, 1e9,
      NULL, "free space that /tmp must have, MiB" },
    { "tmp.inodes_min", SETTING_FLOAT, FIELD(tmp_inodes_min), "64", 0, 1e12,
      NULL, "free inodes that /tmp must have" },
    { "memory.available_min_mib", SETTING_FLOAT,
      FIELD(memory_available_min_mib), "0", 0, 1e9, NULL,
      "memory that must be available, MiB; 0: only reported" },
    { "gemm.min_gflops", SETTING_FLOAT, FIELD(gemm_min_gflops), "0", 0, 1e9,
      NULL, "fp32 GEMM of all processors, GFLOP/s; 0: only reported" },
    { "triad.min_gbps", SETTING_FLOAT, FIELD(triad_min_gbps), "0", 0, 1e9, NULL,
      "memory bandwidth of all processors, GB/s; 0: only reported" },
    { "pair.min_gbps", SETTING_FLOAT, FIELD(pair_min_gbps), "0", 0, 1e9, NULL,
      "bus bandwidth between two ranks, GB/s; 0: only reported" },
    { "pair.ratio_min", SETTING_FLOAT, FIELD(pair_ratio_min), "0.8", 0, 1, NULL,
      "pairs slower than this fraction of the median are tested again" },
    { "gpu.count", SETTING_FLOAT, FIELD(gpu_count), "0", 0, 64, NULL,
      "GPUs that the node must have; 0: as many as are on the PCI bus" },
    { "gpu.nvlinks", SETTING_FLOAT, FIELD(gpu_nvlinks), "0", 0, 36, NULL,
      "active NVLinks of each GPU; 0: as many as any other one has" },
    { "gpu.used_max_mib", SETTING_FLOAT, FIELD(gpu_used_max_mib), "2048", 0,
      1e9, NULL, "memory of a GPU that may be in use between jobs, MiB" },
    { "gpu.xid_hours", SETTING_FLOAT, FIELD(gpu_xid_hours), "24", 0, 1e6, NULL,
      "age of the oldest Xid in the kernel's log that counts, h" },
    { "gpu.ratio_min", SETTING_FLOAT, FIELD(gpu_ratio_min), "0.92", 0, 1, NULL,
      "GPUs slower than this fraction of the others' median are tested again; "
      "0: only reported" },
    { "gpu.gemm_min_tflops", SETTING_FLOAT, FIELD(gpu_gemm_min_tflops), "0", 0,
      1e9, NULL, "bf16 GEMM of each GPU, TFLOP/s; 0: only reported" },
    { "gpu.hbm_min_gbps", SETTING_FLOAT, FIELD(gpu_hbm_min_gbps), "0", 0, 1e9,
      NULL, "copies in each GPU's memory, GB/s; 0: only reported" },
    { "gpu.pcie_min_gbps", SETTING_FLOAT, FIELD(gpu_pcie_min_gbps), "0", 0, 1e9,
      NULL, "copies from and to host memory, GB/s; 0: only reported" },
    { "gpu.peer_min_gbps", SETTING_FLOAT, FIELD(gpu_peer_min_gbps), "0", 0, 1e9,
      NULL, "copies between two GPUs, GB/s; 0: only reported" },
    { "gpu.allreduce_min_gbps", SETTING_FLOAT, FIELD(gpu_allreduce_min_gbps),
      "0", 0, 1e9, NULL,
      "bus bandwidth of an all-reduce in the node, GB/s; 0: only reported" },
    { "disable", SETTING_STRING, FIELD(disable), "", 0, 0, NULL,
      "checks that do not run, separated by commas" },
};

enum err health_limits_load(const char *path, struct health_limits *out)
{
    int count =
        (int)(sizeof health_limits_schema / sizeof health_limits_schema[0]);
    return settings_load(health_limits_schema, count, path, NULL, 0, out, NULL);
}

enum err health_limits_default(struct health_limits *out)
{
    char path[PATH_MAX + 32];
    ssize_t bytes = readlink("/proc/self/exe", path, PATH_MAX);
    for (int up = 0; up < 2 && bytes > 0; up++)
        while (bytes > 0 && path[--bytes] != '/')
            ;
    if (bytes < 0)
        return health_limits_load(NULL, out);
    snprintf(path + bytes, 32, "/etc/health.cfg");
    return health_limits_load(fsio_exists(path) ? path : NULL, out);
}
