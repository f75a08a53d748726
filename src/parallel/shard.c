/* Where the slots and the interval of a rank begin when the parameters are one
 * flat array (ddp, zero1), or at whole matrices. The cut of each block by
 * itself, for zero2 and zero3, is in owner.c. */
#include "src/parallel/shard.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

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

int64_t shard_cut_begin(const int64_t *cut, int64_t elements, int rank,
                        int ranks)
{
    assert(rank >= 0 && rank <= ranks);
    return cut != NULL ? cut[rank] : shard_begin(elements, rank, ranks);
}

/* The last place up to `at` that is within no tensor. */
static int64_t whole_before(const struct params *params, int64_t at)
{
    at -= at % KERNEL_CHUNK;
    for (int p = params->count - 1; p >= 0; p--) {
        const struct param *param = &params->list[p];
        assert(p == 0 || params->list[p - 1].offset < param->offset);
        if (at > param->offset && at < param->offset + param->numel)
            at = param->offset - param->offset % KERNEL_CHUNK;
    }
    return at;
}

/* Gives each rank, from the first on, all that fits into `most` elements;
 * whether that is enough. */
static bool cut_by(const struct params *params, int ranks, int64_t most,
                   int64_t *cut)
{
    cut[0] = 0;
    for (int r = 0; r < ranks; r++) {
        int64_t left = params->elements - cut[r];
        cut[r + 1] = whole_before(params, cut[r] + (left < most ? left : most));
    }
    return cut[ranks] == params->elements;
}

void shard_cut_whole(const struct params *params, int ranks, int64_t *cut)
{
    int64_t enough = params->elements / KERNEL_CHUNK; /* chunks of a rank */
    int64_t less = 0;                                 /* not enough */
    assert(ranks >= 1 && params->elements % KERNEL_CHUNK == 0);
    while (enough - less > 1) {
        int64_t middle = less + (enough - less) / 2;
        if (cut_by(params, ranks, middle * KERNEL_CHUNK, cut))
            enough = middle;
        else
            less = middle;
    }
    cut_by(params, ranks, enough * KERNEL_CHUNK, cut);
}
