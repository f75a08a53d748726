/* Measures the offset of nodes' clocks by messages to rank 0 and back (Cristian
 * 1989).
 *
 * Rank 0 answers with its time. The asker knows only that the answer was given
 * between its sending and its receiving, so it takes the middle, and errs by
 * half of the round trip at most, whatever the two ways took. Of some rounds
 * the shortest is the best: others have waited somewhere. Ranks of one node
 * have the same CLOCK_MONOTONIC, so one of them asks. */
#include "src/comm/comm.h"

#include <stdlib.h>

#include "src/base/new.h"
#include "src/base/timeline.h"

#define ROUNDS 16
#define TAG 32000

/* The lowest rank on the same node. */
static int lowest_there(const struct comm *comm, int rank)
{
    int lowest = 0;
    while (!comm_same_host(comm, lowest, rank))
        lowest++;
    return lowest;
}

static enum err send_one(struct comm *comm, int to, const int64_t *value)
{
    struct comm_request *request;
    TRY(comm_start_send(comm, value, sizeof *value, to, TAG, &request));
    return comm_wait(request, 0.0);
}

static enum err receive_one(struct comm *comm, int from, int64_t *value)
{
    struct comm_request *request;
    TRY(comm_start_recv(comm, value, sizeof *value, from, TAG, &request));
    return comm_wait(request, 0.0);
}

/* Rank 0's part. */
static enum err answer(struct comm *comm, int rank)
{
    int64_t now = 0;
    for (int i = 0; i < ROUNDS; i++) {
        TRY(receive_one(comm, rank, &now));
        now = timeline_now();
        TRY(send_one(comm, rank, &now));
    }
    return ERR_OK;
}

static enum err ask(struct comm *comm, int64_t found[2])
{
    found[1] = INT64_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        int64_t theirs = 0;
        int64_t before = timeline_now();
        TRY(send_one(comm, 0, &before));
        TRY(receive_one(comm, 0, &theirs));
        int64_t half = (timeline_now() - before) / 2;
        if (half >= found[1])
            continue;
        found[0] = theirs - (before + half);
        found[1] = half;
    }
    return ERR_OK;
}

enum err comm_offset(struct comm *comm, int64_t *offset_ns, int64_t *error_ns)
{
    enum err rc = ERR_OK;
    int rank = comm_rank(comm), size = comm_size(comm);
    int64_t(*found)[2] = NULL;
    *offset_ns = *error_ns = 0;
    TRY_OUT(comm_agree(comm, new_zeroed(&found, (size_t)size)));
    for (int r = 1; r < size && rank == 0; r++)
        if (lowest_there(comm, r) == r)
            TRY_OUT(answer(comm, r));
    int lowest = lowest_there(comm, rank);
    if (rank > 0 && lowest == rank)
        TRY_OUT(ask(comm, found[rank]));
    TRY_OUT(comm_gather_rows(comm, found, sizeof *found));
    *offset_ns = found[lowest][0];
    *error_ns = found[lowest][1];
out:
    free(found);
    return rc;
}
