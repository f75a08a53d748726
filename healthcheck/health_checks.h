/* The list of checks: a new one is a row here, its file and its test.
 *
 *   CHECK(id, group, phases, timeout_s, run, about)
 *
 * id is its name in reports and thresholds, group what fault injection knows it
 * by ("cpu", "fs", "host"; "gpu", which asks the driver, "xid" and "probe" run only
 * where GPUs are expected), phases those that run it, timeout_s the limit of one
 * run, about what it looks at, for --help. `run` is called in a child: it fills state, code, unit, text,
 * value, limit and retest; an error makes the state unknown. */
#pragma once

#include "healthcheck/health.h"

#define HEALTH_ALL (HEALTH_QUICK | HEALTH_PROLOG | HEALTH_EPILOG | HEALTH_JOB)
#define HEALTH_IDLE (HEALTH_QUICK | HEALTH_PROLOG | HEALTH_EPILOG)
#define HEALTH_BOTH_ENDS (HEALTH_PROLOG | HEALTH_EPILOG)
#define HEALTH_LONG (HEALTH_PROLOG | HEALTH_EPILOG | HEALTH_JOB)

/* gemm: all processors multiply the same matrices for a while; every product
 * must have the bits of the first one, which must agree with an fp64 reference.
 * Its peak_ratio is the sum of the threads' fastest products over what the same
 * threads' multiply-adds reach (kernels' peak_flops).
 * triad: a = b + s c on arrays larger than the caches; 24 bytes per element.
 * GPUs come first: a driver that hangs is found while there is time. */
#define HEALTH_CHECK_LIST(CHECK)                                               \
    CHECK("gpu", "gpu", HEALTH_ALL, 10, health_gpu_state,                      \
          "what the driver says of the GPUs")                                  \
    CHECK("xid", "xid", HEALTH_IDLE, 5, health_xid_log,                        \
          "GPU faults in the kernel's log")                                    \
    CHECK("load", "host", HEALTH_ALL, 2, health_host_load,                     \
          "processes that want to run")                                        \
    CHECK("memory", "host", HEALTH_ALL, 2, health_host_memory,                 \
          "available memory")                                                  \
    CHECK("versions", "host", HEALTH_ALL, 3, health_versions,                  \
          "kernel, driver, firmware, libraries, memory")                       \
    CHECK("mounts", "host", HEALTH_ALL, 4, health_mounts,                      \
          "file systems that the site names")                                  \
    CHECK("services", "host", HEALTH_ALL, 2, health_processes_services,        \
          "services that the site names")                                      \
    CHECK("leftover", "host", HEALTH_BOTH_ENDS, 2, health_processes_leftover,  \
          "processes of users without a job")                                  \
    CHECK("blocked", "host", HEALTH_ALL, 2, health_host_blocked,               \
          "processes that wait in the kernel")                                 \
    CHECK("zombies", "host", HEALTH_ALL, 2, health_host_zombies,               \
          "ended processes that nobody asked for")                             \
    CHECK("ports", "host", HEALTH_ALL, 5, health_ports,                        \
          "links of InfiniBand and RoCE")                                      \
    CHECK("bus", "host", HEALTH_ALL, 2, health_bus,                            \
          "PCI Express errors, links of cards")                                \
    CHECK("edac", "host", HEALTH_ALL, 2, health_edac,                          \
          "memory errors by controller")                                       \
    CHECK("mce", "host", HEALTH_IDLE, 5, health_mce,                           \
          "machine checks in the kernel's log")                                \
    CHECK("shm", "fs", HEALTH_ALL, 2, health_fs_shm,                           \
          "room in /dev/shm, and writing there")                               \
    CHECK("tmp", "fs", HEALTH_ALL, 2, health_fs_tmp,                           \
          "room in /tmp, and writing there")                                   \
    CHECK("gemm", "cpu", HEALTH_LONG, 8, health_cpu_gemm,                      \
          "equal products on every processor")                                 \
    CHECK("triad", "cpu", HEALTH_JOB, 15, health_cpu_triad,                    \
          "memory bandwidth")                                                  \
    CHECK("gpumem", "gpu", HEALTH_BOTH_ENDS, 10, health_gpu_used,              \
          "GPU memory in use between jobs")

/* Those with work for all visible GPUs, in builds with CUDA alone. */
#define HEALTH_PROBE_LIST(CHECK)                                               \
    CHECK("gpugemm", "probe", HEALTH_JOB, 70, health_probe_gemm,               \
          "equal products on every GPU")                                       \
    CHECK("hbm", "probe", HEALTH_JOB, 70, health_probe_hbm,                    \
          "patterns in GPU memory, its speed")                                 \
    CHECK("pcie", "probe", HEALTH_JOB, 140, health_probe_pcie,                 \
          "copies between host and GPU")                                       \
    CHECK("peer", "probe", HEALTH_JOB, 40, health_probe_peer,                  \
          "copies between GPUs")                                               \
    CHECK("allreduce", "probe", HEALTH_JOB, 60, health_probe_allreduce,        \
          "sums over the GPUs by NCCL")

#define HEALTH_CHECK_DECLARE(id, group, phases, timeout_s, run, about)         \
    enum err run(const struct health_env *env, struct health_result *out);
HEALTH_CHECK_LIST(HEALTH_CHECK_DECLARE)
HEALTH_PROBE_LIST(HEALTH_CHECK_DECLARE)
