/* The administrator's thresholds: the schema of health.cfg.
 *
 * Every threshold has its unit in its name and its help line, because a floor
 * in the wrong unit never fires. */
#include "healthcheck/health.h"

#include <assert.h>
#include <ctype.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/log.h"
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
    { "load.max", SETTING_FLOAT, FIELD(load_max), "0", 0, 1e9, NULL,
      "load of one minute that is worth a warning; 0: only reported" },
    { "blocked.max", SETTING_FLOAT, FIELD(blocked_max), "0", 0, 1e9, NULL,
      "processes in state D that are no reason to warn; 0: only reported" },
    { "zombies.max", SETTING_FLOAT, FIELD(zombies_max), "0", 0, 1e9, NULL,
      "zombies that are no reason to warn; 0: only reported" },
    { "gemm.min_gflops", SETTING_FLOAT, FIELD(gemm_min_gflops), "0", 0, 1e9,
      NULL, "fp32 GEMM of all processors, GFLOP/s; 0: only reported" },
    { "gemm.peak_ratio_min", SETTING_FLOAT, FIELD(gemm_peak_ratio_min), "0.5",
      0, 1, NULL,
      "the same over what multiply-adds alone reach; less is worth a warning; "
      "0: only reported" },
    { "triad.min_gbps", SETTING_FLOAT, FIELD(triad_min_gbps), "0", 0, 1e9, NULL,
      "memory bandwidth of all processors, GB/s; 0: only reported" },
    { "pair.min_gbps", SETTING_FLOAT, FIELD(pair_min_gbps), "0", 0, 1e9, NULL,
      "bus bandwidth between two ranks, GB/s; 0: only reported" },
    { "pair.ratio_min", SETTING_FLOAT, FIELD(pair_ratio_min), "0.8", 0, 1, NULL,
      "pairs slower than this fraction of the median are tested again" },
    { "gpu.count", SETTING_FLOAT, FIELD(gpu_count), "0", 0, 64, NULL,
      "GPUs that the node must have; 0: as Slurm's Gres or the PCI bus says" },
    { "gpu.nvlinks", SETTING_FLOAT, FIELD(gpu_nvlinks), "0", 0, 36, NULL,
      "active NVLinks of each GPU; 0: as many as any other one has" },
    { "gpu.used_max_mib", SETTING_FLOAT, FIELD(gpu_used_max_mib), "2048", 0,
      1e9, NULL, "memory of a GPU that may be in use between jobs, MiB" },
    { "gpu.xid_hours", SETTING_FLOAT, FIELD(gpu_xid_hours), "24", 0, 1e6, NULL,
      "age of the oldest Xid in the kernel's log that counts, h" },
    { "gpu.xid_fatal", SETTING_STRING, FIELD(gpu_xid_fatal),
      "46,48,62,64,74,79,95,119,120,140,154,167,171", 0, 0, NULL,
      "Xids that are bad at once" },
    { "gpu.xid_suspect", SETTING_STRING, FIELD(gpu_xid_suspect),
      "54,56,57,58,61,63,65,68,69,73,80,81,92,94,110,121,122,123,124,125,143,"
      "145,149",
      0, 0, NULL, "Xids that are bad when a GPU has two" },
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

static enum err limits_numbers(const char *path, const char *key,
                               const char *list)
{
    const char *item;
    size_t length;
    while (health_item(&list, &item, &length))
        for (size_t i = 0; i < length; i++)
            if (!isdigit((unsigned char)item[i]))
                return err_set(ERR_USAGE,
                               "%s: %s: '%.*s' is no number of an Xid", path,
                               key, (int)length, item);
    return ERR_OK;
}

static enum err limits_lists(const char *path,
                             const struct health_limits *limits)
{
    const char *item, *list = limits->disable;
    size_t length;
    TRY(limits_numbers(path, "gpu.xid_fatal", limits->gpu_xid_fatal));
    TRY(limits_numbers(path, "gpu.xid_suspect", limits->gpu_xid_suspect));
    while (health_item(&list, &item, &length))
        if (!health_known(item, length))
            return err_set(ERR_USAGE,
                           "%s: disable: there is no check '%.*s'; "
                           "tessera-health --help lists them",
                           path, (int)length, item);
    return ERR_OK;
}

enum err health_limits_load(const char *path, struct health_limits *out)
{
    int count =
        (int)(sizeof health_limits_schema / sizeof health_limits_schema[0]);
    enum err rc =
        settings_load(health_limits_schema, count, path, NULL, 0, out, NULL);
    if (rc == ERR_OK)
        rc = limits_lists(path != NULL ? path : "thresholds", out);
    return rc;
}

/* Root decides over the whole node by this file. */
static bool limits_trusted(const char *path)
{
    struct stat status;
    if (geteuid() != 0 || stat(path, &status) != 0 ||
        (status.st_uid == 0 && (status.st_mode & 022) == 0))
        return true;
    log_warn("%s: not read: it must belong to root and be writable by root "
             "only; the defaults are used",
             path);
    return false;
}

enum err health_limits_default(struct health_limits *out)
{
    char path[PATH_MAX + 32];
    ssize_t bytes = readlink("/proc/self/exe", path, PATH_MAX);
    path[bytes > 0 ? bytes : 0] = '\0';
    /* from PREFIX/bin or PREFIX/libexec/tessera */
    char *end = path;
    for (int up = 0; up < 2 && (end = strrchr(path, '/')) != NULL; up++)
        *end = '\0';
    if (end == NULL)
        return health_limits_load(NULL, out);
    if (end - path >= 8 && strcmp(end - 8, "/libexec") == 0)
        *(end -= 8) = '\0';
    assert(end + 32 <= path + sizeof path);
    snprintf(end, 32, "/etc/health.cfg");
    return health_limits_load(
        fsio_exists(path) && limits_trusted(path) ? path : NULL, out);
}
