/* Energy that a node's processors and their memory have taken, by the counters
 * of RAPL that Linux shows as /sys/class/powercap/intel-rapl:* (AMD's, too).
 * Many systems let only root read them. They begin again at 0 after some 0.1 MJ
 * or more, so that they are to be read every ten minutes at least. */
#pragma once

#include "src/base/err.h"

struct node_energy;

/* Finds packages and memory (dram) under `root`, "" on this machine, and reads
 * them for the first time. ERR_UNSUPPORTED says why that does not work; never a
 * part of them. */
enum err node_energy_create(const char *root, struct node_energy **out);
void node_energy_destroy(struct node_energy *energy);

/* Joules since the last call; ERR_IO: a counter has gone. */
enum err node_energy_read(struct node_energy *energy, double *joules);
