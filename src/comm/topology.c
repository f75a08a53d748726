/* Which ranks share a node, from the hosts that the communicator has of all ranks, or as
 * described, for plans of machines that are not here. */
#include "src/comm/topology.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/comm/comm.h"

enum err topology_describe(const int *counts, int nodes, struct topology **out)
{
    enum err rc = ERR_OK;
    struct topology *t = NULL;
    int ranks = 0;
    assert(nodes > 0);
    for (int n = 0; n < nodes; n++)
        ranks += counts[n];
    TRY(new_zeroed(&t, 1));
    *t = (struct topology){
        .ranks = ranks, .nodes = nodes, .least = counts[0], .most = counts[0]
    };
    TRY_OUT(new_zeroed(&t->first, (size_t)nodes + 1));
    TRY_OUT(new_zeroed(&t->node, (size_t)ranks));
    for (int n = 0; n < nodes; n++) {
        assert(counts[n] > 0);
        t->first[n + 1] = t->first[n] + counts[n];
        for (int rank = t->first[n]; rank < t->first[n + 1]; rank++)
            t->node[rank] = n;
        t->least = counts[n] < t->least ? counts[n] : t->least;
        t->most = counts[n] > t->most ? counts[n] : t->most;
    }
out:
    return new_or_none(rc, t, out, topology_destroy);
}

enum err topology_alike(int ranks, int each, struct topology **out)
{
    int nodes = ranks / each, *counts = NULL;
    TRY(new_zeroed(&counts, (size_t)nodes));
    for (int n = 0; n < nodes; n++)
        counts[n] = each;
    enum err rc = topology_describe(counts, nodes, out);
    free(counts);
    return rc;
}

enum err topology_create(const struct comm *comm, struct topology **out)
{
    int *counts = NULL;
    int nodes = 0, ranks = comm_size(comm);
    *out = NULL;
    TRY(new_zeroed(&counts, (size_t)ranks));
    for (int rank = 0; rank < ranks; rank++) {
        nodes += rank == 0 || !comm_same_host(comm, rank, rank - 1);
        counts[nodes - 1]++;
    }
    enum err rc = topology_describe(counts, nodes, out);
    free(counts);
    return rc;
}

int topology_torn(const struct topology *t, int degree)
{
    int least = (degree - 1) / t->most + 1;
    for (int first = 0; first + degree <= t->ranks; first += degree)
        if (t->node[first + degree - 1] - t->node[first] >= least)
            return first;
    return -1;
}

int topology_group(const struct topology *t)
{
    int group = 0; /* the greatest common divisor, by Euclid */
    for (int n = 0; n < t->nodes; n++)
        for (int count = topology_count(t, n), rest; count > 0; count = rest) {
            rest = group % count;
            group = count;
        }
    return group;
}

void topology_destroy(struct topology *topology)
{
    if (topology == NULL)
        return;
    free(topology->first);
    free(topology->node);
    free(topology);
}
