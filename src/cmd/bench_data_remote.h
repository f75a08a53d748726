/* The part of tessera-bench data that reads ahead:
 *
 *   loader_100x_share   what a trainer waits for its batches, of its time, which
 *                       takes as long for a token as a hundredth of the step
 *                       that was measured before (the step is a sleep: nobody
 *                       else needs the processor); two batches read ahead
 *   loader_alone_tokens_per_s  of one thread that does nothing but read
 *   remote_share        as loader_100x_share, of a data set at an http://
 *                       address that answers every request 50 ms later, once
 *                       every shard was fetched
 *   remote_cold_share   the same while they are fetched
 *   remote_start_s      from the address to the first batch
 *
 * Samples of 2048 tokens, eight in a batch, in 32 shards of 256 KiB, in the
 * canonical order. */
#pragma once

#include <jansson.h>

#include "src/base/err.h"

/* Add them to `result`, which has step_tokens_per_s; `folder` is there for
 * files. */
enum err bench_data_remote(const char *folder, json_t *result);
