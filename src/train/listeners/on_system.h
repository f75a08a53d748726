/* What the listener of the system (on_system.c) puts together from all ranks,
 * for tests without its nodes. */
#pragma once

#include "healthcheck/health_nvml.h"
#include "src/job/node_usage.h"
#include "src/tracking/tracking_record.h"

/* --- what NVML says of this rank's GPU while it trains --- */

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

/* --- all that a rank says --- */

/* One rank's part. NaN: it does not know, or another rank of the node says it. */
struct system_part {
    double process_cpus, resident, peak;
    double node_cpu, load, available, received, sent, node_j; /* of a node */
    struct gpu_reading gpu;
    double interval_s; /* since the last part */
    char bus[16];      /* of the GPU; empty: none */
};

/* Where a part comes from. */
struct system_reader {
    const char *root;           /* before /proc and /sys */
    bool node;                  /* the rank speaks for its node */
    struct node_usage last;     /* and when: */
    double last_s, energy_s;    /* clock_now(); of its energy */
    struct node_energy *energy; /* NULL: not known, or not this rank's */
    double saved_j;             /* read, but not told yet */
    struct gpu_usage gpu;
    char bus[16];
};

/* `root` is lent. What of energy and the GPU (bus: NULL: none) does not work is
 * left out, and logged if `says`. */
void system_reader_open(const char *root, bool node, const char *bus, bool says,
                        struct system_reader *out);
void system_reader_close(struct system_reader *reader);
void system_reader_read(struct system_reader *reader, struct system_part *out);

/* Figures of all ranks' parts; host[r] tells nodes apart. */
void system_parts_tell(const struct system_part *parts, int count,
                       const char *const *hosts, struct tracking_list *out);
