/* Probes: what the GPUs of this node do, measured on all of them. A GPU that
 * hangs takes its process along, and driver state is not to be shared, so each
 * GPU has a process where it is alone; peers and the all-reduce have one for
 * all. Speeds are judged among the GPUs of the node. */
#pragma once

#include "healthcheck/health.h"
#include "kernels/cuda/cuda_probe.h"
#include "src/comm/comm_nccl_library.h"

#define HEALTH_PROBE_GPUS 16
#define HEALTH_PROBE_VALUES 2

/* What is probed, and how much of it; tests have their own. */
struct health_probe {
    const struct health_env *env;
    const struct cuda_probe *gpus;
    const char *nvml; /* file of the library; NULL: do not ask */
    const struct comm_nccl_library *nccl; /* NULL: the real one */
    int64_t side;                         /* of products */
    double seconds;                       /* of products */
    int batch;          /* products between two looks at the counts */
    double memory_part; /* of the free memory: patterns */
    int64_t copy_bytes; /* of copies over a bus */
    int64_t reduce_bytes_min, reduce_bytes_max; /* steps of 8 */
    int repeats;
    double timeout_s; /* for the processes of all GPUs */
    double turn_s; /* more for each GPU but the first where they take turns */
};

/* What one GPU's process found. */
struct health_measure {
    int gpu;
    char bus[24];
    enum health_state state;
    char code[24];
    char text[80];
    double values[HEALTH_PROBE_VALUES];
    uint64_t checksum;          /* equal on all GPUs of one kind; 0: none */
    int sm_mhz, celsius, watts; /* -1: not known */
};

typedef enum err health_probe_run(const struct health_probe *probe, int gpu,
                                  struct health_measure *out);

/* --- health_probe.c --- */

/* The real ones. ERR_UNSUPPORTED in builds without CUDA. */
enum err health_probe_default(const struct health_env *env,
                              struct health_probe *out);

/* Calls run() in a process for each of `count` GPUs, all at once or one after
 * the other. A process that does not answer in time is bad if it sleeps or if
 * another one answered, else unknown. */
void health_probe_each(const struct health_probe *probe, int count,
                       bool at_once, health_probe_run *run,
                       struct health_measure *out);

/* The same for all visible GPUs, of which it returns the number, asked for in a
 * process of its own: after a call to CUDA a process cannot fork ones that use
 * it. 0: there are none, or the result says why that is not known. */
int health_probe_measure(const struct health_probe *probe, const char *unit,
                         bool at_once, health_probe_run *run,
                         struct health_measure *measures,
                         struct health_result *out);

/* The state of values[at] among all `count`: warn below 0.95 of the median of
 * the others; below `ratio_min` of it bad, if there are at least 8 and it is
 * far outside of their spread, too. 0: only ok. */
enum health_state health_probe_among(const double *values, int count, int at,
                                     double ratio_min);

/* The result of a check from its GPUs' measures: the gravest, then speeds
 * against the floor and among each other. `name` is the
 * check's id: slow ones have the code NAME_SLOW. Value
 * number `which`; the result's value is the smallest of all calls. */
void health_probe_result(const struct health_probe *probe, const char *name,
                         const char *what, double floor,
                         const struct health_measure *measures, int count,
                         int which, struct health_result *out);

/* Adds lines to the result's table; what does not fit is left out. */
void health_probe_print(struct health_result *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Memory, a stream and counts of the GPU that the thread uses. */
struct health_probe_gpu {
    const struct cuda_probe *gpus;
    const struct kernel_memory *memory;
    struct kernel_ctx ctx;
    struct arena scratch, counts, host_counts, tensors, host;
    char bus[24];
    size_t bytes_free;
};

enum err health_probe_open(const struct cuda_probe *gpus, int gpu,
                           struct health_probe_gpu *out);
void health_probe_close(struct health_probe_gpu *gpu);
/* Waits; *sum: of the counts since the last call. */
enum err health_probe_counted(struct health_probe_gpu *gpu, uint64_t *sum);

/* --- what the checks do, on what is lent, and on the real ones --- */

#define HEALTH_PROBE_CHECK(name)                                               \
    enum err health_probe_##name(const struct health_env *env,                 \
                                 struct health_result *out)                    \
    {                                                                          \
        struct health_probe probe;                                             \
        TRY(health_probe_default(env, &probe));                                \
        return health_probe_##name##_run(&probe, out);                         \
    }

enum err health_probe_gemm_run(const struct health_probe *probe,
                               struct health_result *out);
enum err health_probe_hbm_run(const struct health_probe *probe,
                              struct health_result *out);
enum err health_probe_pcie_run(const struct health_probe *probe,
                               struct health_result *out);
enum err health_probe_peer_run(const struct health_probe *probe,
                               struct health_result *out);
enum err health_probe_allreduce_run(const struct health_probe *probe,
                                    struct health_result *out);
