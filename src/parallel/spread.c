/* Lays a model's weights out over ranks that only read them, and answers the model's
 * calls. The parts are those of a replica: `frozen` where all weights are at hand,
 * shards and `gather` where they are not. */
#include "src/parallel/spread.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/comm/comm_tensors.h"
#include "src/parallel/access_trace.h"
#include "src/parallel/gather.h"
#include "src/parallel/owner.h"

struct spread {
    struct comm_tensors *tensors;
    const struct kernels *kernels;
    const struct kernel_ctx *ctx;
    const struct params *params;
    struct frozen *frozen; /* NODE; the others: RANKS */
    struct owner *owner;
    struct access_trace *trace;
    struct gather *gather;
    struct arena arena; /* shards, packed */
    bool broken;        /* an exchange has failed */
    struct param_access access;
};

enum err spread_choose(struct comm *comm, bool fits, enum spread_way *way)
{
    int64_t lacks = !fits;
    if (comm_size(comm) == 1)
        *way = SPREAD_NODE;
    if (*way != SPREAD_AUTO)
        return ERR_OK;
    TRY(comm_all_reduce_i64(comm, &lacks, 1, COMM_MAX));
    *way = lacks ? SPREAD_RANKS : SPREAD_NODE;
    return ERR_OK;
}

/* Blocks ahead, and what the rank with the largest shards has then: one answer for all
 * ranks, since who has other buffers makes other exchanges. */
static enum err plan(const struct params *params, int ranks, int *prefetch,
                     size_t *bytes)
{
    struct owner *owner = NULL;
    size_t most = 0;
    TRY(owner_create(params, OWNER_CUT_BLOCKS, OWNER_LARGEST, ranks, ranks, 1,
                     &owner));
    size_t shard = (size_t)owner->shard * sizeof(float);
    for (int b = 0; b < params->block_count; b++)
        if ((size_t)params->blocks[b].elements * sizeof(float) > most)
            most = (size_t)params->blocks[b].elements * sizeof(float);
    for (*prefetch = 1;; --*prefetch) {
        *bytes = shard + gather_plan(params, owner, *prefetch, DTYPE_F32);
        if (*prefetch == 0 || *bytes <= (shard + most) / 20 * 23)
            break;
    }
    owner_destroy(owner);
    return ERR_OK;
}

enum err spread_plan(const struct params *params, int ranks, size_t *bytes)
{
    int prefetch;
    return plan(params, ranks, &prefetch, bytes);
}

/* --- the model's calls --- */

static enum err whole_gather(void *arg, int block, const void **weights)
{
    const struct spread *spread = arg;
    *weights = frozen_block(spread->frozen, block);
    return ERR_OK;
}

static enum err whole_release(void *arg, int block)
{
    (void)arg, (void)block;
    return ERR_OK;
}

/* After a failed exchange the order of calls is lost for good. */
static enum err noted(struct spread *spread, enum err rc)
{
    spread->broken |= rc != ERR_OK;
    return rc;
}

static enum err part_gather(void *arg, int block, const void **weights)
{
    struct spread *spread = arg;
    access_trace_step(spread->trace, TRACE_GATHER, block);
    return noted(spread, gather_block(spread->gather, block, weights));
}

static enum err part_release(void *arg, int block)
{
    struct spread *spread = arg;
    access_trace_step(spread->trace, TRACE_RELEASE, block);
    gather_release(spread->gather, block);
    return ERR_OK;
}

static enum err reach(void *arg, void *event)
{
    struct spread *spread = arg;
    return noted(spread, comm_tensors_reach(spread->tensors, event, 0.0));
}

static enum err pace(void *arg)
{
    struct spread *spread = arg;
    return noted(spread,
                 comm_tensors_pace(spread->tensors, COMM_TENSORS_AHEAD));
}

const struct param_access *spread_access(struct spread *spread)
{
    return &spread->access;
}

bool spread_together(const struct spread *spread)
{
    return spread->frozen == NULL;
}

void spread_begin(struct spread *spread)
{
    if (spread_together(spread))
        access_trace_begin(spread->trace, false);
}

