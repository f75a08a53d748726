/* Listener: every monitor.system, and at the last step, what the job takes of its
 * machines since the time before, each node and GPU counted once:
 *
 *   system/process_cpus      processors that all ranks kept busy, together
 *   system/resident, system/resident_peak   bytes, of the rank that has most
 *   system/node_cpu          share of a node's processors that were busy, by
 *                            whomever: the mean of nodes
 *   system/load              of a minute, of the node that has most
 *   system/memory_available  bytes, of the node that has least
 *   system/network_received, system/network_sent   bytes a second, of all nodes
 *   system/disk_free         bytes, where the run directory is
 *   system/node_power        watts of processors and memory, of all nodes
 *   gpu/utilization (mean), gpu/memory, gpu/temperature (largest), gpu/power
 *   (of all), gpu/clock (MHz, smallest), gpu/throttled, gpu/power_capped (how
 *   many GPUs are slowed down by heat or supply; by their power limit)
 *   gpu/alerts               of this attempt (tessera-health watch), where there are any
 *   energy_j                 joules of all nodes' processors and GPUs
 *
 * What a machine does not tell is left out. */
#include "src/train/listeners/on_system.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/memory.h"
#include "src/base/new.h"
#include "src/job/ledger.h"
#include "src/train/listeners/monitor_due.h"
#include "src/train/run/run.h"

#define KEEP_S 60.0            /* energy is read so often at least */
#define ALERTS_TAIL (64 << 10) /* of the ledger: bytes that are looked at */

/* --- its GPU, by the health check's declarations of NVML --- */

enum err gpu_usage_open(const char *file, const char *bus,
                        struct gpu_usage *out)
{
    struct gpu_reading first;
    *out = (struct gpu_usage){ .last_j = NAN };
    TRY(health_nvml_open(file, &out->library));
    TRY(health_nvml_find(&out->library, bus, &out->index));
    return gpu_usage_read(out, &first);
}

void gpu_usage_close(struct gpu_usage *usage)
{
    health_nvml_close(&usage->library);
}

static double known(double value, double unit)
{
    return value < 0.0 ? NAN : value * unit;
}

static double has(int64_t throttle, int64_t reasons)
{
    return throttle < 0 ? NAN : (throttle & reasons) != 0;
}

enum err gpu_usage_read(struct gpu_usage *usage, struct gpu_reading *out)
{
    struct health_nvml_state state;
    bool hidden = false;
    TRY(health_nvml_look(&usage->library, usage->index, false, &state,
                         &hidden));
    if (hidden)
        return err_set(ERR_IO, "NVML: the GPU is not ours any more");
    double joules = known((double)state.millijoules, 1e-3);
    *out = (struct gpu_reading){
        .utilization = known(state.utilization, 0.01),
        .memory = known((double)state.used_bytes, 1.0),
        .celsius = known(state.celsius, 1.0),
        .watts = known(state.milliwatts, 1e-3),
        .mhz = known(state.sm_mhz, 1.0),
        .throttled =
            has(state.throttle, HEALTH_NVML_HARDWARE | HEALTH_NVML_SW_THERMAL),
        .capped = has(state.throttle, HEALTH_NVML_POWER_CAP),
        .joules = joules - usage->last_j,
    };
    usage->last_j = joules;
    return ERR_OK;
}

/* --- a rank's part --- */

void system_reader_open(const char *root, bool node, const char *bus, bool says,
                        struct system_reader *out)
{
    *out = (struct system_reader){ .root = root, .node = node };
    node_usage_read(root, &out->last);
    out->last_s = out->energy_s = clock_now();
    if (node && node_energy_create(root, &out->energy) != ERR_OK && says)
        log_debug("monitor.system: energy of processors is not known: %s",
                  err_text());
    if (bus == NULL)
        return;
    if (gpu_usage_open(HEALTH_NVML_FILE, bus, &out->gpu) == ERR_OK) {
        snprintf(out->bus, sizeof out->bus, "%s", bus);
        return;
    }
    if (says)
        log_info("monitor.system: nothing is known of GPUs: %s", err_text());
    gpu_usage_close(&out->gpu);
}

void system_reader_close(struct system_reader *reader)
{
    node_energy_destroy(reader->energy);
    gpu_usage_close(&reader->gpu);
    *reader = (struct system_reader){ .root = NULL };
}

static void keep(struct system_reader *reader)
{
    double joules = 0.0;
    if (reader->energy == NULL)
        return;
    reader->energy_s = clock_now();
    if (node_energy_read(reader->energy, &joules) == ERR_OK) {
        reader->saved_j += joules;
        return;
    }
    log_warn("monitor.system: %s: energy is not told any more", err_text());
    node_energy_destroy(reader->energy);
    reader->energy = NULL;
}

