/* How many threads a rank computes with: the node's processors divided among
 * its ranks. Ranks that share processors are found by host and affinity mask, as
 * the launcher has set it: with one mask for all the processors are divided, with
 * a mask for each every rank has those of its own. */
#include "src/train/start/start.h"

#include <assert.h>
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/base/new.h"

#define TOO_MANY 8 /* threads per processor */

struct place {
    char host[64];
    cpu_set_t mask;
};

/* Somewhat more threads than processors are only slow; of very many the OpenMP
 * library ends the process when it can't make one. */
static enum err check_requested(const struct comm *comm, int requested)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const char *host = comm_host(comm, comm_rank(comm));
    if (processors < 1 || requested <= processors)
        return ERR_OK;
    if (requested > processors * TOO_MANY)
        return err_set(ERR_USAGE,
                       "hardware.threads is %d, and %s has %ld processors: "
                       "give at most that many, or 0 for what there is",
                       requested, host, processors);
    log_warn("hardware.threads is %d, and %s has %ld processors: they will "
             "wait for each other",
             requested, host, processors);
    return ERR_OK;
}

enum err start_threads(struct comm *comm, int requested, int *threads)
{
    enum err rc = ERR_OK;
    int ranks = comm_size(comm);
    int rank = comm_rank(comm);
    int sharing = 0;
    struct place *places = NULL;
    TRY_OUT(new_zeroed(&places, (size_t)ranks));
    strncpy(places[rank].host, comm_host(comm, rank),
            sizeof places[rank].host - 1);
    /* a failure leaves an empty mask: then ranks of one host share */
    (void)sched_getaffinity(0, sizeof places[rank].mask, &places[rank].mask);
    TRY_OUT(comm_gather_rows(comm, places, sizeof *places));
    for (int r = 0; r < ranks; r++)
        sharing += memcmp(&places[r], &places[rank], sizeof *places) == 0;
    assert(sharing > 0); /* itself at least */
    *threads = requested > 0 ? requested : kernels_threads_default(sharing);
    TRY_OUT(comm_agree(comm, check_requested(comm, requested)));
    assert(*threads > 0);
    /* also of loops that name no number, whatever OMP_NUM_THREADS says */
    omp_set_num_threads(*threads);
out:
    free(places);
    return rc;
}
