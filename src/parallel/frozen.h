/* Weights that do not train: every rank reads all of them, of the type that the
 * model computes in, and nobody changes them once they are filled.
 *
 * The ranks of a node share one copy (shared_weights.h), but each GPU has its
 * own. Each rank fills an interval of their space, and the intervals are
 * exchanged: so what they are read from is read once. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernels.h"
#include "src/base/dtype.h"
#include "src/base/err.h"
#include "src/comm/comm_tensors.h"
#include "src/model/params.h"

/* Where weights come from besides: puts elements [begin, end) of the flat
 * space of `params` over what is there, fresh values, or leaves some of them.
 * Each rank asks for what it owns. */
struct replica_source {
    enum err (*fill)(void *arg, const struct params *params, int64_t begin,
                     int64_t end, float *out);
    void *arg;
    bool whole; /* it leaves nothing, so that no fresh values are made */
};

/* Where values go; all is lent. */
struct frozen_place {
    const struct kernels *kernels;
    const struct kernel_ctx *ctx;
    const struct params *params;
    enum dtype dtype; /* they are rounded to */
};
/* Elements [begin, end) of the flat space, fresh ones and over them what the source
 * has (NULL: nothing), to tensors. For one rank alone. */
enum err frozen_fill_interval(const struct frozen_place *place, uint64_t seed,
                              const struct replica_source *source,
                              int64_t begin, int64_t end, void *to);

struct frozen;

/* params: of those that are frozen. All is borrowed. Collective; fails on all
 * ranks or on none. */
enum err frozen_create(struct comm_tensors *tensors,
                       const struct kernels *kernels,
                       const struct kernel_ctx *ctx,
                       const struct params *params, enum dtype dtype,
                       struct frozen **out);
/* Nothing that reads them is under way. NULL is fine. */
void frozen_destroy(struct frozen *frozen);

/* Bytes of the tensors, on each rank as if it had them alone. */
size_t frozen_plan(const struct params *params, enum dtype dtype);
/* Bytes of the host, for a moment, while they are filled: a buffer of fp32, and on a
 * processor one to round from; none where values go where they belong. */
size_t frozen_fill_plan(const struct kernels *kernels,
                        const struct params *params, enum dtype dtype);

/* Fills them as replica_init() does (source NULL: fresh ones), between batches.
 * Collective; fails on all ranks or on none. */
enum err frozen_fill(struct frozen *frozen, uint64_t seed,
                     const struct replica_source *source);

/* A block's; lent. */
const void *frozen_block(const struct frozen *frozen, int block);
