#include "tests/nccl_fake.h"

#include <assert.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/deferred_memory.h"

#define MOST NCCL_FAKE_RANKS

struct message {
    bool receive;
    void *data; /* reachable */
    size_t bytes;
    int peer;
    struct comm_request *request;
};

struct group {
    int count;
    bool started, lost;
    void *stream;
    struct message messages[MOST];
};

struct nccl_fake nccl_fake;

static struct group *open_group; /* between group_start and group_end */
static struct group *held;       /* not enqueued while busy_left > 0 */
static int busy_left, state;
static char communicator;
static unsigned char met[MOST]; /* 1: received from, 2: sent to, 3: both */

static int fake_id(struct comm_nccl_id *id)
{
    memcpy(id->bytes, "fake", 5);
    return COMM_NCCL_SUCCESS;
}

static int fake_init(void **comm, int ranks, struct comm_nccl_id id, int rank,
                     struct comm_nccl_config *config)
{
    *comm = NULL;
    if (nccl_fake.alive != 0) {
        fprintf(stderr, "Bail out! NCCL: a second communicator is made while "
                        "there is one\n");
        abort();
    }
    if (strcmp(id.bytes, "fake") != 0 || ranks != comm_size(nccl_fake.comm) ||
        rank != comm_rank(nccl_fake.comm) || config->bytes != sizeof *config ||
        config->blocking != 0 || config->ctas_max != COMM_NCCL_CTAS ||
        config->ctas_min != INT_MIN || config->net_name != NULL)
        return COMM_NCCL_INVALID_ARGUMENT;
    if (nccl_fake.start_result != COMM_NCCL_SUCCESS)
        return nccl_fake.start_result;
    nccl_fake.alive++;
    *comm = &communicator;
    nccl_fake.groups = nccl_fake.met = 0;
    memset(met, 0, sizeof met);
    busy_left = nccl_fake.busy;
    state = busy_left > 0 ? COMM_NCCL_IN_PROGRESS : COMM_NCCL_SUCCESS;
    return state;
}

static void start(struct message *m)
{
    enum err rc = m->receive
                      ? comm_start_recv(nccl_fake.comm, m->data, m->bytes,
                                        m->peer, 0, &m->request)
                      : comm_start_send(nccl_fake.comm, m->data, m->bytes,
                                        m->peer, 0, &m->request);
    if (rc != ERR_OK)
        m->request = NULL;
}

/* Never true for a group with a peer that is gone, but for an abort. */
static bool run_group(void *argument)
{
    struct group *group = argument;
    bool done = true;
    for (int i = 0; i < group->count && !group->started; i++)
        start(&group->messages[i]);
    group->started = true;
    for (int i = 0; i < group->count; i++)
        group->lost |= group->messages[i].request == NULL;
    for (int i = 0; i < group->count && !group->lost; i++)
        done = comm_test(group->messages[i].request) && done;
    if (nccl_fake.alive > 0 && (!done || group->lost))
        return false;
    for (int i = 0; i < group->count; i++)
        if (group->messages[i].request != NULL &&
            comm_wait(group->messages[i].request, 1e-3) != ERR_OK)
            group->lost = true;
    if (group->lost && nccl_fake.alive > 0) {
        for (int i = 0; i < group->count; i++)
            group->messages[i].request = NULL;
        return false;
    }
    free(group);
    nccl_fake.ahead--;
    return true;
}

static int fake_async_error(void *comm, int *result)
{
    nccl_fake.misused |= comm != &communicator;
    if (busy_left > 0 && --busy_left == 0 && state == COMM_NCCL_IN_PROGRESS) {
        state = COMM_NCCL_SUCCESS;
        if (held != NULL)
            deferred_call(held->stream, run_group, held);
        held = NULL;
    }
    *result = state;
    return COMM_NCCL_SUCCESS;
}

static int fake_end(void *comm)
{
    nccl_fake.misused |= comm != &communicator || state != COMM_NCCL_SUCCESS;
    busy_left = nccl_fake.busy;
    state = busy_left > 0 ? COMM_NCCL_IN_PROGRESS : COMM_NCCL_SUCCESS;
    return state;
}

