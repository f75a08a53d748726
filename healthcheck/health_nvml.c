/* Opens NVML with dlopen and asks each GPU for its state. What of it is bad is
 * decided in health_gpu.c.
 *
 * The library belongs to the driver and not to CUDA: it is on every node with
 * GPUs, in the version of that node, so functions that an older driver lacks are
 * left out and their answers are unknown. No context is made on the GPU, so
 * asking takes no memory there, and works while a job computes. */
#include "healthcheck/health_nvml.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "src/base/process.h"

/* Numbers of NVML's enumerations that are asked for here only. */
#define ECC_CORRECTED 0
#define ECC_UNCORRECTED 1
#define ECC_VOLATILE 0
#define ECC_AGGREGATE 1
#define RETIRED_CAUSES 2 /* many single-bit errors; a double-bit one */
#define CLOCK_SM 1
#define SENSOR_GPU 0
#define FIELD_RECOVERY_ACTION 230

static const int link_counters[] = { 0, 1, 3, 4 }; /* not flits: they retry */

#define SYMBOL(type, name, symbol, needed, ...)                                \
    { symbol, offsetof(struct health_nvml, name), !(needed) },
static const struct process_symbol symbols[] = { HEALTH_NVML_FUNCTIONS(
    SYMBOL) };

static enum err nvml_error(const struct health_nvml *library, int code,
                           const char *what)
{
    if (code == HEALTH_NVML_OK)
        return ERR_OK;
    return err_set(ERR_IO, "NVML: %s: %s; see nvidia-smi and dmesg", what,
                   library->error(code));
}

enum err health_nvml_open(const char *file, struct health_nvml *library)
{
    const struct process_library what = { PROCESS_LIBRARY("", file, symbols),
                                          .missing = "install NVIDIA's driver",
                                          .old = "install a newer driver",
                                          .unloads = true };
    TRY(process_library_open(&what, library, sizeof *library));
    enum err rc = nvml_error(library, library->init(), "starting");
    if (rc != ERR_OK)
        process_library_close(library, sizeof *library);
    return rc;
}

void health_nvml_close(struct health_nvml *library)
{
    if (library->opened != NULL)
        (void)library->shutdown();
    process_library_close(library, sizeof *library);
}

enum err health_nvml_count(const struct health_nvml *library, int *count)
{
    unsigned all = 0;
    enum err rc = nvml_error(library, library->count(&all), "counting GPUs");
    *count = (int)all;
    return rc;
}

/* `value` if the call is there and knows, else -1. */
#define KNOWN(member, value, ...)                                              \
    (library->member != NULL && library->member(__VA_ARGS__) == HEALTH_NVML_OK \
         ? (value)                                                             \
         : -1)

static void look_memory(const struct health_nvml *library, void *device,
                        struct health_nvml_state *out)
{
    unsigned long long count = 0;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    int waiting = 0;
    out->ecc_volatile = KNOWN(ecc_errors, (int64_t)count, device,
                              ECC_UNCORRECTED, ECC_VOLATILE, &count);
    out->ecc_aggregate = KNOWN(ecc_errors, (int64_t)count, device,
                               ECC_UNCORRECTED, ECC_AGGREGATE, &count);
    out->ecc_corrected = KNOWN(ecc_errors, (int64_t)count, device,
                               ECC_CORRECTED, ECC_VOLATILE, &count);
    out->remap_pending = KNOWN(remapped, (int)pending, device, &corrected,
                               &uncorrected, &pending, &failed);
    out->remap_failed = out->remap_pending < 0 ? -1 : (int)failed;
    out->pages_pending = KNOWN(retired_pending, waiting, device, &waiting);
    out->pages_retired = -1;
    for (int cause = 0; cause < RETIRED_CAUSES; cause++) {
        unsigned pages = 0;
        int code = library->retired == NULL
                       ? HEALTH_NVML_NOT_SUPPORTED
                       : library->retired(device, cause, &pages, NULL);
        if (code == HEALTH_NVML_OK || code == HEALTH_NVML_INSUFFICIENT_SIZE)
            out->pages_retired =
                (out->pages_retired < 0 ? 0 : out->pages_retired) + pages;
    }
}

/* Sums over the links that the card has; -1 as long as no link has answered. What
 * counts is replays, recoveries and wrong checksums, of which a good link has
 * next to none. */
