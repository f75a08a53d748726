/* Checks of the GPUs by what the driver says of them (NVML, PCI devices):
 * number, errors, clocks, links, memory in use. It starts no work on them:
 * health_probe*.c do.
 *
 * The classes (bad or worth a warning) are those on which the public health
 * checks of GPU clusters agree; DESIGN.md has the list. Their sense is: what a
 * job would meet is bad (memory that lies, a link that is down, a reset that is
 * due), what has happened and was mended is a warning (errors of a card's past,
 * retries on a link). A number that the driver does not know is -1 and no fault:
 * older drivers know less, and not every card has all of it.
 *
 * How many GPUs must be there is asked of the administrator first, then of
 * Slurm, then of the PCI bus, which may show a card that the driver has lost:
 * a check that only looked at the driver's would be content with seven of
 * eight. */
#include "healthcheck/health_checks.h"
#include "healthcheck/health_gpu.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "healthcheck/health_past.h"
#include "src/base/sysfile.h"
#include "src/base/clock.h"

#define GPU_MAX 64
#define GPU_VENDOR 0x10de
#define GPU_CLASS_VGA 0x0300
#define GPU_CLASS_3D 0x0302
#define GPU_PAGES_MAX 63 /* retired pages that a card may have */
#define GPU_LINK_ERRORS_MAX 5
#define GPU_USED_LOOKS 4 /* what a job left behind may be on its way out */
#define GPU_MIB 1048576.0

#ifdef KERNELS_CUDA
#define GPU_BUILT true
#else
#define GPU_BUILT false
#endif

static int pci_count(const char *root)
{
    glob_t found;
    int count = 0;
    sysfile_find(root, "/sys/bus/pci/devices/*", &found);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *device = found.gl_pathv[i];
        int class = (int)sysfile_number("%s/class", device) >> 8;
        count += (class == GPU_CLASS_VGA || class == GPU_CLASS_3D) &&
                 sysfile_number("%s/vendor", device) == GPU_VENDOR;
    }
    globfree(&found);
    return count;
}

/* Slurm's ways to tell a job that it has none. */
static bool job_without(const struct health_env *env)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return env->phase == HEALTH_JOB && visible != NULL &&
           (*visible == '\0' || strcmp(visible, "NoDevFiles") == 0 ||
            strcmp(visible, "-1") == 0);
}

int health_gpu_expected(const struct health_env *env)
{
    if (job_without(env))
        return 0;
    if (env->limits.gpu_count > 0)
        return (int)env->limits.gpu_count;
    if (env->gpus > 0)
        return env->gpus;
    return GPU_BUILT ? pci_count(env->root) : 0;
}

bool health_gpu_found(struct health_result *out, enum health_state state,
                      const char *code, int gpu, const char *bus,
                      const char *format, ...)
{
    char text[256], line[sizeof out->text];
    va_list arguments;
    assert(gpu < 0 || bus != NULL);
    if (state == HEALTH_OK)
        return false;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (gpu >= 0)
        snprintf(line, sizeof line, "GPU %d %.15s: %.46s", gpu, bus, text);
    else
        snprintf(line, sizeof line, "%.79s", text);
    size_t used = strlen(out->table), room = sizeof out->table - used;
    int bytes = snprintf(out->table + used, room, "%s %s %s\n",
                         health_state_name(state), code, line);
    if ((size_t)bytes >= room)
        out->table[used] = '\0';
    if (health_worse(out->state, state) == out->state)
        return false;
    health_say(out, state, code, "%s", line);
    return true;
}

/* --- what each says --- */

#define BAD(code, ...)                                                         \
    health_gpu_found(out, HEALTH_BAD, code, gpu, s->bus, __VA_ARGS__)
#define WARN(code, ...)                                                        \
    health_gpu_found(out, HEALTH_WARN, code, gpu, s->bus, __VA_ARGS__)

/* Memory cards mend themselves: rows with errors are replaced by spare ones, and
 * pages of older cards are no longer used. Both take effect at the next reset,
 * which is why one that waits is bad, and a card without spare rows is at its
 * end. */
