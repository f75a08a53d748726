/* Clocks of other nodes: all ranks of this test have the same clock, also where
 * it is made to believe that they are on nodes of their own. */
#include "src/comm/comm.h"

#include "src/comm/comm_impl.h"
#include "tests/tap.h"

static void everywhere(struct comm *comm, bool pass, const char *what)
{
    int64_t good = pass;
    enum err rc = comm_all_reduce_i64(comm, &good, 1, COMM_MIN);
    tap_ok(rc == ERR_OK && good == 1, "%s", what);
}

int main(int argc, char **argv)
{
    struct comm *comm;
    int64_t offset = 1, error = 1;
    if (comm_create("auto", &argc, &argv, 60.0, &comm) != ERR_OK) {
        tap_ok(false, "create: %s", err_text());
        return tap_done();
    }
    if (comm_rank(comm) > 0)
        tap_silence();
    everywhere(comm, comm_offset(comm, &offset, &error) == ERR_OK,
               "clocks are compared");
    everywhere(comm, offset == 0 && error == 0,
               "a node has one clock, exactly");
    /* ranks 1 and 2 on one other node */
    for (int r = 1; r < comm_size(comm); r++)
        comm->nodes[r] = 1;
    everywhere(comm, comm_offset(comm, &offset, &error) == ERR_OK,
               "and those of two nodes");
    everywhere(comm,
               comm_rank(comm) == 0 ? offset == 0 && error == 0
                                    : error > 0 && llabs(offset) <= error,
               "the offset, which is 0, is found within the error");
    int64_t offsets[5] = { 0 };
    offsets[comm_rank(comm)] = offset;
    enum err rc = comm_all_reduce_i64(comm, offsets, 5, COMM_SUM);
    everywhere(
        comm, rc == ERR_OK && (comm_size(comm) < 3 || offsets[1] == offsets[2]),
        "ranks of a node have the same");
    /* each on its own, so that the last of four asks by another one */
    for (int r = 1; r < comm_size(comm); r++)
        comm->nodes[r] = r;
    everywhere(comm,
               comm_offset(comm, &offset, &error) == ERR_OK &&
                   llabs(offset) <= error,
               "of as many nodes as ranks, too");
    comm_destroy(comm);
    return tap_done();
}
