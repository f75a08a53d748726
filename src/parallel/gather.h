/* Weights that are resident in shards only: whole blocks for a short time.
 *
 * A block is gathered from the ranks of the shard group into a buffer, ahead of
 * its use as far as there are buffers, and gives the buffer up when another
 * block needs it; until then gathering it again costs nothing. So the blocks at
 * the turn from forward to backward travel once. There are buffers for
 * `prefetch` + 1 transformer blocks, and one for each of the ends, which a head
 * that is not tied shares with the embedding. The choice of buffers follows
 * from the order of calls (access_trace.h), never from what has arrived, so
 * that all ranks start the same exchanges in the same order. */
#pragma once

#include <stddef.h>

#include "kernels/kernels.h"
#include "src/base/dtype.h"
#include "src/base/err.h"
#include "src/comm/comm_tensors.h"
#include "src/model/params.h"
#include "src/parallel/access_trace.h"
#include "src/parallel/owner.h"

struct gather;

/* Where a gather works; all is borrowed. */
struct gather_place {
    struct comm_tensors *tensors;
    const struct kernel_memory *memory;
    const struct kernel_ctx *ctx;
    const struct params *params;
    const struct owner *owner;
    const struct access_trace *trace;
};

size_t gather_plan(const struct params *params, const struct owner *owner,
                   int prefetch, enum dtype dtype);

/* shard: this rank's shards, packed, elements of `dtype`; borrowed. */
enum err gather_create(const struct gather_place *place, int prefetch,
                       enum dtype dtype, const void *shard,
                       struct gather **out);
void gather_destroy(struct gather *gather);

/* The whole block, which is not apart, until its release; the trace has just
 * passed this call.
 * Collective. */
enum err gather_block(struct gather *gather, int block, const void **weights);
void gather_release(struct gather *gather, int block);

/* The shards have changed. No block is in use. */
void gather_forget(struct gather *gather);
