/* NVML, the driver's library, opened when a check runs: its functions and types
 * as this program declares them, one file for all of it. Checks call it in a
 * process of their own, because it hangs when a GPU does; training, whose rank
 * hangs with its GPU anyway, in the rank (src/train/listeners/on_system.c). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"

#define HEALTH_NVML_FILE "libnvidia-ml.so.1"
#define HEALTH_NVML_LINKS 36 /* of NVLink, at most */
#define HEALTH_NVML_PROCESSES 64

/* Codes that mean something to us; the library has a text for every one. */
enum health_nvml_code {
    HEALTH_NVML_OK = 0,
    HEALTH_NVML_NOT_SUPPORTED = 3,
    HEALTH_NVML_NO_PERMISSION = 4,
    HEALTH_NVML_INSUFFICIENT_SIZE = 7,
};

/* Bits of throttle reasons. */
enum health_nvml_throttle {
    HEALTH_NVML_POWER_CAP = 0x4, /* normal at full load */
    HEALTH_NVML_HW_SLOWDOWN = 0x8,
    HEALTH_NVML_SW_THERMAL = 0x20,
    HEALTH_NVML_HW_THERMAL = 0x40,
    HEALTH_NVML_POWER_BRAKE = 0x80,
    HEALTH_NVML_HARDWARE = 0x8 | 0x40 | 0x80
};

struct health_nvml_pci {
    char bus_legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32]; /* "00000000:0F:00.0" */
};

struct health_nvml_memory {
    unsigned long long total, free, used;
};

struct health_nvml_utilization {
    unsigned gpu, memory; /* per cent of the last moments */
};

struct health_nvml_process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

struct health_nvml_field {
    unsigned id, scope;
    long long timestamp, latency_us;
    int type, code;
    union {
        double real;
        unsigned whole;
        unsigned long long large;
    } value;
};

/* Its functions: what one returns, its name here and there, whether it is needed
 * (NULL else, where the library is too old for it), its arguments. */
#define HEALTH_NVML_FUNCTIONS(F)                                               \
    F(int, init, "nvmlInit_v2", true, void)                                    \
    F(int, shutdown, "nvmlShutdown", true, void)                               \
    F(const char *, error, "nvmlErrorString", true, int code)                  \
    F(int, count, "nvmlDeviceGetCount_v2", true, unsigned *count)              \
    F(int, handle, "nvmlDeviceGetHandleByIndex_v2", true, unsigned index,      \
      void **device)                                                           \
    F(int, pci, "nvmlDeviceGetPciInfo_v3", true, void *device,                 \
      struct health_nvml_pci *out)                                             \
    F(int, ecc_errors, "nvmlDeviceGetTotalEccErrors", false, void *device,     \
      int kind, int counter, unsigned long long *count)                        \
    F(int, remapped, "nvmlDeviceGetRemappedRows", false, void *device,         \
      unsigned *corrected, unsigned *uncorrected, unsigned *pending,           \
      unsigned *failed)                                                        \
    F(int, retired, "nvmlDeviceGetRetiredPages", false, void *device,          \
      int cause, unsigned *count, unsigned long long *addresses)               \
    F(int, retired_pending, "nvmlDeviceGetRetiredPagesPendingStatus", false,   \
      void *device, int *pending)                                              \
    F(int, throttle, "nvmlDeviceGetCurrentClocksThrottleReasons", false,       \
      void *device, unsigned long long *reasons)                               \
    F(int, pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration", false,      \
      void *device, unsigned *now)                                             \
    F(int, pcie_generation_max, "nvmlDeviceGetMaxPcieLinkGeneration", false,   \
      void *device, unsigned *most)                                            \
    F(int, pcie_width, "nvmlDeviceGetCurrPcieLinkWidth", false, void *device,  \
      unsigned *now)                                                           \
    F(int, pcie_width_max, "nvmlDeviceGetMaxPcieLinkWidth", false,             \
      void *device, unsigned *most)                                            \
    F(int, link_state, "nvmlDeviceGetNvLinkState", false, void *device,        \
      unsigned link, int *active)                                              \
    F(int, link_errors, "nvmlDeviceGetNvLinkErrorCounter", false,              \
      void *device, unsigned link, int counter, unsigned long long *count)     \
    F(int, persistence, "nvmlDeviceGetPersistenceMode", false, void *device,   \
      int *on)                                                                 \
    F(int, memory, "nvmlDeviceGetMemoryInfo", false, void *device,             \
      struct health_nvml_memory *out)                                          \
    F(int, processes, "nvmlDeviceGetComputeRunningProcesses_v3", false,        \
      void *device, unsigned *count, struct health_nvml_process *out)          \
    F(int, clock, "nvmlDeviceGetClockInfo", false, void *device, int kind,     \
      unsigned *mhz)                                                           \
    F(int, temperature, "nvmlDeviceGetTemperature", false, void *device,       \
      int sensor, unsigned *celsius)                                           \
    F(int, power, "nvmlDeviceGetPowerUsage", false, void *device,              \
      unsigned *milliwatts)                                                    \
    F(int, utilization, "nvmlDeviceGetUtilizationRates", false, void *device,  \
      struct health_nvml_utilization *out)                                     \
    F(int, energy, "nvmlDeviceGetTotalEnergyConsumption", false, void *device, \
      unsigned long long *millijoules)                                         \
    F(int, fields, "nvmlDeviceGetFieldValues", false, void *device, int count, \
      struct health_nvml_field *values)

#define HEALTH_NVML_MEMBER(type, name, symbol, needed, ...)                    \
    type (*name)(__VA_ARGS__);
struct health_nvml {
    void *opened; /* by dlopen */
    HEALTH_NVML_FUNCTIONS(HEALTH_NVML_MEMBER)
};

/* What a GPU says of itself; -1: it does not know. */
struct health_nvml_state {
    char bus[16];         /* "0000:0f:00.0" */
    int64_t ecc_volatile; /* uncorrectable errors since the driver was loaded */
    int64_t ecc_aggregate; /* since it was made */
    int64_t ecc_corrected; /* since the driver was loaded */
    int remap_pending, remap_failed;
    int64_t pages_retired;
    int pages_pending;
    int recovery; /* 0: none, 1 reset, 2 reboot, 3 and 4 drain */
    int64_t throttle;
    int generation, generation_max, width, width_max;
    int links;           /* of NVLink that are active */
    int64_t link_errors; /* of all: replays, recoveries, CRC and ECC */
    int persistence;
    int64_t used_bytes;
    int processes; /* that compute */
    int sm_mhz, celsius, milliwatts;
    int utilization;     /* per cent */
    int64_t millijoules; /* since the driver was loaded */
};

/* Opens `file` and starts the library. ERR_UNSUPPORTED: there is none, or it
 * lacks something; ERR_IO: it is there, but the driver does not work. `library`
 * is zeros after a failure. */
enum err health_nvml_open(const char *file, struct health_nvml *library);
void health_nvml_close(struct health_nvml *library);

enum err health_nvml_count(const struct health_nvml *library, int *count);

/* GPU number `index`; unless `all` is wanted only throttle reasons, the bus, clock,
 * temperature, power, energy, utilization and memory in use, which is quick, and
 * the rest of `out` is 0. ERR_IO: it does not answer. *hidden: it is not ours to
 * look at, and nothing is known. */
enum err health_nvml_look(const struct health_nvml *library, int index,
                          bool all, struct health_nvml_state *out,
                          bool *hidden);

/* The number of the GPU at a PCI address; ERR_DATA: there is none. */
enum err health_nvml_find(const struct health_nvml *library, const char *bus,
                          int *index);
