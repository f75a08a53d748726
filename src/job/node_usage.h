/* What a node and this process on it use of processors, memory and network, from
 * /proc: the counters, of which two readings make a rate. */
#pragma once

#include "src/base/err.h"

struct node_usage {
    double process_s; /* processor time of this process, all threads */
    /* of all processors together, since they were started: what somebody used,
     * and with the idle rest; NaN: not known, as in what follows */
    double busy_s, all_s;
    double load;           /* processes that run or wait, over a minute */
    double received, sent; /* bytes of all interfaces but the loopback; not what
                              goes past the kernel, as RDMA does */
    double available;      /* bytes of memory (memory_available()) */
};

/* `root` is before the paths that are read, "" on this machine. About 0.1 ms. */
void node_usage_read(const char *root, struct node_usage *out);

/* Energy that a node's processors and their memory have taken, by the counters
 * of RAPL that Linux shows as /sys/class/powercap/intel-rapl:* (AMD's, too).
 * Many systems let only root read them. They begin again at 0 after some 0.1 MJ
 * or more, so that they are to be read every ten minutes at least. */
struct node_energy;

/* Finds packages and memory (dram) under `root`, "" on this machine, and reads
 * them for the first time. ERR_UNSUPPORTED says why that does not work; never a
 * part of them. */
enum err node_energy_create(const char *root, struct node_energy **out);
void node_energy_destroy(struct node_energy *energy);

/* Joules since the last call; ERR_IO: a counter has gone. */
enum err node_energy_read(struct node_energy *energy, double *joules);
