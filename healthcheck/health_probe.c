/* What all probes share: a process for each GPU with a deadline, comparison of
 * GPUs with each other, and tables of results. Each probe has a file of its
 * own.
 *
 * There is no number that says how fast a GPU must be: it depends on the model,
 * the power cap, the cooling and the room. But the GPUs of a node are of one
 * kind, have one load and breathe the same air, so each is compared with the
 * others: it is slow if it is far below their median. What is far is told by
 * their spread, the median of the distances from the median (times 1.4826 it
 * estimates the deviation of a normal distribution), which one sick GPU among
 * eight cannot widen as it would a variance. Below both, by ratio and by spread,
 * it is bad; with few GPUs, whose median says little, it is worth a warning.
 * Administrators who know their machine set floors besides. */
#include "healthcheck/health_probe.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "healthcheck/health_child.h"
#include "healthcheck/health_gpu.h"
#include "kernels/cuda/device/cuda_device.h"
#include "src/base/clock.h"
#include "src/base/real.h"

#define PROBE_WARN_RATIO 0.95
#define PROBE_COHORT 8 /* fewer GPUs do not show what is normal */
#define PROBE_SIGMAS 4.0
#define PROBE_SIGMA_OF_MAD 1.4826
#define PROBE_MAD_MIN 0.01 /* of the median */

/* --- processes --- */

struct member {
    pid_t pid; /* -1: not there */
    int fd;
};

/* An I/O error of CUDA is the GPU's; others may be the program's or the
 * node's. */
static void measure_error(enum err rc, struct health_measure *out)
{
    bool ill = rc == ERR_IO;
    health_say(out, ill ? HEALTH_BAD : HEALTH_UNKNOWN,
               ill ? "GPU_ILL" : "CHECK_FAILED", "%s", err_text());
}

/* A process that has used CUDA cannot fork another that does, so this one, which
 * has not, is the parent of all. */
static struct member member_start(const struct health_probe *probe, int gpu,
                                  health_probe_run *run)
{
    struct member member = { .fd = -1 };
    struct health_measure found = {
        .gpu = gpu, .sm_mhz = -1, .celsius = -1, .watts = -1
    };
    member.pid = health_child_start(&member.fd);
    if (member.pid == 0) {
        enum err rc = run(probe, gpu, &found);
        if (rc != ERR_OK)
            measure_error(rc, &found);
        health_child_end(member.fd, &found, sizeof found);
    }
    return member;
}

/* False: it is late. */
static bool member_end(struct member *member, int gpu, double deadline,
                       struct health_measure *out)
{
    size_t bytes = 0;
    bool late = false;
    *out = (struct health_measure){ .gpu = gpu };
    if (member->pid < 0) {
        health_say(out, HEALTH_UNKNOWN, "NO_FORK", "no process could start");
        return true;
    }
    if (!health_child_wait(member->fd, deadline, out, sizeof *out, &bytes)) {
        late = true;
        assert(member->pid > 0); /* others would be killed */
        bool computes = health_child_computes(member->pid);
        *out = (struct health_measure){ .gpu = gpu };
        health_say(out, computes ? HEALTH_UNKNOWN : HEALTH_BAD,
                   computes ? "TIMEOUT" : "GPU_HANG", "does not answer");
        kill(member->pid, SIGKILL);
    } else if (bytes != sizeof *out) {
        *out = (struct health_measure){ .gpu = gpu };
        health_say(out, HEALTH_UNKNOWN, "CHECK_DIED",
                   "its process ended without a result");
    }
    close(member->fd);
    health_child_reap(member->pid);
    return !late;
}

void health_probe_each(const struct health_probe *probe, int count,
                       bool at_once, health_probe_run *run,
                       struct health_measure *out)
{
    struct member members[HEALTH_PROBE_GPUS];
    double turns_s = at_once ? 0 : probe->turn_s * (count - 1);
    double deadline = clock_now() + probe->timeout_s + turns_s;
    int answered = 0;
    assert(count <= HEALTH_PROBE_GPUS);
    for (int i = 0; i < count && at_once; i++)
        members[i] = member_start(probe, i, run);
    for (int i = 0; i < count; i++) {
        if (!at_once && clock_now() >= deadline) {
            out[i] = (struct health_measure){ .gpu = i };
            health_say(&out[i], HEALTH_UNKNOWN, "BUDGET",
                       "not looked at, one before it took all the time");
            continue;
        }
        if (!at_once)
            members[i] = member_start(probe, i, run);
        answered += member_end(&members[i], i, deadline, &out[i]);
    }
    /* Where others answered, the node was not too busy for this one. */
    for (int i = 0; i < count && answered > 0 && at_once; i++)
        if (strcmp(out[i].code, "TIMEOUT") == 0)
            health_say(&out[i], HEALTH_BAD, "GPU_HANG",
                       "does not answer, others do");
}

