/* Gathers which ranks can open which shard: the ranks' lists of shards, one after
 * the other, and then sorted by shards. */
#include "checkpoint/files/ckpt_holders.h"

#include <stdlib.h>

#include "src/base/array.h"
#include "src/base/new.h"

/* The lists in the order of ranks, by shards; first[s + 1] is where shard s's
 * next rank goes. */
static void deal(struct ckpt_holders *out, int shards, int ranks,
                 const size_t *bytes_of, const int *lists)
{
    const int *next = lists;
    size_t before = 0;
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < bytes_of[r] / sizeof *lists; i++)
            out->first[*next++ + 1]++;
    for (int s = 0; s < shards; s++) {
        size_t count = out->first[s + 1];
        out->first[s + 1] = before;
        before += count;
    }
    next = lists;
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < bytes_of[r] / sizeof *lists; i++)
            out->ranks[out->first[*next++ + 1]++] = r;
}

enum err ckpt_holders_gather(struct comm *comm, const bool *holds, int shards,
                             struct ckpt_holders *out)
{
    enum err rc = ERR_OK;
    int ranks = comm_size(comm), *own = NULL, *lists = NULL;
    size_t *bytes_of = NULL, count = 0, total = 0;
    *out = (struct ckpt_holders){ 0 };
    if (holds == NULL)
        return ERR_OK;
    rc = new_room(&own, (size_t)shards + 1);
    if (rc == ERR_OK)
        rc = new_zeroed(&bytes_of, (size_t)ranks);
    TRY_OUT(comm_agree(comm, rc));
    for (int s = 0; s < shards; s++)
        if (holds[s])
            own[count++] = s;
    TRY_OUT(
        comm_gather_parts(comm, own, count * sizeof *own, &lists, bytes_of));
    for (int r = 0; r < ranks; r++)
        total += bytes_of[r] / sizeof *lists;
    rc = new_zeroed(&out->first, (size_t)shards + 1);
    if (rc == ERR_OK)
        rc = new_room(&out->ranks, total + 1);
    TRY_OUT(comm_agree(comm, rc));
    deal(out, shards, ranks, bytes_of, lists);
out:
    free(own);
    free(bytes_of);
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
    if (holders->first == NULL)
        return 0;
    size_t first = holders->first[shard];
    return first < holders->first[shard + 1] ? holders->ranks[first] : -1;
}

bool ckpt_holders_has(const struct ckpt_holders *holders, int shard, int rank)
{
    if (holders->first == NULL)
        return true;
    size_t first = holders->first[shard];
    return bsearch(&rank, holders->ranks + first,
                   holders->first[shard + 1] - first, sizeof rank,
                   array_order_i32) != NULL;
}