static void judge_memory(const struct health_nvml_state *s, int gpu,
                         struct health_result *out)
{
    if (s->ecc_volatile > 0)
        BAD("GPU_ECC", "%lld uncorrectable memory errors",
            (long long)s->ecc_volatile);
    if (s->remap_failed > 0)
        BAD("GPU_REMAP_FAILED", "no rows left to remap; replace it");
    if (s->remap_pending > 0)
        BAD("GPU_REMAP_PENDING", "rows wait to be remapped; reset it");
    if (s->pages_pending > 0)
        BAD("GPU_PAGES_PENDING", "pages wait to be retired; reset it");
    if (s->pages_retired >= GPU_PAGES_MAX)
        BAD("GPU_PAGES", "%lld retired pages; replace it",
            (long long)s->pages_retired);
    if (s->ecc_aggregate > 0)
        WARN("GPU_ECC_PAST", "%lld uncorrectable errors in its life",
             (long long)s->ecc_aggregate);
}

static void judge_links(const struct health_env *env,
                        const struct health_nvml_state *s, int gpu, int links,
                        struct health_result *out)
{
    if (s->links < links && s->links >= 0)
        BAD("GPU_NVLINK", "%d of %d NVLinks are active", s->links, links);
    else if (s->links < 0 && env->limits.gpu_nvlinks > 0)
        BAD("GPU_NVLINK", "says nothing of NVLinks, %d are expected", links);
    if (s->link_errors >= GPU_LINK_ERRORS_MAX)
        WARN("GPU_NVLINK_ERRORS", "%lld errors on NVLinks",
             (long long)s->link_errors);
    /* The generation falls when nobody uses the link; the width does not. */
    if (s->width > 0 && s->width < s->width_max)
        WARN("GPU_PCIE_WIDTH", "PCIe x%d of x%d", s->width, s->width_max);
}

static void judge_one(const struct health_env *env,
                      const struct health_nvml_state *s, int gpu, int links,
                      struct health_result *out)
{
    static const char *const actions[] = { "none", "reset", "reboot",
                                           "drain of its peers",
                                           "drain and reset" };
    if (s->recovery > 0)
        BAD("GPU_RECOVERY", "asks for a %s",
            s->recovery < 5 ? actions[s->recovery] : "recovery");
    judge_memory(s, gpu, out);
    judge_links(env, s, gpu, links, out);
    if (s->throttle > 0 && (s->throttle & HEALTH_NVML_HARDWARE) != 0)
        WARN("GPU_SLOWED", "slowed by its hardware, reasons 0x%llx, %d C",
             (unsigned long long)s->throttle, s->celsius);
    if (s->throttle > 0 && (s->throttle & HEALTH_NVML_SW_THERMAL) != 0)
        WARN("GPU_HOT", "slowed because of %d C", s->celsius);
    if (s->persistence == 0)
        WARN("GPU_PERSISTENCE", "not persistent; start nvidia-persistenced");
}

void health_gpu_judge(const struct health_env *env,
                      const struct health_nvml_state *states, int count,
                      struct health_result *out)
{
    /* Cards of one kind may have fewer links by design, but not one of them. */
    int links = (int)env->limits.gpu_nvlinks;
    for (int i = 0; i < count && env->limits.gpu_nvlinks <= 0; i++)
        links = states[i].links > links ? states[i].links : links;
    for (int i = 0; i < count; i++)
        judge_one(env, &states[i], i, links, out);
}

/* What only several looks tell; both also come of heavy work in a warm room, so they
 * are no more than warnings. */
static void judge_past(const struct health_env *env,
                       const struct health_nvml_state *states, int count,
                       struct health_result *out)
{
    struct health_past past;
    double per_hour;
    health_past_open(env, "gpu", &past);
    for (int gpu = 0; gpu < count; gpu++) {
        const struct health_nvml_state *s = &states[gpu];
        bool slowed =
            s->throttle > 0 && (s->throttle & HEALTH_NVML_HARDWARE) != 0;
        double minutes = health_past_lasting(&past, s->bus, slowed) / 60;
        if (slowed && minutes >= env->limits.gpu_slowed_minutes)
            WARN("GPU_SLOWED_LONG", "slowed by its hardware for %.0f min",
                 minutes);
        (void)health_past_growth(&past, s->bus, (double)s->ecc_corrected,
                                 &per_hour);
        if (per_hour > env->limits.gpu_corrected_per_hour)
            WARN("GPU_ECC_RATE", "%.0f corrected memory errors an hour",
                 per_hour);
    }
    health_past_close(&past);
}

