/* Messages between the ranks that share experts or sequences, and the roll call
 * that finds out who is missing. It exchanges bytes only: what is computed with
 * them is in src/model/model_experts_exchange.c and model_sequence.c.
 *
 * Say that of ranks in a ring 2 has died. 3 waits for it and is right to name it
 * at its deadline; but 0 waits for 3, and may reach its own deadline first and
 * name 3. So nobody who misses a message believes it: all go to a barrier, and
 * who does not come there is the one. */
#include "src/parallel/group.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#include "src/base/new.h"

/* How many deadlines a roll call waits. Ranks that miss somebody's messages may
 * have begun to wait for them a deadline apart. One with an error of its own
 * comes before them: they wait for a deadline, and with NCCL for its roll call,
 * which takes 1.25. */
#define PATIENCE_MISSED 1.25
#define PATIENCE_OWN 3.5

#define NOBODY (-1)

struct group {
    struct group_access access;
    struct comm_tensors *tensors; /* lent */
    struct comm *roll;            /* of the roll call */
    int first;                    /* rank of the run at place 0 */
    struct comm_tensors_request *requests[GROUP_SLOTS];
    bool called;
    struct err_kept found; /* by the roll call */
};

static enum err start(void *arg, int slot, int to, const void *send,
                      size_t send_bytes, int from, void *recv,
                      size_t recv_bytes)
{
    enum err rc = ERR_OK;
    struct group *group = arg;
    assert(slot >= 0 && slot < GROUP_SLOTS);
    assert(group->requests[slot] == NULL);
    if (send_bytes > 0 || recv_bytes > 0)
        rc = comm_tensors_start_exchange(
            group->tensors, send_bytes > 0 ? group->first + to : NOBODY, send,
            send_bytes, recv_bytes > 0 ? group->first + from : NOBODY, recv,
            recv_bytes, slot, &group->requests[slot]);
    return rc == ERR_COMM ? group_roll_call(group, rc) : rc;
}

static enum err wait_for(void *arg, int slot)
{
    enum err rc = ERR_OK;
    struct group *group = arg;
    assert(slot >= 0 && slot < GROUP_SLOTS);
    struct comm_tensors_request *request = group->requests[slot];
    group->requests[slot] = NULL;
    if (request != NULL)
        rc = comm_tensors_wait(request, 0.0);
    return rc == ERR_COMM ? group_roll_call(group, rc) : rc;
}

enum err group_create(struct comm *comm, struct comm_tensors *tensors,
                      int degree, struct group **out)
{
    enum err rc = ERR_OK;
    int rank = comm_rank(comm);
    struct group *group = NULL;
    assert(degree >= 1 && comm_size(comm) % degree == 0);
    TRY_OUT(comm_agree(comm, new_zeroed(&group, 1)));
    group->tensors = tensors;
    group->first = rank - rank % degree;
    group->access = (struct group_access){ .arg = group,
                                           .rank = rank % degree,
                                           .size = degree,
                                           .start = start,
                                           .wait = wait_for };
    TRY_OUT(comm_duplicate(comm, &group->roll));
out:
    return new_or_none(rc, group, out, group_destroy);
}

void group_destroy(struct group *group)
{
    if (group == NULL)
        return;
    comm_destroy(group->roll);
    free(group);
}

const struct group_access *group_access(const struct group *group)
{
    return &group->access;
}

/* Waits until every rank has come, then each tells what happened to it. */
static enum err call_roll(struct group *group)
{
    enum err own = group->found.code;
    struct comm_request *request = NULL;
    double timeout_s = comm_timeout_s(group->roll);
    timeout_s *= own == ERR_COMM ? PATIENCE_MISSED : PATIENCE_OWN;
    TRY(comm_start_barrier(group->roll, &request));
    TRY(comm_wait(request, timeout_s));
    return comm_agree(group->roll,
                      own == ERR_COMM ? ERR_OK : err_again(&group->found));
}

enum err group_roll_call(struct group *group, enum err rc)
{
    assert(rc != ERR_OK);
    if (!group->called) {
        group->called = true;
        err_keep(&group->found, rc);
        rc = call_roll(group);
        if (rc != ERR_OK)
            err_keep(&group->found, rc);
    }
    return err_again(&group->found);
}
