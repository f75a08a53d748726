#include "src/train/train_threads.h"

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

struct place {
    char host[64];
    cpu_set_t mask;
};

enum err train_threads(struct comm *comm, int requested, int *threads)
{
    enum err rc = ERR_OK;
    int ranks = comm_size(comm);
    int rank = comm_rank(comm);
    int sharing = 0;
    struct place *places = calloc((size_t)ranks, sizeof *places);
    size_t *bytes = calloc((size_t)ranks, sizeof *bytes);
    size_t *offsets = calloc((size_t)ranks, sizeof *offsets);
    if (places == NULL || bytes == NULL || offsets == NULL) {
        rc = err_set(ERR_MEMORY, "out of memory");
        goto out;
    }
    for (int r = 0; r < ranks; r++) {
        bytes[r] = sizeof *places;
        offsets[r] = (size_t)r * sizeof *places;
    }
    strncpy(places[rank].host, comm_host(comm, rank),
            sizeof places[rank].host - 1);
    /* a failure leaves an empty mask: then ranks of one host share */
    (void)sched_getaffinity(0, sizeof places[rank].mask, &places[rank].mask);
    TRY(comm_all_gather(comm, places, bytes, offsets));
    for (int r = 0; r < ranks; r++)
        sharing += memcmp(&places[r], &places[rank], sizeof *places) == 0;
    *threads = requested > 0 ? requested : kernels_threads_default(sharing);
out:
    free(places);
    free(bytes);
    free(offsets);
    return rc;
}
