/* tessera-bench step --parallel: what several ranks on a node cost.
 *
 * Two ranks of one thread, started by mpirun, take steps as training does, on a
 * batch of PARALLEL_SLOTS slots of one leaf. The model has the widths of the
 * one that is chosen (bench_model.h), but few layers, a small vocabulary and
 * longer leaves, so that a step takes about a second and is mostly products.
 * While one rank alone is measured, the other one sleeps. Medians of steps in
 * turns:
 *
 *   ranks_ratio     one_rank_ms / zero1_ms: one rank of two threads against two
 *                   ranks of one, under zero1
 *   zero3_ratio     ddp_ms / zero3_ms
 *   elastic_ratio_parallel  zero1_fast_ms / zero1_ms: the same but for
 *                   parallel.determinism
 *   elastic_ratio_one_rank  one_rank_fast_ms / one_rank_ms
 *
 * All that is not "fast" must have the same loss in every step, bit by bit.
 */
#pragma once

#include <jansson.h>

#include "src/cmd/bench_step.h"

#define PARALLEL_SLOTS 8

/* One of the ranks, in a process of its own; *result is that of rank 0. */
enum err bench_parallel_rank(const struct bench_options *options,
                             json_t **result);
