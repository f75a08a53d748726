/* How the model reaches the ranks with which it shares one computation: the
 * experts of a block (expert parallelism) or the chunks of a sequence (sequence
 * parallelism). Who implements it has the communicator (src/parallel/group.h).
 *
 * All ranks of a group make the same calls in the same order; what one sends to
 * another in a slot, the other receives in the same slot. */
#pragma once

#include <stddef.h>

#include "src/base/err.h"

#define GROUP_SLOTS 8

struct group_access {
    void *arg;
    int rank; /* place in the group */
    int size; /* 1: nobody else */
    /* Send to one rank of the group and receive from one, NULL and 0 bytes:
     * neither. Not this rank itself. The buffers are tensors and stay untouched
     * until the wait; what is sent is what ops wrote that were enqueued before,
     * and ops that are enqueued after the wait read what was received.
     * ERR_COMM names the rank that did not come. */
    enum err (*start)(void *arg, int slot, int to, const void *send,
                      size_t send_bytes, int from, void *recv,
                      size_t recv_bytes);
    /* Waits for a slot that was started; the slot is free then. */
    enum err (*wait)(void *arg, int slot);
};
