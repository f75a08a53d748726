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

size_t frozen_fill_plan(const struct kernels *kernels,
                        const struct params *params, enum dtype dtype)
{
    if (!kernels->memory->device && dtype == DTYPE_F32)
        return 0; /* values go where they belong */
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

static enum err open_buffers(const struct frozen_place *place,
                             struct buffers *out)
{
    const struct kernel_memory *memory = place->kernels->memory;
    size_t bytes = (size_t)FILL_ELEMENTS * sizeof(float);
    TRY(memory->host_create(bytes, &out->host));
    TRY(memory->tensors_create(bytes, &out->tensors));
    out->values = arena_take(&out->host, bytes);
    out->fp32 = arena_take(&out->tensors, bytes);
    return ERR_OK;
}

/* `count` values to where they belong. */
static enum err put(const struct frozen_place *place,
                    const struct buffers *buffers, int64_t count, void *to)
{
    const struct kernel_memory *memory = place->kernels->memory;
    size_t bytes = (size_t)count * sizeof(float);
    void *stream = place->ctx->stream;
    if (place->dtype == DTYPE_F32)
        return memory->upload(stream, bytes, buffers->values, to);
    TRY(memory->upload(stream, bytes, buffers->values, buffers->fp32));
    return place->kernels->convert(place->ctx, count, DTYPE_F32, buffers->fp32,
                                   place->dtype, to);
}

static enum err values_of(const struct params *params, uint64_t seed,
                          const struct replica_source *source, int64_t begin,
                          int64_t end, float *out)
{
    if (source == NULL || !source->whole)
        params_init(params, seed, begin, end, out);
    return source != NULL ? source->fill(source->arg, params, begin, end, out)
                          : ERR_OK;
}

enum err frozen_fill_interval(const struct frozen_place *place, uint64_t seed,
                              const struct replica_source *source,
                              int64_t begin, int64_t end, void *to)
{
    enum err rc = ERR_OK;
    const struct kernel_memory *memory = place->kernels->memory;
    struct buffers buffers = { .values = NULL };
    char *out = to;
    if (!memory->device && place->dtype == DTYPE_F32)
        return values_of(place->params, seed, source, begin, end, to);
    TRY_OUT(open_buffers(place, &buffers));
    for (int64_t at = begin; at < end; at += FILL_ELEMENTS) {
        int64_t next = end - at < FILL_ELEMENTS ? end : at + FILL_ELEMENTS;
        TRY_OUT(
            values_of(place->params, seed, source, at, next, buffers.values));
        TRY_OUT(put(place, &buffers, next - at, out));
        TRY_OUT(memory->wait(place->ctx->stream));
        out += (size_t)(next - at) * dtype_bytes(place->dtype);
    }
out:
    memory->host_destroy(&buffers.host);
    memory->tensors_destroy(&buffers.tensors);
    return rc;
}

/* This rank's interval; may fail on one rank alone. */
static enum err fill_own(struct frozen *frozen, uint64_t seed,
                         const struct replica_source *source)
{
    struct comm *comm = comm_tensors_comm(frozen->tensors);
    int rank = comm_rank(comm), ranks = comm_size(comm);
    int64_t all = frozen->params->elements;
    int64_t begin = shard_begin(all, rank, ranks);
    const struct frozen_place place = { frozen->kernels, frozen->ctx,
                                        frozen->params, frozen->dtype };
    return frozen_fill_interval(
        &place, seed, source, begin, shard_begin(all, rank + 1, ranks),
        frozen->weights + (size_t)begin * dtype_bytes(frozen->dtype));
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