static int fake_destroy(void *comm)
{
    nccl_fake.misused |= comm != &communicator || state != COMM_NCCL_SUCCESS;
    nccl_fake.alive--;
    return COMM_NCCL_SUCCESS;
}

static int fake_abort(void *comm)
{
    nccl_fake.misused |= comm != &communicator || nccl_fake.alive != 1;
    nccl_fake.alive--;
    nccl_fake.aborts++;
    nccl_fake.ahead -= held != NULL;
    free(held);
    held = NULL;
    return COMM_NCCL_SUCCESS;
}

static const char *fake_error_text(int result)
{
    return result == COMM_NCCL_REMOTE_ERROR ? "remote process exited"
                                            : "another error";
}

static const char *fake_last_error(void *comm)
{
    return comm == NULL ? "" : "of the fake";
}

static int fake_group_start(void)
{
    nccl_fake.misused |= open_group != NULL || state != COMM_NCCL_SUCCESS;
    open_group = calloc(1, sizeof *open_group);
    if (open_group == NULL)
        abort();
    return COMM_NCCL_SUCCESS;
}

static int fake_group_end(void)
{
    struct group *group = open_group;
    open_group = NULL;
    nccl_fake.misused |= group->count == 0;
    if (group->count > nccl_fake.most)
        nccl_fake.most = group->count;
    if (++nccl_fake.groups > nccl_fake.groups_good &&
        nccl_fake.error_result != COMM_NCCL_SUCCESS) {
        state = nccl_fake.error_result;
        free(group);
        return COMM_NCCL_SUCCESS;
    }
    if (++nccl_fake.ahead > nccl_fake.ahead_most)
        nccl_fake.ahead_most = nccl_fake.ahead;
    busy_left = nccl_fake.busy;
    state = busy_left > 0 ? COMM_NCCL_IN_PROGRESS : COMM_NCCL_SUCCESS;
    if (busy_left > 0)
        held = group;
    else
        deferred_call(group->stream, run_group, group);
    return state;
}

static int add(bool receive, const void *data, size_t count, int type, int peer,
               void *comm, void *stream)
{
    assert(open_group->count < MOST);
    if (type != COMM_NCCL_BYTE || comm != &communicator || count == 0 ||
        peer == comm_rank(nccl_fake.comm))
        nccl_fake.misused = true;
    if (!receive)
        nccl_fake.sent[peer] += (int64_t)count;
    /* NCCL copies these byte by byte */
    if (!receive && (count % 16 != 0 || (uintptr_t)data % 16 != 0))
        nccl_fake.unaligned += (int64_t)count;
    unsigned char seen = met[peer];
    met[peer] |= receive ? 1 : 2;
    nccl_fake.met += seen != 3 && met[peer] == 3;
    open_group->stream = stream;
    open_group->messages[open_group->count++] =
        (struct message){ .receive = receive,
                          .data = deferred_reach(data),
                          .bytes = count,
                          .peer = peer };
    return COMM_NCCL_SUCCESS;
}

static int fake_send(const void *data, size_t count, int type, int peer,
                     void *comm, void *stream)
{
    return add(false, data, count, type, peer, comm, stream);
}

static int fake_recv(void *data, size_t count, int type, int peer, void *comm,
                     void *stream)
{
    return add(true, data, count, type, peer, comm, stream);
}

static int fake_version(int *version)
{
    *version = 22809;
    return COMM_NCCL_SUCCESS;
}

const struct comm_nccl_library nccl_fake_library = {
    .version = fake_version,
    .unique_id = fake_id,
    .init = fake_init,
    .finalize = fake_end,
    .destroy = fake_destroy,
    .abort = fake_abort,
    .async_error = fake_async_error,
    .error_text = fake_error_text,
    .last_error = fake_last_error,
    .group_start = fake_group_start,
    .group_end = fake_group_end,
    .send = fake_send,
    .recv = fake_recv,
};
