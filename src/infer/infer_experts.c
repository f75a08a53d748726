/* Experts that ranks share (expert parallelism): each has its part of them at
 * rest. Training sends tokens to the experts; here it is the experts that come,
 * to every rank, so that ranks need not have as many tokens as the others. */
#include <assert.h>

#include "src/infer/infer_impl.h"

static size_t block_bytes(const struct infer *infer, int block)
{
    return (size_t)infer->params->blocks[block].elements *
           dtype_bytes(infer->options.dtype);
}

void infer_experts_layout(struct infer *infer, struct arena *arena)
{
    int first = params_layer_block(infer->params, 0);
    size_t bytes = 0;
    if (infer->options.experts == NULL)
        return;
    assert(infer->params->frozen == NULL);
    for (int i = 1; i < infer->params->layer_blocks; i++)
        bytes += block_bytes(infer, first + i);
    infer->experts = arena_take(arena, bytes);
}

/* The block's place in the room: those of a layer are of one size. */
static char *room_of(const struct infer *infer, int block)
{
    int kind = (block - 1) % infer->params->layer_blocks - 1;
    assert(kind >= 0);
    return infer->experts + (size_t)kind * block_bytes(infer, block);
}

enum err infer_experts_gather(struct infer *infer, int block,
                              const void **weights)
{
    const struct group_access *group = infer->options.experts;
    size_t bytes = block_bytes(infer, block) / (size_t)group->size;
    char *all = room_of(infer, block);
    TRY(infer->kernels->memory->copy(infer->ctx.stream, bytes, *weights,
                                     all + (size_t)group->rank * bytes));
    for (int i = 1; i < group->size; i++) {
        int to = (group->rank + i) % group->size;
        int from = (group->rank + group->size - i) % group->size;
        TRY(group->start(group->arg, 0, to, *weights, bytes, from,
                         all + (size_t)from * bytes, bytes));
        TRY(group->wait(group->arg, 0));
    }
    *weights = all;
    return ERR_OK;
}