/* --- the checks --- */

/* A job sees what it was given. */
static int expected_here(const struct health_env *env)
{
    const char *given = getenv("SLURM_GPUS_ON_NODE");
    int expected = health_gpu_expected(env);
    int ours = given == NULL ? 0 : atoi(given);
    return !health_drains(env) && ours > 0 && ours < expected ? ours : expected;
}

/* A library that is there and does not start, with GPUs on the bus, is a sick
 * driver; one that is not there proves nothing. */
static enum err gpu_open(struct health_nvml *library, struct health_result *out)
{
    enum err rc = health_nvml_open(HEALTH_NVML_FILE, library);
    bool sick = rc == ERR_IO;
    if (rc != ERR_OK)
        health_gpu_found(out, sick ? HEALTH_BAD : HEALTH_UNKNOWN,
                         sick ? "GPU_DRIVER" : "NVML_MISSING", -1, "", "%s",
                         err_text());
    return rc;
}

static int gpu_look(const struct health_nvml *library,
                    struct health_nvml_state *states, int *seen,
                    struct health_result *out)
{
    int known = 0, count = 0;
    *seen = 0;
    if (health_nvml_count(library, &count) != ERR_OK)
        health_gpu_found(out, HEALTH_BAD, "GPU_DRIVER", -1, "", "%s",
                         err_text());
    for (int i = 0; i < count && i < GPU_MAX; i++) {
        bool hidden;
        assert(known <= i && known < GPU_MAX);
        if (health_nvml_look(library, i, true, &states[known], &hidden) !=
            ERR_OK) {
            health_gpu_found(out, HEALTH_BAD, "GPU_LOST", i, states[known].bus,
                             "%s", err_text());
            *seen += 1;
        } else {
            known += !hidden;
            *seen += !hidden;
        }
    }
    return known;
}

enum err health_gpu_state(const struct health_env *env,
                          struct health_result *out)
{
    struct health_nvml library;
    struct health_nvml_state states[GPU_MAX];
    int expected = expected_here(env);
    int seen = 0;
    snprintf(out->unit, sizeof out->unit, "GPUs");
    if (gpu_open(&library, out) != ERR_OK)
        return ERR_OK;
    int known = gpu_look(&library, states, &seen, out);
    if (health_injected(env->inject, "gpu", env->host, "lost") && seen > 0)
        seen--;
    out->value = seen;
    if (seen < expected) {
        out->limit = expected;
        health_gpu_found(out, HEALTH_BAD, "GPU_MISSING", -1, "",
                         "the driver shows %d of %d GPUs", seen, expected);
    }
    judge_past(env, states, known, out);
    health_gpu_judge(env, states, known, out);
    health_nvml_close(&library);
    return ERR_OK;
}

enum err health_gpu_used(const struct health_env *env,
                         struct health_result *out)
{
    struct health_nvml library;
    struct health_nvml_state states[GPU_MAX];
    struct health_result fresh = *out;
    snprintf(fresh.unit, sizeof fresh.unit, "MiB");
    *out = fresh;
    if (gpu_open(&library, out) != ERR_OK)
        return ERR_OK;
    for (int look = 0; look < GPU_USED_LOOKS; look++) {
        int seen;
        *out = fresh;
        clock_sleep(look > 0 ? 1 : 0);
        int known = gpu_look(&library, states, &seen, out);
        for (int i = 0; i < known; i++) {
            double mib = (double)states[i].used_bytes / GPU_MIB;
            out->value = mib > out->value ? mib : out->value;
            if (states[i].processes > 0 || mib > env->limits.gpu_used_max_mib)
                health_gpu_found(out, HEALTH_WARN, "GPU_USED", i, states[i].bus,
                                 "%.0f MiB used, %d processes", mib,
                                 states[i].processes);
        }
        if (out->state == HEALTH_OK)
            break;
    }
    health_nvml_close(&library);
    return ERR_OK;
}
