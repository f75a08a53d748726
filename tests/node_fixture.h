/* Ranks on nodes that are this machine under several names, and ranks that
 * can't open each other's memory; only root can do either. */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

static inline int node_number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : otherwise;
}

/* Before MPI starts. TESSERA_TEST_NODE_RANKS: so many ranks are a node. */
static inline bool node_become(void)
{
    int rank = node_number("OMPI_COMM_WORLD_RANK", 0);
    int ranks = node_number("TESSERA_TEST_NODE_RANKS", 0);
    char name[32];
    if (ranks == 0)
        return true;
    int length = snprintf(name, sizeof name, "node%d", rank / ranks);
    return unshare(CLONE_NEWUTS) == 0 && sethostname(name, (size_t)length) == 0;
}

/* Before MPI starts: four ranks are two nodes, if nothing else is said; who is not root
 * has one node. */
static inline void node_pairs(void)
{
    if (node_number("OMPI_COMM_WORLD_SIZE", 1) == 4)
        setenv("TESSERA_TEST_NODE_RANKS", "2", 0);
    (void)node_become();
}

/* Once MPI has started, which needs it. TESSERA_TEST_HIDE_PROC: this rank has
 * an empty /proc. */
static inline bool node_hide(int rank)
{
    if (node_number("TESSERA_TEST_HIDE_PROC", -1) != rank)
        return true;
    return unshare(CLONE_NEWNS) == 0 &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/proc", "tmpfs", 0, NULL) == 0;
}
