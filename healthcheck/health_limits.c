/* The administrator's thresholds: the schema of health.cfg.
 *
 * Every threshold has its unit in its name and its help line, because a floor
 * in the wrong unit never fires. Without a file nothing about speed is bad: who
 * does not know the machine cannot say what is slow, and a verdict drains
 * nodes. */
#include "healthcheck/health.h"

#include <assert.h>
#include <ctype.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/settings/settings.h"

#define ROW(key, type, field, preset, help)                                    \
    SETTINGS_ROW(offsetof(struct health_limits, field), key, type, preset, 0,  \
                 help)

static const struct setting health_limits_schema[] = {
    ROW("shm.free_min_mib", FLOAT(0, 1e9), shm_free_min_mib, "32",
        "free space that /dev/shm must have, MiB"),
    ROW("shm.inodes_min", FLOAT(0, 1e12), shm_inodes_min, "64",
        "free inodes that /dev/shm must have"),
    ROW("tmp.free_min_mib", FLOAT(0, 1e9), tmp_free_min_mib, "64",
        "free space that /tmp must have, MiB"),
    ROW("tmp.inodes_min", FLOAT(0, 1e12), tmp_inodes_min, "64",
        "free inodes that /tmp must have"),
    ROW("memory.available_min_mib", FLOAT(0, 1e9), memory_available_min_mib,
        "0", "memory that must be available, MiB; 0: only reported"),
    ROW("load.max", FLOAT(0, 1e9), load_max, "0",
        "load of one minute that is worth a warning; 0: only reported"),
    ROW("blocked.max", FLOAT(0, 1e9), blocked_max, "0",
        "processes in state D that are no reason to warn; 0: only reported"),
    ROW("zombies.max", FLOAT(0, 1e9), zombies_max, "0",
        "zombies that are no reason to warn; 0: only reported"),
    ROW("gemm.min_gflops", FLOAT(0, 1e9), gemm_min_gflops, "0",
        "fp32 GEMM of all processors, GFLOP/s; 0: only reported"),
    ROW("gemm.peak_ratio_min", FLOAT(0, 1), gemm_peak_ratio_min, "0.5",
        "the same over what multiply-adds alone reach; less is worth a "
        "warning; 0: only reported"),
    ROW("triad.min_gbps", FLOAT(0, 1e9), triad_min_gbps, "0",
        "memory bandwidth of all processors, GB/s; 0: only reported"),
    ROW("pair.min_gbps", FLOAT(0, 1e9), pair_min_gbps, "0",
        "bus bandwidth between two ranks, GB/s; 0: only reported"),
    ROW("pair.ratio_min", FLOAT(0, 1), pair_ratio_min, "0.8",
        "pairs slower than this fraction of the median are tested again"),
    ROW("gpu.count", FLOAT(0, 64), gpu_count, "0",
        "GPUs that the node must have; 0: as Slurm's Gres or the PCI bus says"),
    ROW("gpu.nvlinks", FLOAT(0, 36), gpu_nvlinks, "0",
        "active NVLinks of each GPU; 0: as many as any other one has"),
    ROW("gpu.used_max_mib", FLOAT(0, 1e9), gpu_used_max_mib, "2048",
        "memory of a GPU that may be in use between jobs, MiB"),
    ROW("gpu.xid_hours", FLOAT(0, 1e6), gpu_xid_hours, "24",
        "age of the oldest Xid in the kernel's log that counts, h"),
    ROW("gpu.xid_fatal", STRING, gpu_xid_fatal,
        "46,48,62,64,74,79,95,119,120,140,154,167,171",
        "Xids that are bad at once"),
    ROW("gpu.xid_suspect", STRING, gpu_xid_suspect,
        "54,56,57,58,61,63,65,68,69,73,80,81,92,94,110,121,122,123,124,125,143,"
        "145,149",
        "Xids that are bad when a GPU has two"),
    ROW("gpu.ratio_min", FLOAT(0, 1), gpu_ratio_min, "0.92",
        "GPUs slower than this fraction of the others' median are tested "
        "again; 0: only reported"),
    ROW("gpu.gemm_min_tflops", FLOAT(0, 1e9), gpu_gemm_min_tflops, "0",
        "bf16 GEMM of each GPU, TFLOP/s; 0: only reported"),
    ROW("gpu.hbm_min_gbps", FLOAT(0, 1e9), gpu_hbm_min_gbps, "0",
        "copies in each GPU's memory, GB/s; 0: only reported"),
    ROW("gpu.pcie_min_gbps", FLOAT(0, 1e9), gpu_pcie_min_gbps, "0",
        "copies from and to host memory, GB/s; 0: only reported"),
    ROW("gpu.peer_min_gbps", FLOAT(0, 1e9), gpu_peer_min_gbps, "0",
        "copies between two GPUs, GB/s; 0: only reported"),
    ROW("gpu.allreduce_min_gbps", FLOAT(0, 1e9), gpu_allreduce_min_gbps, "0",
        "bus bandwidth of an all-reduce in the node, GB/s; 0: only reported"),
    ROW("disable", STRING, disable, "",
        "checks that do not run, separated by commas"),
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
