/* What of a cluster a drain is decided by, read from what Slurm's programs
 * print: which share of it serves, and the marks that earlier decisions have
 * left in slurmctld.
 *
 * A decision needs a memory that outlives the node, an undrain and a restart,
 * and that all nodes share; a cluster has one that asks for no service and no
 * file system of its own: slurmctld's list of reservations, whose names are
 * ours to choose and of which a second of the same name is refused. So a mark is
 * a reservation eight years ahead, after the end of any job, which reserves nothing:
 *
 *     tessera-drain                      somebody decides: the lock, a minute
 *     tessera-drained.TIME.CODE.NODE     a node was drained for CODE at TIME
 *     tessera-refused.PARTITION          too much is out there; "-": everywhere.
 *                                        A minute, so that not each node counts
 *     tessera-latched.CODE               no more drains for CODE until an
 *                                        administrator deletes it
 *
 * TIME is slurmctld's, in seconds since the epoch: nodes' clocks are not asked.
 * Pure functions; nothing is opened. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"

#define CLUSTER_LOCK "tessera-drain"
#define CLUSTER_DRAINED "tessera-drained."
#define CLUSTER_REFUSED "tessera-refused."
#define CLUSTER_LATCHED "tessera-latched."
#define CLUSTER_EVERYWHERE "-"
/* What is drained by us has a reason that begins so; any other is somebody
 * else's and stays. */
#define CLUSTER_OURS "tessera: "
#define CLUSTER_NAME_BYTES 64
#define CLUSTER_SHARES_MAX 32
#define CLUSTER_MARKS_MAX 512

/* One node, of `sinfo -a -h -N -n NODE -o '%N|%T|%R|%E'`: a line for each of its
 * partitions. Unlike scontrol, sinfo asks slurmctld for that node alone. */
struct cluster_node {
    char state[32];   /* sinfo's word: "idle", "drained*" */
    char reason[128]; /* "none" where there is none */
    char partitions[CLUSTER_SHARES_MAX][CLUSTER_NAME_BYTES];
    int partition_count;
    bool out; /* it takes no jobs: down, drained or failing */
};

/* ERR_DATA: there is no line of the node, whose state is then not known.
 * Partitions beyond CLUSTER_SHARES_MAX are left out. */
enum err cluster_node_parse(const char *text, const char *name,
                            struct cluster_node *out);

/* Nodes of the cluster, or of a partition, and how many of them take no jobs,
 * for whatever reason. */
struct cluster_share {
    char name[CLUSTER_NAME_BYTES]; /* CLUSTER_EVERYWHERE: the cluster */
    int nodes, out;
};

/* The cluster first, then the partitions of one node. */
struct cluster_shares {
    struct cluster_share list[1 + CLUSTER_SHARES_MAX];
    int count;
    bool here_out; /* that node itself */
};

/* From `sinfo -a -h -N -o '%N|%T|%R'`: a line for each node and partition. FUTURE
 * nodes are none. ERR_DATA: a line is none of that kind, or the node is not
 * there; ERR_MEMORY. */
enum err cluster_shares_parse(const char *text, const struct cluster_node *node,
                              const char *name, struct cluster_shares *out);

struct cluster_drained {
    double time; /* s since the epoch */
    char code[CLUSTER_NAME_BYTES];
    char mark[192]; /* the reservation's name */
};

struct cluster_marks {
    bool locked;
    double lock_time; /* since when, by slurmctld's clock; 0: not locked */
    struct cluster_drained drained[CLUSTER_MARKS_MAX];
    int drained_count;
    char latched[CLUSTER_MARKS_MAX][CLUSTER_NAME_BYTES];
    int latched_count;
    char refused[CLUSTER_SHARES_MAX][CLUSTER_NAME_BYTES];
    int refused_count;
};

/* From `TZ=UTC scontrol -o show reservation`; other reservations are passed over.
 * ERR_DATA: the answer is none ("No reservations in the system" is one). Marks
 * beyond the room are left out, the newest ones last. */
enum err cluster_marks_parse(const char *text, struct cluster_marks *out);
