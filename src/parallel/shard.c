/* Where the slots and the interval of a rank begin when the parameters are one
 * flat array (ddp, zero1). The cut of each block by itself, for zero2 and
 * zero3, is in owner.c. */
#include "src/parallel/shard.h"

#include <assert.h>

#include "kernels/kernels.h"

int shard_slot_begin(int rank, int ranks, int slots)
{
    assert(ranks >= 1 && ranks <= slots);
    assert(rank >= 0 && rank <= ranks);
    return (int)((int64_t)rank * slots / ranks);
}

int64_t shard_begin(int64_t elements, int rank, int ranks)
{
    assert(elements >= 0 && elements % KERNEL_CHUNK == 0);
    assert(ranks >= 1 && rank >= 0 && rank <= ranks);
    return elements / KERNEL_CHUNK * rank / ranks * KERNEL_CHUNK;
}