enum err spread_end(struct spread *spread)
{
    const struct trace_call *call;
    const void *weights;
    while (spread_together(spread) && !spread->broken &&
           (call = access_trace_look(spread->trace, 0)) != NULL) {
        if (call->kind == TRACE_GATHER)
            TRY(part_gather(spread, call->block, &weights));
        else
            TRY(part_release(spread, call->block));
    }
    /* the others wait for what this rank can't send any more */
    return spread->broken ? err_set(ERR_COMM, "%s", err_text()) : ERR_OK;
}

/* --- making it --- */

/* Reads this rank's shard of every block; may fail on one rank alone. */
static enum err fill_shards(struct spread *spread,
                            const struct replica_source *source)
{
    const struct owner *owner = spread->owner;
    float *shards = (void *)spread->arena.base;
    const struct frozen_place place = { spread->kernels, spread->ctx,
                                        spread->params, DTYPE_F32 };
    for (int i = 0; i < owner->block_count; i++) {
        const struct owner_block *b = &owner->blocks[i];
        TRY(frozen_fill_interval(&place, 0, source, b->shard_begin,
                                 b->shard_end, shards + b->shard_at));
    }
    return ERR_OK;
}

static enum err make_shards(struct spread *spread,
                            const struct replica_source *source)
{
    const struct kernel_memory *memory = spread->kernels->memory;
    const struct params *params = spread->params;
    int prefetch;
    size_t bytes;
    TRY(plan(params, spread->owner->ranks, &prefetch, &bytes));
    TRY(memory->tensors_create((size_t)spread->owner->shard * sizeof(float),
                               &spread->arena));
    TRY(fill_shards(spread, source));
    TRY(access_trace_create(params, &spread->trace));
    const struct gather_place place = { .tensors = spread->tensors,
                                        .memory = memory,
                                        .ctx = spread->ctx,
                                        .params = params,
                                        .owner = spread->owner,
                                        .trace = spread->trace };
    return gather_create(&place, prefetch, DTYPE_F32, spread->arena.base,
                         &spread->gather);
}

enum err spread_create(struct comm *comm, const struct kernels *kernels,
                       const struct kernel_ctx *ctx,
                       const struct params *params,
                       const struct replica_source *source, enum spread_way way,
                       struct spread **out)
{
    enum err rc = ERR_OK;
    struct spread *spread = NULL;
    int rank = comm_rank(comm), ranks = comm_size(comm);
    assert(way != SPREAD_AUTO && params->frozen == NULL && source->whole);
    enum err opened = new_zeroed(&spread, 1);
    if (opened == ERR_OK && way == SPREAD_RANKS)
        opened = owner_create(params, OWNER_CUT_BLOCKS, rank, ranks, ranks, 1,
                              &spread->owner);
    TRY_OUT(comm_agree(comm, opened));
    spread->kernels = kernels;
    spread->ctx = ctx;
    spread->params = params;
    TRY_OUT(comm_tensors_create(comm, kernels->memory, ctx->stream,
                                EXCHANGE_ANY, &spread->tensors));
    if (way == SPREAD_NODE) {
        TRY_OUT(frozen_create(spread->tensors, kernels, ctx, params, DTYPE_F32,
                              &spread->frozen));
        TRY_OUT(frozen_fill(spread->frozen, 0, source));
        spread->access = (struct param_access){ .arg = spread,
                                                .gather = whole_gather,
                                                .release = whole_release };
    } else {
        TRY_OUT(comm_agree(comm, make_shards(spread, source)));
        spread->access = (struct param_access){ .arg = spread,
                                                .gather = part_gather,
                                                .release = part_release,
                                                .reach = reach,
                                                .pace = pace };
    }
out:
    return new_or_none(rc, spread, out, spread_destroy);
}

void spread_destroy(struct spread *spread)
{
    if (spread == NULL)
        return;
    if (spread->kernels != NULL) {
        (void)spread->kernels->memory->wait(spread->ctx->stream);
        spread->kernels->memory->tensors_destroy(&spread->arena);
    }
    gather_destroy(spread->gather);
    access_trace_destroy(spread->trace);
    frozen_destroy(spread->frozen);
    owner_destroy(spread->owner);
    comm_tensors_destroy(spread->tensors);
    free(spread);
}
