/* Figures of reading MDS data sets, for tessera-bench data:
 *
 *   start_10k_shards_s  time to open a set of 10,000 shards, with a look at each
 *                       file, and read its first sample
 *   read_mb_per_s       reading every sample of 64 MiB of shards in the page
 *                       cache, one after the other, by one thread
 *   read_zstd_mb_per_s  the same (raw bytes) of shards packed with zstd:3,
 *                       which are unpacked and checked first
 */
#pragma once

#include <jansson.h>

#include "src/base/err.h"
#include "src/cmd/bench_step.h"

/* Add them to `result`. */
enum err bench_data_mds(const struct bench_options *options, json_t *result);
