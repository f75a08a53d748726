/* Who is in a group, and what its maker has to know. */
#include "checkpoint/ckpt_group.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/local/ckpt_nodes.h"
#include "src/base/array.h"
#include "src/base/new.h"

#define TAG 31000 /* beside those of ckpt_xor.c */

/* Who waits for its group is waited for by all, who call the roll when that has
 * lasted too long: it answers until they have done so. */
#define PATIENCE 1.5

enum err ckpt_group_send(struct comm *comm, const void *data, size_t bytes,
                         int to, double timeout_s)
{
    struct comm_request *request;
    TRY(comm_start_send(comm, data, bytes, to, TAG, &request));
    return comm_wait(request, PATIENCE * timeout_s);
}

enum err ckpt_group_receive(struct comm *comm, void *data, size_t bytes,
                            int from, double timeout_s)
{
    struct comm_request *request;
    TRY(comm_start_recv(comm, data, bytes, from, TAG, &request));
    return comm_wait(request, PATIENCE * timeout_s);
}

/* Numbers the shards in the order of their makers. */
static enum err deal(const struct comm *comm, const int64_t *bytes_of,
                     int together, int *shard_of, int *shards)
{
    enum err rc = ERR_OK;
    int ranks = comm_size(comm);
    int *numbers = NULL, *before, *have, places = 0;
    struct ckpt_nodes nodes = { 0 };
    *shards = 0;
    TRY_OUT(ckpt_nodes_create(comm, &nodes));
    TRY_OUT(new_zeroed(&numbers, 3 * (size_t)ranks));
    before = numbers + ranks;
    have = numbers + 2 * ranks;
    for (int n = 0; n < nodes.count; n++) {
        before[n] = places;
        places += nodes.ranks[n];
    }
    for (int r = 0; r < ranks; r++) {
        int n = nodes.node[r];
        int *number = &numbers[before[n] + have[n] / together];
        shard_of[r] = -1;
        if (bytes_of[r] == 0)
            continue;
        have[n]++;
        *number = *number > 0 ? *number : ++*shards;
        shard_of[r] = *number - 1;
    }
out:
    free(numbers);
    ckpt_nodes_free(&nodes);
    return rc;
}

/* The maker's: the others' segments behind its own. */
static enum err collect_segments(struct ckpt_group *g, size_t room)
{
    for (int m = 1; m < g->members; m++) {
        int from = g->ranks[m];
        TRY(ckpt_group_receive(g->comm, &g->counts[m], sizeof g->counts[m],
                               from, 0.0));
        TRY(array_room(&g->segments, &room, g->count + g->counts[m]));
        TRY(ckpt_group_receive(g->comm, g->segments + g->count,
                               (size_t)g->counts[m] * sizeof *g->segments, from,
                               0.0));
        g->count += g->counts[m];
    }
    return ERR_OK;
}

static enum err list_members(struct ckpt_group *g, const int *shard_of)
{
    int ranks = comm_size(g->comm);
    g->maker = g->rank;
    for (int r = ranks - 1; r >= 0 && shard_of[g->rank] >= 0; r--)
        if (shard_of[r] == shard_of[g->rank]) {
            g->maker = r;
            g->members++;
        }
    if (g->maker != g->rank)
        return ERR_OK;
    TRY(new_zeroed(&g->ranks, 2 * (size_t)g->members + 1));
    g->counts = g->ranks + g->members;
    g->counts[0] = g->count;
    for (int r = g->maker, m = 0; m < g->members; r++)
        if (shard_of[r] == shard_of[g->rank])
            g->ranks[m++] = r;
    return ERR_OK;
}

/* What a save needs for messages: room for any member's. */
static enum err make_room(struct ckpt_group *g)
{
    size_t most = 0, sums = 0, count = (size_t)g->count;
    for (size_t i = 0; i < count; i++)
        sums += (size_t)ckpt_manifest_block_count(g->segments[i].bytes) + 1;
    for (int m = 0; m < g->members && g->counts != NULL; m++)
        most = (size_t)g->counts[m] > most ? (size_t)g->counts[m] : most;
    TRY(new_room(&g->places, (g->counts != NULL ? most : count) + 1));
    return new_room(&g->sums, sums + 1);
}

static enum err exchange(struct ckpt_group *g, size_t room)
{
    if (g->maker == g->rank)
        return collect_segments(g, room);
    TRY(ckpt_group_send(g->comm, &g->count, sizeof g->count, g->maker, 0.0));
    return ckpt_group_send(g->comm, g->segments,
                           (size_t)g->count * sizeof *g->segments, g->maker,
                           0.0);
}

enum err ckpt_group_create(struct comm *comm, const struct ckpt_item *items,
                           int item_count, const int64_t *bytes_of,
                           int together, int *shard_of, int *shards,
                           struct ckpt_group *out)
{
    *out = (struct ckpt_group){ .comm = comm, .rank = comm_rank(comm) };
    enum err rc = deal(comm, bytes_of, together, shard_of, shards);
    if (rc == ERR_OK)
        rc = ckpt_segments_create(items, item_count, out->rank, &out->segments,
                                  &out->count);
    if (rc == ERR_OK)
        rc = list_members(out, shard_of);
    TRY(comm_agree(comm, rc));
    rc = exchange(out, (size_t)item_count + 1);
    return comm_agree(comm, rc == ERR_OK ? make_room(out) : rc);
}

void ckpt_group_free(struct ckpt_group *group)
{
    free(group->ranks); /* counts lie behind it */
    free(group->segments);
    free(group->places);
    free(group->sums);
    *group = (struct ckpt_group){ 0 };
}