static void read_node(struct system_reader *reader,
                      const struct node_usage *now, double passed_s,
                      struct system_part *out)
{
    const struct node_usage *last = &reader->last;
    double all_s = now->all_s - last->all_s;
    assert(reader->node && passed_s > 0.0);
    keep(reader);
    /* a processor's tick is 10 ms: nothing may have passed */
    out->node_cpu = all_s > 0.0 ? (now->busy_s - last->busy_s) / all_s : NAN;
    out->load = now->load;
    out->available = now->available;
    out->received = (now->received - last->received) / passed_s;
    out->sent = (now->sent - last->sent) / passed_s;
    out->node_j = reader->energy != NULL ? reader->saved_j : NAN;
    reader->saved_j = 0.0;
}

static const struct gpu_reading no_gpu = { NAN, NAN, NAN, NAN,
                                           NAN, NAN, NAN, NAN };

void system_reader_read(struct system_reader *reader, struct system_part *out)
{
    struct node_usage now;
    double now_s = clock_now();
    double passed_s = fmax(now_s - reader->last_s, 1e-3);
    node_usage_read(reader->root, &now);
    *out = (struct system_part){
        .process_cpus = (now.process_s - reader->last.process_s) / passed_s,
        .resident = (double)memory_resident(),
        .peak = (double)memory_peak(),
        .node_cpu = NAN,
        .load = NAN,
        .available = NAN,
        .received = NAN,
        .sent = NAN,
        .node_j = NAN,
        .gpu = no_gpu,
        .interval_s = passed_s,
    };
    snprintf(out->bus, sizeof out->bus, "%s", reader->bus);
    if (reader->node)
        read_node(reader, &now, passed_s, out);
    if (reader->bus[0] != '\0' &&
        gpu_usage_read(&reader->gpu, &out->gpu) != ERR_OK) {
        log_warn("monitor.system: %s", err_text());
        out->gpu = no_gpu;
    }
    reader->last = now;
    reader->last_s = now_s;
}

/* --- all ranks' --- */

enum fold { FOLD_SUM, FOLD_MAX, FOLD_MIN, FOLD_MEAN };

#define PART(name, member, fold)                                               \
    {                                                                          \
        name, offsetof(struct system_part, member), fold                       \
    }

static const struct figure {
    const char *name;
    size_t at;
    enum fold fold;
} figures[] = {
    PART("system/process_cpus", process_cpus, FOLD_SUM),
    PART("system/resident", resident, FOLD_MAX),
    PART("system/resident_peak", peak, FOLD_MAX),
    PART("system/node_cpu", node_cpu, FOLD_MEAN),
    PART("system/load", load, FOLD_MAX),
    PART("system/memory_available", available, FOLD_MIN),
    PART("system/network_received", received, FOLD_SUM),
    PART("system/network_sent", sent, FOLD_SUM),
    PART("gpu/utilization", gpu.utilization, FOLD_MEAN),
    PART("gpu/memory", gpu.memory, FOLD_MAX),
    PART("gpu/temperature", gpu.celsius, FOLD_MAX),
    PART("gpu/power", gpu.watts, FOLD_SUM),
    PART("gpu/clock", gpu.mhz, FOLD_MIN),
    PART("gpu/throttled", gpu.throttled, FOLD_SUM),
    PART("gpu/power_capped", gpu.capped, FOLD_SUM),
};
static const struct figure node_joules = PART("node_j", node_j, FOLD_SUM);
static const struct figure gpu_joules = PART("gpu_j", gpu.joules, FOLD_SUM);

/* Ranks that share a GPU: the first one's figures count. */
static bool is_again(const struct system_part *parts, const char *const *hosts,
                     int r)
{
    for (int other = 0; other < r; other++)
        if (parts[r].bus[0] != '\0' &&
            strcmp(parts[other].bus, parts[r].bus) == 0 &&
            strcmp(hosts[other], hosts[r]) == 0)
            return true;
    return false;
}

/* NaN: nobody knows. */
static double fold(const struct figure *figure, const struct system_part *parts,
                   int count, const char *const *hosts)
{
    assert(count > 0 && figure->at <= offsetof(struct system_part, interval_s));
    double sum = 0.0, most = -INFINITY, least = INFINITY;
    int known = 0;
    bool of_gpu = figure->at >= offsetof(struct system_part, gpu) &&
                  figure->at < offsetof(struct system_part, interval_s);
    for (int r = 0; r < count; r++) {
        double value;
        memcpy(&value, (const char *)&parts[r] + figure->at, sizeof value);
        if (isnan(value) || (of_gpu && is_again(parts, hosts, r)))
            continue;
        known++;
        sum += value;
        most = fmax(most, value);
        least = fmin(least, value);
    }
    if (known == 0)
        return NAN;
    return figure->fold == FOLD_SUM   ? sum
           : figure->fold == FOLD_MAX ? most
           : figure->fold == FOLD_MIN ? least
                                      : sum / known;
}