static void look_links(const struct health_nvml *library, void *device,
                       struct health_nvml_state *out)
{
    out->links = -1;
    out->link_errors = -1;
    for (unsigned link = 0; link < HEALTH_NVML_LINKS; link++) {
        int active = 0;
        if (KNOWN(link_state, 0, device, link, &active) < 0)
            continue;
        out->links = (out->links < 0 ? 0 : out->links) + (active != 0);
        for (size_t i = 0; i < sizeof link_counters / sizeof(int); i++) {
            unsigned long long count = 0;
            if (KNOWN(link_errors, 0, device, link, link_counters[i], &count) <
                0)
                continue;
            out->link_errors =
                (out->link_errors < 0 ? 0 : out->link_errors) + (int64_t)count;
        }
    }
}

static void look_load(const struct health_nvml *library, void *device,
                      struct health_nvml_state *out)
{
    unsigned long long reasons = 0, millijoules = 0;
    struct health_nvml_memory memory = { 0 };
    struct health_nvml_utilization used = { 0 };
    unsigned number = 0;
    out->used_bytes = KNOWN(memory, (int64_t)memory.used, device, &memory);
    out->utilization = KNOWN(utilization, (int)used.gpu, device, &used);
    out->millijoules =
        KNOWN(energy, (int64_t)millijoules, device, &millijoules);
    out->throttle = KNOWN(throttle, (int64_t)reasons, device, &reasons);
    out->generation = KNOWN(pcie_generation, (int)number, device, &number);
    out->generation_max =
        KNOWN(pcie_generation_max, (int)number, device, &number);
    out->width = KNOWN(pcie_width, (int)number, device, &number);
    out->width_max = KNOWN(pcie_width_max, (int)number, device, &number);
    out->sm_mhz = KNOWN(clock, (int)number, device, CLOCK_SM, &number);
    out->celsius = KNOWN(temperature, (int)number, device, SENSOR_GPU, &number);
    out->milliwatts = KNOWN(power, (int)number, device, &number);
}

static void look_rest(const struct health_nvml *library, void *device,
                      struct health_nvml_state *out)
{
    unsigned number = HEALTH_NVML_PROCESSES;
    int on = 0;
    struct health_nvml_field field = { .id = FIELD_RECOVERY_ACTION };
    struct health_nvml_process processes[HEALTH_NVML_PROCESSES];
    look_memory(library, device, out);
    look_links(library, device, out);
    out->recovery = KNOWN(fields, field.code, device, 1, &field) == 0
                        ? (int)field.value.whole
                        : -1;
    out->persistence = KNOWN(persistence, on, device, &on);
    int code = library->processes == NULL
                   ? HEALTH_NVML_NOT_SUPPORTED
                   : library->processes(device, &number, processes);
    out->processes =
        code == HEALTH_NVML_OK || code == HEALTH_NVML_INSUFFICIENT_SIZE
            ? (int)number
            : -1;
}

static enum err nvml_device(const struct health_nvml *library, int index,
                            struct health_nvml_state *out, void **device,
                            bool *hidden)
{
    struct health_nvml_pci pci = { .bus = 0 };
    memset(out, 0, sizeof *out);
    snprintf(out->bus, sizeof out->bus, "?");
    assert(index >= 0);
    int code = library->handle((unsigned)index, device);
    *hidden = code == HEALTH_NVML_NO_PERMISSION;
    if (*hidden)
        return ERR_OK;
    if (code == HEALTH_NVML_OK)
        code = library->pci(*device, &pci);
    if (code == HEALTH_NVML_OK)
        snprintf(out->bus, sizeof out->bus, "%04x:%02x:%02x.0",
                 pci.domain & 0xffff, pci.bus & 0xff, pci.device & 0xff);
    return nvml_error(library, code, "looking for a GPU");
}

enum err health_nvml_look(const struct health_nvml *library, int index,
                          bool all, struct health_nvml_state *out, bool *hidden)
{
    void *device = NULL;
    enum err rc = nvml_device(library, index, out, &device, hidden);
    if (rc != ERR_OK || *hidden)
        return rc;
    look_load(library, device, out);
    if (all)
        look_rest(library, device, out);
    return ERR_OK;
}

enum err health_nvml_find(const struct health_nvml *library, const char *bus,
                          int *index)
{
    struct health_nvml_state state;
    void *device;
    int count = 0;
    bool hidden;
    TRY(health_nvml_count(library, &count));
    for (*index = 0; *index < count; *index += 1)
        if (nvml_device(library, *index, &state, &device, &hidden) == ERR_OK &&
            !hidden && strcasecmp(state.bus, bus) == 0)
            return ERR_OK;
    return err_set(ERR_DATA, "NVML has no GPU at %s", bus);
}
