/* Which ranks can open which shard, as all of them know it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "src/base/err.h"
#include "src/comm/comm.h"

struct ckpt_holders {
    size_t *first; /* [shards + 1]; NULL: every rank can open every shard */
    int *ranks;    /* of shard s from first[s] to first[s + 1], ascending */
};

/* holds[shards]: this rank can open it; NULL, on all ranks: every rank all. Each
 * sends the numbers of those that it has, which are few where nodes have folders
 * of their own. To be freed after an error too. Collective. */
enum err ckpt_holders_gather(struct comm *comm, const bool *holds, int shards,
                             struct ckpt_holders *out);
void ckpt_holders_free(struct ckpt_holders *holders);

/* The lowest rank that has it; -1: none. */
int ckpt_holders_lowest(const struct ckpt_holders *holders, int shard);
bool ckpt_holders_has(const struct ckpt_holders *holders, int shard, int rank);