static enum err count_run(const struct health_probe *probe, int gpu,
                          struct health_measure *out)
{
    int count = 0;
    (void)gpu;
    TRY(probe->gpus->count(&count));
    out->values[0] = count;
    return ERR_OK;
}

int health_probe_measure(const struct health_probe *probe, const char *unit,
                         bool at_once, health_probe_run *run,
                         struct health_measure *measures,
                         struct health_result *out)
{
    struct health_measure first;
    snprintf(out->unit, sizeof out->unit, "%s", unit);
    health_probe_each(probe, 1, true, count_run, &first);
    int count = (int)fmin(first.values[0], HEALTH_PROBE_GPUS);
    health_gpu_found(out, first.state, first.code, -1, "", "%s", first.text);
    if (first.state != HEALTH_OK)
        return 0;
    health_probe_each(probe, count, at_once, run, measures);
    return count;
}

/* --- speeds --- */

enum health_state health_probe_among(const double *values, int count, int at,
                                     double ratio_min)
{
    double others[HEALTH_PROBE_GPUS];
    assert(count <= HEALTH_PROBE_GPUS && at >= 0 && at < count);
    int n = 0;
    for (int i = 0; i < count; i++)
        if (i != at && values[i] > 0)
            others[n++] = values[i];
    if (n == 0 || ratio_min <= 0)
        return HEALTH_OK;
    double middle = real_median(others, n);
    if (values[at] >= fmax(PROBE_WARN_RATIO, ratio_min) * middle)
        return HEALTH_OK;
    for (int i = 0; i < n; i++)
        others[i] = fabs(others[i] - middle);
    double spread = fmax(real_median(others, n), PROBE_MAD_MIN * middle);
    bool far =
        values[at] - middle < -PROBE_SIGMAS * PROBE_SIGMA_OF_MAD * spread;
    return values[at] < ratio_min * middle && far && n + 1 >= PROBE_COHORT
               ? HEALTH_BAD
               : HEALTH_WARN;
}

static void result_slow(const char *name, const char *what,
                        const struct health_measure *measure,
                        enum health_state state, double value, double limit,
                        struct health_result *out)
{
    char code[24];
    snprintf(code, sizeof code, "%s_SLOW", name);
    for (char *p = code; *p != '\0'; p++)
        *p = (char)toupper((unsigned char)*p);
    if (!health_gpu_found(out, state, code, measure->gpu, measure->bus,
                          "%s %.4g%s", what, value,
                          limit > 0 ? " below the floor" : " unlike others"))
        return;
    out->limit = limit;
    out->retest = true;
}

void health_probe_result(const struct health_probe *probe, const char *name,
                         const char *what, double floor,
                         const struct health_measure *measures, int count,
                         int which, struct health_result *out)
{
    assert(count <= HEALTH_PROBE_GPUS);
    assert(which >= 0 && which < HEALTH_PROBE_VALUES);
    double values[HEALTH_PROBE_GPUS];
    for (int i = 0; i < count; i++) {
        values[i] = measures[i].values[which];
        if (i == 0 &&
            health_injected(probe->env->inject, name, probe->env->host, "slow"))
            values[i] /= 2;
    }
    /* Facts first: what is certain needs no second try. */
    for (int i = 0; i < count; i++)
        health_gpu_found(out, measures[i].state, measures[i].code,
                         measures[i].gpu, measures[i].bus, "%s",
                         measures[i].text);
    for (int i = 0; i < count; i++) {
        const struct health_measure *m = &measures[i];
        if (m->state != HEALTH_OK)
            continue;
        if (out->value == 0 || values[i] < out->value)
            out->value = values[i];
        if (values[i] < floor)
            result_slow(name, what, m, HEALTH_BAD, values[i], floor, out);
        result_slow(name, what, m,
                    health_probe_among(values, count, i,
                                       probe->env->limits.gpu_ratio_min),
                    values[i], 0, out);
    }
}

