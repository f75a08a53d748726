/* Ranks in the order of nodes, whatever the launcher did: `mpirun --map-by node` and
 * `srun --distribution=cyclic` deal them in turn, and then neighbours, who are a shard
 * group or share a sequence, would be on as many nodes as they are. */
#include "src/comm/comm_mpi_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/base/new.h"

static enum err gather_hosts(struct comm *comm, MPI_Comm world)
{
    char host[COMM_HOST_BYTES] = "";
    if (gethostname(host, sizeof host - 1) != 0)
        snprintf(host, sizeof host, "unknown");
    if (MPI_Allgather(host, sizeof host, MPI_CHAR, comm->hosts, sizeof host,
                      MPI_CHAR, world) == MPI_SUCCESS)
        return ERR_OK;
    return err_set(ERR_COMM, "MPI_Allgather: hosts cannot be exchanged");
}

/* Where this rank belongs; true: some rank belongs elsewhere. */
static bool place_of(const struct comm *comm, int *place)
{
    const int *nodes = comm->nodes;
    bool moved = false;
    *place = 0;
    for (int r = 0; r < comm->size; r++) {
        *place += nodes[r] < nodes[comm->rank] ||
                  (nodes[r] == nodes[comm->rank] && r < comm->rank);
        moved |= r > 0 && nodes[r] != nodes[r - 1] && nodes[r] != r;
    }
    return moved;
}

/* srun without a PMI plugin starts every task as a world of its own; training
 * so would be `tasks` runs that destroy each other's files. */
enum err comm_mpi_check_world(const struct comm *comm)
{
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    if (tasks == NULL || getenv("OMPI_COMM_WORLD_SIZE") != NULL ||
        strtol(tasks, NULL, 10) == comm->size)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "srun started %s tasks but MPI sees %d ranks; start with "
                   "srun --mpi=pmix",
                   tasks, comm->size);
}

enum err comm_mpi_order(struct comm *comm, MPI_Comm *world)
{
    int place, code;
    *world = MPI_COMM_WORLD;
    TRY(new_zeroed(&comm->hosts, (size_t)comm->size));
    TRY(gather_hosts(comm, *world));
    TRY(comm_request_nodes(comm));
    if (!place_of(comm, &place))
        return ERR_OK;
    if (comm->rank == 0)
        log_info("the launcher dealt ranks over the nodes in turn; they are "
                 "numbered node by node here");
    code = MPI_Comm_split(MPI_COMM_WORLD, 0, place, world);
    if (code != MPI_SUCCESS)
        return err_set(ERR_COMM, "MPI_Comm_split: ranks cannot be ordered");
    comm->rank = place;
    TRY(gather_hosts(comm, *world));
    return comm_request_nodes(comm);
}
