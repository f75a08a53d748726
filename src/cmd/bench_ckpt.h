/* tessera-bench ckpt: how near saving and loading come to the bare disk.
 *
 * Two ranks, started by mpirun, hold the weights and both moments of mpt-125m
 * (1.5 GB in all) as two intervals of the flat parameter space, and take turns:
 *
 *   persist_s      median time of ckpt_save() with commit
 *   raw_write_s    the same bytes by the same ranks into one plain file each,
 *                  with fsync; the better median of O_DIRECT and page cache
 *   persist_ratio  raw_write_s / persist_s
 *   load_s         median time of ckpt_load(), all CRCs verified
 *   raw_read_s     the same bytes out of those plain files; likewise
 *   load_ratio     raw_read_s / load_s; files are dropped from the page cache
 *                  before each of these
 *   stall_s        what training waits for when a save is staged, of 256 MiB;
 *                  copy_s is one memcpy of them, stall_ratio stall_s / copy_s
 *   index_10k_s    median time to save 10,000 tensors of 16 KiB per rank, less
 *                  that for the same bytes in 10 tensors
 *   buffers_bytes  by how much the larger process has grown at most while
 *                  saving and loading, beyond its state
 */
#pragma once

#include <jansson.h>

#include "src/cmd/bench_step.h"

/* One of the ranks, in a process of its own; *result is that of rank 0. */
enum err bench_ckpt_rank(const struct bench_options *options, json_t **result);