void health_probe_print(struct health_result *out, const char *format, ...)
{
    size_t used = strlen(out->table);
    assert(used < sizeof out->table);
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(out->table + used, sizeof out->table - used, format,
                          arguments);
    va_end(arguments);
    if (bytes < 0 || (size_t)bytes >= sizeof out->table - used)
        out->table[used] = '\0';
}

/* --- what is probed --- */

enum err health_probe_default(const struct health_env *env,
                              struct health_probe *out)
{
    *out = (struct health_probe){ .env = env,
                                  .nvml = HEALTH_NVML_FILE,
                                  .side = 8192,
                                  .seconds = 6,
                                  .batch = 32,
                                  .memory_part = 0.8,
                                  .copy_bytes = (int64_t)256 << 20,
                                  .reduce_bytes_min = (int64_t)16 << 20,
                                  .reduce_bytes_max = (int64_t)1 << 30,
                                  .repeats = 20,
                                  .timeout_s = 30,
                                  .turn_s = 5 };
#ifdef KERNELS_CUDA
    out->gpus = &cuda_probe_table;
    return ERR_OK;
#else
    return err_set(ERR_UNSUPPORTED,
                   "this build has no CUDA; build with CUDA=1");
#endif
}

/* --- one GPU --- */

enum err health_probe_open(const struct cuda_probe *gpus, int gpu,
                           struct health_probe_gpu *out)
{
    size_t counts = CUDA_PROBE_COUNTS * sizeof(uint64_t);
    struct cuda_device_info info;
    struct kernel_limits limits = { .threads = 1,
                                    .tokens = 1,
                                    .batch = 1,
                                    .seq = 1,
                                    .width = 1,
                                    .heads = 1,
                                    .head_dim = 1,
                                    .vocab = 1 };
    *out = (struct health_probe_gpu){ .gpus = gpus,
                                      .memory = gpus->kernels->memory };
    size_t scratch = gpus->kernels->scratch_bytes(&limits);
    TRY(out->memory->use(gpu));
    TRY(gpus->info(&info));
    snprintf(out->bus, sizeof out->bus, "%s", info.bus);
    TRY(out->memory->stream_create(false, &out->ctx.stream));
    TRY(out->memory->tensors_create(scratch, &out->scratch));
    TRY(out->memory->tensors_create(counts, &out->counts));
    TRY(out->memory->host_create(counts, &out->host_counts));
    out->ctx.threads = 1;
    out->ctx.scratch = out->scratch.base;
    out->ctx.scratch_bytes = scratch;
    out->bytes_free = info.bytes_free > scratch ? info.bytes_free - scratch : 0;
    return ERR_OK;
}

void health_probe_close(struct health_probe_gpu *gpu)
{
    if (gpu->memory == NULL)
        return;
    gpu->memory->host_destroy(&gpu->host);
    gpu->memory->tensors_destroy(&gpu->tensors);
    gpu->memory->host_destroy(&gpu->host_counts);
    gpu->memory->tensors_destroy(&gpu->counts);
    gpu->memory->tensors_destroy(&gpu->scratch);
    gpu->memory->stream_destroy(gpu->ctx.stream);
}

enum err health_probe_counted(struct health_probe_gpu *gpu, uint64_t *sum)
{
    size_t bytes = CUDA_PROBE_COUNTS * sizeof(uint64_t);
    uint64_t *counts = (uint64_t *)(void *)gpu->host_counts.base;
    assert(gpu->host_counts.capacity >= bytes);
    *sum = 0;
    TRY(gpu->memory->download(gpu->ctx.stream, bytes, gpu->counts.base,
                              counts));
    TRY(gpu->memory->wait(gpu->ctx.stream));
    for (int i = 0; i < CUDA_PROBE_COUNTS; i++)
        *sum += counts[i];
    memset(counts, 0, bytes);
    TRY(gpu->memory->upload(gpu->ctx.stream, bytes, counts, gpu->counts.base));
    return gpu->memory->wait(gpu->ctx.stream);
}
