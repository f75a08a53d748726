/* What NVML says of this rank's GPU while it trains: load, memory, heat, power,
 * energy. */
#pragma once

#include "healthcheck/health_nvml.h"
#include "src/base/err.h"

struct gpu_usage {
    struct health_nvml library;
    int index;
    double last_j; /* its counter; NaN: not known */
};

/* NaN: not known. */
struct gpu_reading {
    double utilization; /* share of the last moments in which it computed */
    double memory;      /* bytes in use, by whomever */
    double celsius, watts, mhz;
    double throttled; /* 1: slowed down by heat or its supply */
    double capped;    /* 1: by its power limit, which is normal at full load */
    double joules;    /* since the last reading */
};

/* Opens the library and finds the GPU at this PCI address. ERR_UNSUPPORTED or
 * ERR_IO says why that does not work; `out` may be closed then, too. */
enum err gpu_usage_open(const char *file, const char *bus,
                        struct gpu_usage *out);
void gpu_usage_close(struct gpu_usage *usage);

/* ERR_IO: it does not answer. Takes milliseconds. */
enum err gpu_usage_read(struct gpu_usage *usage, struct gpu_reading *out);
