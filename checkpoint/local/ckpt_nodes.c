/* Which ranks are on which node, as parity needs it. Nodes are told apart by
 * their host's name alone, and numbered in the order of their lowest rank, so
 * that all ranks number them alike without a word. */
#include "checkpoint/local/ckpt_nodes.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/map.h"
#include "src/base/new.h"

/* The node of this host's name; as many as there are: it is new. */
static int node_of(const struct comm *comm, const struct ckpt_nodes *nodes,
                   const struct map *map, uint32_t hash, int rank)
{
    for (size_t at = 0, n; map_next(map, hash, &at, &n);)
        if (comm_same_host(comm, nodes->lowest[n], rank))
            return (int)n;
    return nodes->count;
}

enum err ckpt_nodes_create(const struct comm *comm, struct ckpt_nodes *out)
{
    enum err rc = ERR_OK;
    size_t size = (size_t)comm_size(comm);
    struct map map = { 0 };
    int *numbers = NULL;
    *out = (struct ckpt_nodes){ 0 };
    TRY(new_zeroed(&numbers, 4 * size));
    out->node = numbers;
    out->place = numbers + size;
    out->lowest = numbers + 2 * size;
    out->ranks = numbers + 3 * size;
    for (int r = 0; r < (int)size; r++) {
        const char *host = comm_host(comm, r);
        uint32_t hash = map_hash_bytes(host, strlen(host));
        int n = node_of(comm, out, &map, hash, r);
        if (n == out->count) {
            TRY_OUT(map_add(&map, hash, (size_t)n));
            out->lowest[out->count++] = r;
        }
        out->node[r] = n;
        out->place[r] = out->ranks[n]++;
    }
out:
    map_free(&map);
    return rc;
}

void ckpt_nodes_free(struct ckpt_nodes *nodes)
{
    free(nodes->node); /* the others lie behind it */
    *nodes = (struct ckpt_nodes){ 0 };
}

int ckpt_nodes_rank_at(const struct ckpt_nodes *nodes, int node, int place)
{
    assert(node >= 0 && node < nodes->count && place >= 0);
    int r = nodes->lowest[node];
    int at = place % nodes->ranks[node];
    while (nodes->node[r] != node || nodes->place[r] != at)
        r++;
    return r;
}

bool ckpt_nodes_leads(const struct comm *comm)
{
    int rank = comm_rank(comm);
    for (int r = 0; r < rank; r++)
        if (comm_same_host(comm, r, rank))
            return false;
    return true;
}
