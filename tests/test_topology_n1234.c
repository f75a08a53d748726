/* Ranks are numbered node by node, though the launcher dealt them in turn to nodes that
 * are this machine under two names. */
#include "src/comm/comm.h"
#include "src/comm/topology.h"
#include "tests/node_fixture.h"
#include "tests/tap.h"

struct row {
    int launched; /* the launcher's rank */
    char host[64];
};

/* Whether neighbours share a node, each of which has its ranks in the launcher's
 * order, and hosts are those of the ranks that answer. */
static bool in_order(struct comm *comm, const struct topology *t,
                     const struct row *rows)
{
    bool good = t->ranks == comm_size(comm) && t->first[t->nodes] == t->ranks &&
                comm_local_rank(comm) >= 0;
    for (int r = 0; r < t->ranks; r++) {
        int node = atoi(rows[r].host + strlen("node"));
        good = good && strcmp(rows[r].host, comm_host(comm, r)) == 0 &&
               t->node[r] == node && node == rows[r].launched % 2 &&
               topology_place(t, r) == rows[r].launched / 2;
    }
    return good;
}

/* Groups that are on more nodes than they must be. */
static void test_torn(void)
{
    static const struct {
        int counts[3], degree, first, group;
    } cases[] = {
        { { 4, 4, 4 }, 4, -1, 4 }, { { 4, 4, 4 }, 2, -1, 4 },
        { { 4, 4, 4 }, 6, -1, 4 }, { { 4, 4, 4 }, 3, 3, 4 },
        { { 1, 3, 4 }, 2, 0, 1 },  { { 2, 1, 3 }, 2, 2, 1 },
        { { 1, 1, 1 }, 3, -1, 1 }, { { 3, 2, 3 }, 4, -1, 1 },
        { { 8, 8, 4 }, 4, -1, 4 }, { { 6, 8, 6 }, 2, -1, 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct topology *t = NULL;
        tap_ok(topology_describe(cases[i].counts, 3, &t) == ERR_OK, "made");
        tap_is_int(topology_torn(t, cases[i].degree), cases[i].first,
                   "groups of %d", cases[i].degree);
        tap_is_int(topology_group(t), cases[i].group, "the largest whole one");
        tap_is_int(topology_torn(t, cases[i].group), -1, "is on one node");
        topology_destroy(t);
    }
}

int main(int argc, char **argv)
{
    struct comm *comm;
    struct topology *t = NULL;
    struct row rows[4] = { { 0 } };
    int launched = node_number("OMPI_COMM_WORLD_RANK", 0);
    char name[] = { 'n', 'o', 'd', 'e', (char)('0' + launched % 2), '\0' };
    if (unshare(CLONE_NEWUTS) != 0 || sethostname(name, strlen(name)) != 0) {
        tap_skip("no nodes can be made up here");
        return tap_done();
    }
    if (comm_create("auto", &argc, &argv, 60.0, &comm) != ERR_OK ||
        topology_create(comm, &t) != ERR_OK) {
        tap_ok(false, "create: %s", err_text());
        return tap_done();
    }
    int rank = comm_rank(comm), ranks = comm_size(comm);
    if (rank > 0)
        tap_silence();
    rows[rank].launched = launched;
    snprintf(rows[rank].host, sizeof rows[rank].host, "%s", name);
    int64_t good = comm_gather_rows(comm, rows, sizeof rows[0]) == ERR_OK &&
                   in_order(comm, t, rows);
    tap_ok(comm_all_reduce_i64(comm, &good, 1, COMM_MIN) == ERR_OK && good == 1,
           "%d ranks: node by node, each rank where its host is", ranks);
    tap_ok(t->nodes == (ranks < 2 ? 1 : 2) && t->most == (ranks + 1) / 2 &&
               t->least == (ranks < 2 ? 1 : ranks / 2),
           "nodes and how many ranks they have");
    tap_is_int(topology_group(t), ranks == 4 ? 2 : 1, "what divides them");
    test_torn();
    topology_destroy(t);
    comm_destroy(comm);
    return tap_done();
}
