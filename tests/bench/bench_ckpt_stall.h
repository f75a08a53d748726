/* What training waits for when a save is staged, against one copy of the same
 * state in memory. */
#pragma once

#include "checkpoint/ckpt.h"

/* Medians of ckpt_saver_start() with staging, for the first items of the state,
 * up to 256 MiB over all ranks, and of one memcpy() of as many bytes into
 * memory that is touched already, taken in turn. Rank 0's; the others get 0.
 * Saves into RUN. Collective. */
enum err bench_ckpt_stall(struct comm *comm, const char *run_dir,
                          const struct ckpt_item *items, int item_count,
                          double *stall_s, double *copy_s);
