/* Gathers which ranks can open which shard: the ranks' lists of shards, one after
 * the other, and then sorted by shards. */
#include "checkpoint/files/ckpt_holders.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "src/base/array.h"
#include "src/base/new.h"

/* Every rank's list, in the order of ranks; counts[r] of rank r. */
static enum err gather_lists(struct comm *comm, const bool *holds, int shards,
                             const int64_t *counts, int **lists)
{
    size_t total = 0, at = 0;
    for (int r = 0; r < comm_size(comm); r++)
        total += (size_t)counts[r];
    TRY(comm_agree(comm, new_room(lists, total + 1)));
    size_t *bytes = comm_sizes(comm, 0), *offsets = comm_sizes(comm, 1);
    for (int r = 0; r < comm_size(comm); r++) {
        bytes[r] = (size_t)counts[r] * sizeof **lists;
        offsets[r] = at;
        at += bytes[r];
    }
    at = offsets[comm_rank(comm)] / sizeof **lists;
    for (int s = 0; s < shards; s++)
        if (holds == NULL || holds[s])
            (*lists)[at++] = s;
    return comm_all_gather(comm, *lists, bytes, offsets);
}

/* first[s + 1] is where shard s's next rank goes while they are dealt. */
static void deal(struct ckpt_holders *out, int shards, int ranks,
                 const int64_t *counts, const int *lists)
{
    const int *next = lists;
    for (int r = 0; r < ranks; r++)
        for (int64_t i = 0; i < counts[r]; i++)
            out->first[*next++ + 1]++;
    size_t before = 0;
    for (int s = 0; s < shards; s++) {
        size_t count = out->first[s + 1];
        out->first[s + 1] = before;
        before += count;
    }
    next = lists;
    for (int r = 0; r < ranks; r++)
        for (int64_t i = 0; i < counts[r]; i++)
            out->ranks[out->first[*next++ + 1]++] = r;
}

enum err ckpt_holders_gather(struct comm *comm, const bool *holds, int shards,
                             struct ckpt_holders *out)
{
    enum err rc = ERR_OK;
    int ranks = comm_size(comm), *lists = NULL;
    int64_t *counts = NULL, total = 0;
    assert(shards >= 0);
    *out = (struct ckpt_holders){ .all = true };
    TRY_OUT(comm_agree(comm, new_zeroed(&counts, (size_t)ranks)));
    for (int s = 0; s < shards; s++)
        counts[comm_rank(comm)] += holds == NULL || holds[s];
    TRY_OUT(comm_gather_rows(comm, counts, sizeof counts[0]));
    for (int r = 0; r < ranks; r++) {
        out->all = out->all && counts[r] == shards;
        total += counts[r];
    }
    if (out->all)
        goto out;
    rc = new_zeroed(&out->first, (size_t)shards + 1);
    if (rc == ERR_OK)
        rc = new_room(&out->ranks, (size_t)total + 1);
    TRY_OUT(comm_agree(comm, rc));
    TRY_OUT(gather_lists(comm, holds, shards, counts, &lists));
    deal(out, shards, ranks, counts, lists);
out:
    free(counts);
    free(lists);
    return rc;
}

void ckpt_holders_free(struct ckpt_holders *holders)
{
    free(holders->first);
    free(holders->ranks);
    *holders = (struct ckpt_holders){ 0 };
}

int ckpt_holders_lowest(const struct ckpt_holders *holders, int shard)
{
    if (holders->all)
        return 0;
    size_t first = holders->first[shard];
    return first < holders->first[shard + 1] ? holders->ranks[first] : -1;
}

bool ckpt_holders_has(const struct ckpt_holders *holders, int shard, int rank)
{
    if (holders->all)
        return true;
    size_t first = holders->first[shard];
    return bsearch(&rank, holders->ranks + first,
                   holders->first[shard + 1] - first, sizeof rank,
                   array_order_i32) != NULL;
}
