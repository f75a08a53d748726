/* NCCL as far as src/comm uses it, on the streams of tests/deferred_memory.h:
 * a group is done when the stream has come to it on both sides, by messages of
 * a comm that the test lends. A second communicator ends the test: two that are
 * issued in different orders on two ranks are a deadlock. */
#pragma once

#include <stdbool.h>

#include "src/comm/comm.h"
#include "src/comm/comm_nccl_library.h"

#define NCCL_FAKE_RANKS 64

struct nccl_fake {
    struct comm *comm; /* lent */
    int busy;          /* calls that a group or a start is in progress for */
    int start_result;  /* of init */
    int groups_good;   /* groups until an error of error_result */
    int error_result;
    /* What happened: */
    int groups, alive, aborts;
    int met; /* ranks from which and to which a message has gone */
    int ahead, ahead_most;         /* groups that are not done */
    int64_t sent[NCCL_FAKE_RANKS]; /* bytes, to each rank */
    int64_t unaligned; /* of them, not whole sixteens from such an address */
    int most;          /* messages of one group, both ways */
    bool misused;
};
extern struct nccl_fake nccl_fake;
extern const struct comm_nccl_library nccl_fake_library;
