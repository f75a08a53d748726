/* NVML for tests, a shared library: NVML_FAKE says how many GPUs there are and
 * what is wrong with GPU 1, as "count=2,ecc=3", or with another, "ecc.0=3"; or @FILE, which
 * has it, a line for each look, the last one for all to come. Words: count, init, count_code,
 * lost, hidden, ecc, corrected, past, pending, failed, pages, pages_pending, recovery,
 * throttle, celsius, gpu, joules, generation, width, links, link_errors,
 * persistence, used, processes. NVML_FAKE_OLD leaves out what old drivers lack. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "healthcheck/health_nvml.h"

/* The number after `word`; `otherwise` if it is not there. */
static long told(const char *word, long otherwise)
{
    const char *text = getenv("NVML_FAKE");
    size_t length = strlen(word);
    char line[256] = "";
    if (text != NULL && *text == '@') {
        FILE *file = fopen(text + 1, "r");
        if (file != NULL && fgets(line, sizeof line, file) == NULL)
            line[0] = '\0';
        if (file != NULL)
            fclose(file);
        text = line;
    }
    while (text != NULL && *text != '\0') {
        if (strncmp(text, word, length) == 0 && text[length] == '=')
            return strtol(text + length + 1, NULL, 0);
        text = strchr(text, ',');
        text += text != NULL;
    }
    return otherwise;
}

/* The others are sound. */
static long of(const void *device, const char *word, long sound)
{
    char own[64];
    size_t number = (size_t)((const char *)device - (const char *)NULL) - 1;
    snprintf(own, sizeof own, "%s.%zu", word, number);
    return told(own, number == 1 ? told(word, sound) : sound);
}

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int code);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetPciInfo_v3(void *device, struct health_nvml_pci *out);

int nvmlInit_v2(void)
{
    return (int)told("init", 0);
}

/* A look is over. */
int nvmlShutdown(void)
{
    const char *text = getenv("NVML_FAKE");
    char lines[4096] = "";
    FILE *file = text != NULL && *text == '@' ? fopen(text + 1, "r") : NULL;
    if (file == NULL)
        return 0;
    size_t bytes = fread(lines, 1, sizeof lines - 1, file);
    fclose(file);
    const char *rest = strchr(lines, '\n');
    if (bytes > 0 && rest != NULL && rest[1] != '\0' &&
        (file = fopen(text + 1, "w")) != NULL) {
        fputs(rest + 1, file);
        fclose(file);
    }
    return 0;
}

const char *nvmlErrorString(int code)
{
    return code == 9    ? "Driver Not Loaded"
           : code == 15 ? "GPU is lost"
                        : "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = (unsigned)told("count", 2);
    return (int)told("count_code", 0);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = (char *)NULL + index + 1;
    return of(*device, "lost", 0)     ? 15
           : of(*device, "hidden", 0) ? HEALTH_NVML_NO_PERMISSION
                                      : 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct health_nvml_pci *out)
{
    out->bus = 0x0e + (unsigned)((char *)device - (char *)NULL);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    return 0;
}

#ifndef NVML_FAKE_OLD
#define NUMBER(name, type, word, sound)                                        \
    int name(void *device, type *out);                                         \
    int name(void *device, type *out)                                          \
    {                                                                          \
        *out = (type)of(device, word, sound);                                  \
        return 0;                                                              \
    }

NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, int, "pages_pending", 0)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long,
       "throttle", HEALTH_NVML_POWER_CAP)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, "generation", 5)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, "generation_max", 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, "width", 16)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, "width_max", 16)
NUMBER(nvmlDeviceGetPersistenceMode, int, "persistence", 1)
NUMBER(nvmlDeviceGetPowerUsage, unsigned, "milliwatts", 90000)

int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter,
                                unsigned long long *count);
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected,
                              unsigned *uncorrected, unsigned *pending,
                              unsigned *failed);
int nvmlDeviceGetRetiredPages(void *device, int cause, unsigned *count,
                              unsigned long long *addresses);
int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active);
int nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned link, int counter,
                                    unsigned long long *count);
int nvmlDeviceGetMemoryInfo(void *device, struct health_nvml_memory *out);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count,
                                            struct health_nvml_process *out);
int nvmlDeviceGetUtilizationRates(void *device,
                                  struct health_nvml_utilization *out);
int nvmlDeviceGetTotalEnergyConsumption(void *device,
                                        unsigned long long *millijoules);
int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
int nvmlDeviceGetFieldValues(void *device, int count,
                             struct health_nvml_field *values);

int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter,
                                unsigned long long *count)
{
    *count = (unsigned long long)(kind == 0      ? of(device, "corrected", 1000)
                                  : counter == 0 ? of(device, "ecc", 0)
                                                 : of(device, "past", 0));
    return 0;
}

int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected,
                              unsigned *uncorrected, unsigned *pending,
                              unsigned *failed)
{
    *corrected = *uncorrected = 1;
    *pending = (unsigned)of(device, "pending", 0);
    *failed = (unsigned)of(device, "failed", 0);
    return 0;
}

int nvmlDeviceGetRetiredPages(void *device, int cause, unsigned *count,
                              unsigned long long *addresses)
{
    (void)addresses;
    *count = cause == 0 ? (unsigned)of(device, "pages", 0) : 0;
    return *count > 0 ? HEALTH_NVML_INSUFFICIENT_SIZE : 0;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active)
{
    *active = (long)link < of(device, "links", 12);
    return 0;
}

int nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned link, int counter,
                                    unsigned long long *count)
{
    *count = link == 3 && counter == 1
                 ? (unsigned long long)of(device, "link_errors", 0)
             : counter == 2 ? 1000
                            : 0;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct health_nvml_memory *out)
{
    out->total = 1ull << 37;
    out->used = (unsigned long long)of(device, "used", 500) << 20;
    out->free = out->total - out->used;
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device,
                                  struct health_nvml_utilization *out)
{
    out->gpu = (unsigned)of(device, "gpu", 50);
    out->memory = 25;
    return 0;
}

/* Of the last call, too, that many joules. */
int nvmlDeviceGetTotalEnergyConsumption(void *device,
                                        unsigned long long *millijoules)
{
    static unsigned long long calls[3];
    unsigned long long call = ++calls[device == (const void *)2];
    *millijoules =
        1000000 + call * 1000 * (unsigned long long)of(device, "joules", 30);
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count,
                                            struct health_nvml_process *out)
{
    unsigned running = (unsigned)of(device, "processes", 0);
    for (unsigned i = 0; i < running && i < *count; i++)
        out[i] = (struct health_nvml_process){ .pid = i + 1 };
    int code = running > *count ? HEALTH_NVML_INSUFFICIENT_SIZE : 0;
    *count = running;
    return code;
}

int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz)
{
    (void)device;
    *mhz = kind == 1 ? 1980 : 2619;
    return 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    (void)sensor;
    *celsius = (unsigned)of(device, "celsius", 40);
    return 0;
}

int nvmlDeviceGetFieldValues(void *device, int count,
                             struct health_nvml_field *values)
{
    for (int i = 0; i < count; i++) {
        values[i].code = values[i].id == 230 ? 0 : HEALTH_NVML_NOT_SUPPORTED;
        values[i].value.whole = (unsigned)of(device, "recovery", 0);
    }
    return 0;
}
#endif
