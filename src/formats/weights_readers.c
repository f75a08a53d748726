/* Reads a MODEL with several threads. Sources are for one thread at a time, so each
 * thread opens its own, once, and reads an interval that follows the others'. */
#include "src/formats/weights.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/arena.h"
#include "src/base/new.h"

#define LEAST_ELEMENTS ((int64_t)1 << 20) /* that are worth a reader */
#define READERS_MAX 8 /* of some 80 MiB each, if it is a checkpoint */

struct weights_readers {
    const struct params *params;        /* lent */
    const struct kernel_memory *memory; /* of what is lent */
    void *stream;
    struct weights *readers[READERS_MAX]; /* the first is lent */
    int count;
    int block;                  /* that is lent; -1: none */
    struct arena tensors, host; /* of the largest block; host: of a device */
    struct param_access access;
    bool (*ended)(void *arg);
    void *ended_arg;
};

static enum err fill_part(struct weights_readers *readers, int part,
                          const struct params *params, int64_t begin,
                          int64_t end, float *out)
{
    struct weights **own = &readers->readers[part];
    if (*own == NULL)
        TRY(weights_open(weights_about(readers->readers[0])->named, own));
    return weights_fill(*own, params, NULL, begin, end, out);
}

enum err weights_readers_fill(void *arg, const struct params *params,
                              int64_t begin, int64_t end, float *out)
{
    struct weights_readers *readers = arg;
    struct err_kept kept[READERS_MAX] = { 0 };
    int64_t all = end - begin, most = all / LEAST_ELEMENTS;
    int parts = readers->count > most ? (int)most : readers->count;
    if (parts < 2)
        return fill_part(readers, 0, params, begin, end, out);
#pragma omp parallel for schedule(static, 1) num_threads(parts)
    for (int part = 0; part < parts; part++) {
        int64_t from = all / parts * part;
        int64_t to = part + 1 == parts ? all : all / parts * (part + 1);
        err_keep(&kept[part], fill_part(readers, part, params, begin + from,
                                        begin + to, out + from));
    }
    for (int part = 0; part < parts; part++)
        TRY(err_again(&kept[part]));
    return ERR_OK;
}

/* --- a block at a time --- */

static enum err make_room(struct weights_readers *readers)
{
    const struct params *params = readers->params;
    const struct kernel_memory *memory = readers->memory;
    int64_t most = 0;
    for (int b = 0; b < params->block_count; b++)
        if (params->blocks[b].elements > most)
            most = params->blocks[b].elements;
    size_t bytes = (size_t)most * sizeof(float);
    if (readers->tensors.base == NULL)
        TRY(memory->tensors_create(bytes, &readers->tensors));
    if (memory->device && readers->host.base == NULL)
        TRY(memory->host_create(bytes, &readers->host));
    return ERR_OK;
}

/* Files are slow, so between blocks it is asked whether somebody wants to end. */
static enum err block_gather(void *arg, int block, const void **weights)
{
    struct weights_readers *readers = arg;
    const struct kernel_memory *memory = readers->memory;
    const struct param_block *b = &readers->params->blocks[block];
    assert(readers->block < 0);
    if (readers->ended != NULL && readers->ended(readers->ended_arg))
        return err_set(ERR_USAGE, "interrupted while the weights were read");
    TRY(make_room(readers));
    void *to = memory->device ? readers->host.base : readers->tensors.base;
    readers->block = block;
    *weights = readers->tensors.base;
    TRY(weights_readers_fill(readers, readers->params, b->offset,
                             b->offset + b->elements, to));
    if (!memory->device)
        return ERR_OK;
    TRY(memory->upload(readers->stream, (size_t)b->elements * sizeof(float), to,
                       readers->tensors.base));
    return memory->wait(readers->stream);
}

/* What reads the block may only be enqueued. */
static enum err block_release(void *arg, int block)
{
    struct weights_readers *readers = arg;
    assert(readers->block == block);
    readers->block = -1;
    return readers->memory->wait(readers->stream);
}

enum err weights_readers_create(struct weights *weights,
                                const struct params *params,
                                const struct kernel_memory *memory,
                                void *stream, int threads,
                                struct weights_readers **out)
{
    assert(threads > 0 && out != NULL);
    struct weights_readers *readers = NULL;
    TRY(weights_match(weights, params, NULL, ""));
    TRY(new_zeroed(&readers, 1));
    readers->params = params;
    readers->memory = memory;
    readers->stream = stream;
    readers->readers[0] = weights;
    readers->count = threads < READERS_MAX ? threads : READERS_MAX;
    readers->block = -1;
    readers->access = (struct param_access){ .arg = readers,
                                             .gather = block_gather,
                                             .release = block_release };
    *out = readers;
    return ERR_OK;
}

void weights_readers_destroy(struct weights_readers *readers)
{
    if (readers == NULL)
        return;
    if (readers->tensors.base != NULL) /* after a failure it may be read */
        (void)readers->memory->wait(readers->stream);
    readers->memory->tensors_destroy(&readers->tensors);
    readers->memory->host_destroy(&readers->host);
    for (int part = 1; part < readers->count; part++)
        weights_close(readers->readers[part]);
    free(readers);
}

void weights_readers_ended(struct weights_readers *readers,
                           bool (*ended)(void *arg), void *arg)
{
    readers->ended = ended;
    readers->ended_arg = arg;
}

const struct param_access *
weights_readers_access(struct weights_readers *readers)
{
    return &readers->access;
}