void system_parts_tell(const struct system_part *parts, int count,
                       const char *const *hosts, struct tracking_list *out)
{
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        double value = fold(&figures[i], parts, count, hosts);
        if (!isnan(value))
            tracking_list_add(out, figures[i].name, value);
    }
    double nodes = fold(&node_joules, parts, count, hosts);
    double gpus = fold(&gpu_joules, parts, count, hosts);
    if (!isnan(nodes))
        tracking_list_add(out, "system/node_power",
                          nodes / parts[0].interval_s);
    if (!isnan(nodes) || !isnan(gpus))
        tracking_list_add(out, "energy_j",
                          (isnan(nodes) ? 0.0 : nodes) +
                              (isnan(gpus) ? 0.0 : gpus));
}

/* --- the listener --- */

struct on_system {
    const struct run *run;
    struct monitor_due due;
    struct system_reader reader;
    struct system_part *parts; /* [ranks] */
    const char **hosts;        /* [ranks] */
    double alerts;
};

struct alerts {
    int attempt;
    double count;
};

static enum err count_alert(void *arg, json_t *line)
{
    struct alerts *alerts = arg;
    const char *event = json_string_value(json_object_get(line, "event"));
    alerts->count +=
        event != NULL && strcmp(event, "gpu-alert") == 0 &&
        json_integer_value(json_object_get(line, "attempt")) == alerts->attempt;
    return ERR_OK;
}

static void tell_alerts(struct on_system *on, struct tracking_list *out)
{
    struct alerts alerts = { .attempt = on->run->attempt };
    (void)ledger_each_line(on->run->settings.run.dir, "ledger.jsonl",
                           ALERTS_TAIL, count_alert, &alerts);
    on->alerts = fmax(on->alerts, alerts.count);
    if (on->alerts > 0)
        tracking_list_add(out, "gpu/alerts", on->alerts);
}

static void on_system_destroy(void *self)
{
    struct on_system *on = self;
    system_reader_close(&on->reader);
    free(on->parts);
    free(on->hosts);
}

static enum err on_system_create(void *self, const struct run *run)
{
    struct on_system *on = self;
    struct comm *comm = run->comm;
    const struct kernel_memory *memory = run->engine.kernels->memory;
    const char *root = getenv("TESSERA_SYSTEM_ROOT");
    char bus[64];
    on->run = run;
    TRY(monitor_due_create(run, "monitor.system", run->settings.monitor.system,
                           true, &on->due));
    if (!monitor_due_ever(&on->due))
        return ERR_OK;
    TRY(new_zeroed(&on->parts, (size_t)run->ranks));
    TRY(new_zeroed(&on->hosts, (size_t)run->ranks));
    for (int r = 0; r < run->ranks; r++)
        on->hosts[r] = comm_host(comm, r);
    bool gpu =
        memory->identify != NULL && memory->identify(bus, sizeof bus) == ERR_OK;
    system_reader_open(root != NULL ? root : "", comm_local_rank(comm) == 0,
                       gpu ? bus : NULL, run->rank == 0, &on->reader);
    return ERR_OK;
}

static enum err on_system_handle(void *self, enum event event,
                                 const struct step_record *step,
                                 struct asks *asks)
{
    struct on_system *on = self;
    uint64_t bytes = 0;
    (void)event;
    (void)asks;
    if (!monitor_due_ever(&on->due))
        return ERR_OK;
    bool last = step->finished || step->stop_signal != 0;
    if (!monitor_due_now(&on->due, step) && !last) {
        /* counters of energy do not last for long */
        if (clock_now() - on->reader.energy_s >= KEEP_S)
            keep(&on->reader);
        return ERR_OK;
    }
    assert(on->parts != NULL && step->rank < step->ranks);
    system_reader_read(&on->reader, &on->parts[step->rank]);
    TRY(comm_gather_rows(on->run->comm, on->parts, sizeof on->parts[0]));
    if (step->rank != 0)
        return ERR_OK;
    system_parts_tell(on->parts, step->ranks, on->hosts, step->scalars);
    if (fsio_free_bytes(on->run->settings.run.dir, &bytes) == ERR_OK)
        tracking_list_add(step->scalars, "system/disk_free", (double)bytes);
    tell_alerts(on, step->scalars);
    return ERR_OK;
}

const struct listener_ops on_system_ops = { LISTENER_OF(struct on_system),
                                            .create = on_system_create,
                                            .destroy = on_system_destroy,
                                            .handle = on_system_handle };
