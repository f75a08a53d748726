/* Keeps what does not train. Who reads it is replica_access.c. */
#include "src/parallel/frozen.h"

#include <stdlib.h>

#include "src/base/arena.h"
#include "src/base/new.h"
#include "src/parallel/reduce.h"
#include "src/parallel/shard.h"
#include "src/parallel/shared_weights.h"

/* The host makes so many values at once. */
#define FILL_ELEMENTS ((int64_t)1 << 20)

struct frozen {
    struct comm_tensors *tensors;
    const struct kernels *kernels;
    const struct kernel_ctx *ctx;
    const struct params *params;
    enum dtype dtype;
    struct shared_weights *shared; /* NULL: on a device */
    struct arena arena;            /* there */
    char *weights;                 /* [elements] */
};

size_t frozen_plan(const struct params *params, enum dtype dtype)
{
    return (size_t)params->elements * dtype_bytes(dtype);
}

/* A buffer of fp32, and on a processor one to round from. */
size_t frozen_fill_plan(const struct params *params, enum dtype dtype)
{
    int64_t most =
        params->elements < FILL_ELEMENTS ? params->elements : FILL_ELEMENTS;
    return (size_t)most * sizeof(float) * (dtype == DTYPE_F32 ? 1 : 2);
}

enum err frozen_create(struct comm_tensors *tensors,
                       const struct kernels *kernels,
                       const struct kernel_ctx *ctx,
                       const struct params *params, enum dtype dtype,
                       struct frozen **out)
{
    enum err rc = ERR_OK;
    struct comm *comm = comm_tensors_comm(tensors);
    struct frozen *frozen = NULL;
    size_t bytes = frozen_plan(params, dtype);
    TRY_OUT(comm_agree(comm, new_zeroed(&frozen, 1)));
    *frozen = (struct frozen){ .tensors = tensors,
                               .kernels = kernels,
                               .ctx = ctx,
                               .params = params,
                               .dtype = dtype };
    if (kernels->memory->device) {
        TRY_OUT(comm_agree(
            comm, kernels->memory->tensors_create(bytes, &frozen->arena)));
        frozen->weights = arena_take(&frozen->arena, bytes);
    } else {
        TRY_OUT(shared_weights_create(comm, params->elements, NULL, dtype,
                                      &frozen->shared));
        frozen->weights = shared_weights_data(frozen->shared);
    }
out:
    return new_or_none(rc, frozen, out, frozen_destroy);
}

void frozen_destroy(struct frozen *frozen)
{
    if (frozen == NULL)
        return;
    shared_weights_destroy(frozen->shared);
    if (frozen->kernels != NULL)
        frozen->kernels->memory->tensors_destroy(&frozen->arena);
    free(frozen);
}

const void *frozen_block(const struct frozen *frozen, int block)
{
    return frozen->weights + (size_t)frozen->params->blocks[block].offset *
                                 dtype_bytes(frozen->dtype);
}

/* Buffers for a part of the values: the host's and, beside it, the device's. */
struct buffers {
    struct arena host, tensors;
    float *values, *fp32;
};

static enum err open_buffers(const struct frozen *frozen, struct buffers *out)
{
    const struct kernel_memory *memory = frozen->kernels->memory;
    size_t bytes = (size_t)FILL_ELEMENTS * sizeof(float);
    TRY(memory->host_create(bytes, &out->host));
    TRY(memory->tensors_create(bytes, &out->tensors));
    out->values = arena_take(&out->host, bytes);
    out->fp32 = arena_take(&out->tensors, bytes);
    return ERR_OK;
}

/* `count` values to where they belong. */
static enum err put(const struct frozen *frozen, const struct buffers *buffers,
                    int64_t at, int64_t count)
{
    const struct kernel_memory *memory = frozen->kernels->memory;
    size_t bytes = (size_t)count * sizeof(float);
    void *stream = frozen->ctx->stream;
    void *to = frozen->weights + (size_t)at * dtype_bytes(frozen->dtype);
    if (frozen->dtype == DTYPE_F32)
        return memory->upload(stream, bytes, buffers->values, to);
    TRY(memory->upload(stream, bytes, buffers->values, buffers->fp32));
    return frozen->kernels->convert(frozen->ctx, count, DTYPE_F32,
                                    buffers->fp32, frozen->dtype, to);
}

/* This rank's interval; may fail on one rank alone. */
static enum err fill_own(struct frozen *frozen, uint64_t seed,
                         const struct replica_source *source)
{
    enum err rc = ERR_OK;
    const struct kernel_memory *memory = frozen->kernels->memory;
    struct comm *comm = comm_tensors_comm(frozen->tensors);
    int64_t all = frozen->params->elements;
    int64_t end = shard_begin(all, comm_rank(comm) + 1, comm_size(comm));
    struct buffers buffers = { .values = NULL };
    TRY_OUT(open_buffers(frozen, &buffers));
    for (int64_t at = shard_begin(all, comm_rank(comm), comm_size(comm));
         at < end; at += FILL_ELEMENTS) {
        int64_t next = end - at < FILL_ELEMENTS ? end : at + FILL_ELEMENTS;
        if (source == NULL || !source->whole)
            params_init(frozen->params, seed, at, next, buffers.values);
        if (source != NULL)
            TRY_OUT(source->fill(source->arg, frozen->params, at, next,
                                 buffers.values));
        TRY_OUT(put(frozen, &buffers, at, next - at));
        TRY_OUT(memory->wait(frozen->ctx->stream));
    }
out:
    memory->host_destroy(&buffers.host);
    memory->tensors_destroy(&buffers.tensors);
    return rc;
}

enum err frozen_fill(struct frozen *frozen, uint64_t seed,
                     const struct replica_source *source)
{
    struct comm *comm = comm_tensors_comm(frozen->tensors);
    TRY(comm_agree(comm, fill_own(frozen, seed, source)));
    if (frozen->shared != NULL)
        return shared_weights_exchange(frozen->shared);
    return reduce_gather(frozen->tensors, frozen->params->elements, NULL,
                         frozen->dtype, frozen->weights);
}
