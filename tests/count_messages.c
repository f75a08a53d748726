/* Preloaded into ranks: each is known as a node of its own, and says at its end how
 * many messages it sent, small ones (control) and others (mostly tensors), to how
 * many other ranks, and how many bytes of the others to other nodes.
 *     mpicc -shared -fPIC -o count.so tests/count_messages.c
 * COUNT_NODE: ranks of a node (1). COUNT_NODES: nodes to which the launcher dealt ranks
 * in turn, instead. COUNT_FILE.RANK gets the four numbers. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define RANKS_MAX 1024
#define SMALL 2048 /* bytes: more than any decision of a step */

static long messages[2]; /* small, others */
static long between;     /* bytes of others, to other nodes */
static char met[RANKS_MAX];

static int own(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    return rank != NULL ? atoi(rank) : 0;
}

static int node_of(int rank)
{
    const char *ranks = getenv("COUNT_NODE"), *nodes = getenv("COUNT_NODES");
    if (nodes != NULL)
        return rank % atoi(nodes);
    return rank / (ranks != NULL ? atoi(ranks) : 1);
}

/* The launcher's number of a rank of `comm`, which may have numbers of its own. */
static int launched(MPI_Comm comm, int rank)
{
    MPI_Group group, world;
    int number = rank;
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_translate_ranks(group, 1, &rank, world, &number);
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    return number;
}

int gethostname(char *name, size_t bytes)
{
    return snprintf(name, bytes, "node%d", node_of(own())) < 0;
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info,
                        MPI_Comm *out)
{
    (void)type;
    (void)info;
    return PMPI_Comm_split(comm, node_of(own()), key, out);
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag,
              MPI_Comm comm, MPI_Request *request)
{
    int number = launched(comm, to);
    messages[count > SMALL]++;
    if (count > SMALL && node_of(number) != node_of(own()))
        between += count;
    if (number < RANKS_MAX && number != own())
        met[number] = 1;
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Finalize(void)
{
    char path[4096];
    int rank = 0, peers = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int r = 0; r < RANKS_MAX; r++)
        peers += met[r];
    snprintf(path, sizeof path, "%s.%d", getenv("COUNT_FILE"), rank);
    FILE *file = fopen(path, "w");
    if (file != NULL) {
        fprintf(file, "%ld %d %ld %ld\n", messages[0], peers, messages[1],
                between);
        fclose(file);
    }
    return PMPI_Finalize();
}
