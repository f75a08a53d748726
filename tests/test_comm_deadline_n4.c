/* A rank that hangs is named by every survivor, whatever they wait in. The last
 * rank hangs until rank 0 lets it go on. Each operation has a communicator of
 * its own, because a deadline breaks it; the first one stays whole. */

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/comm/comm.h"
#include "tests/tap.h"

#define DEADLINE_S 1.0
#define PATIENCE_S 120.0

enum operation { BARRIER, ALL_REDUCE, ALL_GATHER, BROADCAST, RECEIVE, COUNT };

static const char *const names[COUNT] = { "barrier", "all-reduce", "all-gather",
                                          "broadcast", "receive" };

/* One token of every survivor to rank 0 and back, so that they begin an
 * operation together. */
static enum err meet_survivors(struct comm *comm, int survivors)
{
    struct comm_request *request;
    bool first = comm_rank(comm) == 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 1; r < survivors; r++) {
            if (!first && r != comm_rank(comm))
                continue;
            int peer = first ? r : 0;
            if (first == (pass == 0))
                TRY(comm_start_recv(comm, NULL, 0, peer, 1, &request));
            else
                TRY(comm_start_send(comm, NULL, 0, peer, 1, &request));
            TRY(comm_wait(request, 0.0));
        }
    }
    return ERR_OK;
}

static enum err run(struct comm *comm, enum operation operation, int absent,
                    double deadline_s)
{
    static int64_t value = 1;
    static char data[64];
    struct comm_request *request;
    size_t *bytes = comm_sizes(comm, 0);
    size_t *offsets = comm_sizes(comm, 1);
    for (int r = 0; r < comm_size(comm); r++) {
        bytes[r] = 1;
        offsets[r] = (size_t)r % sizeof data;
    }
    switch (operation) {
    case BARRIER:
        TRY(comm_start_barrier(comm, &request));
        break;
    case ALL_REDUCE:
        TRY(comm_start_all_reduce_i64(comm, &value, 1, COMM_SUM, &request));
        break;
    case ALL_GATHER:
        TRY(comm_start_all_gather(comm, data, bytes, offsets, &request));
        break;
    case BROADCAST:
        TRY(comm_start_broadcast(comm, data, sizeof data, absent, &request));
        break;
    case RECEIVE:
    default:
        TRY(comm_start_recv(comm, data, sizeof data, absent, 0, &request));
        break;
    }
    return comm_wait(request, deadline_s);
}

static bool names_only(const char *text, const struct comm *comm, int absent)
{
    bool pass = true;
    for (int r = 0; r < comm_size(comm); r++) {
        char name[128];
        snprintf(name, sizeof name, "rank %d (%s)", r, comm_host(comm, r));
        pass = pass && (strstr(text, name) != NULL) == (r == absent);
    }
    return pass;
}

static void survive(struct comm *comm, struct comm **copies, int absent,
                    int64_t *passed)
{
    for (int i = 0; i < COUNT; i++) {
        if (meet_survivors(comm, absent) != ERR_OK) {
            tap_note("survivors: %s", err_text());
            return;
        }
        enum err rc = run(copies[i], (enum operation)i, absent, DEADLINE_S);
        passed[i] = rc == ERR_COMM && names_only(err_text(), comm, absent);
        tap_note("%s: %s", names[i], rc == ERR_OK ? "done" : err_text());
        /* Whatever comes next fails with the same reason and does not wait. */
        rc = comm_barrier(copies[i]);
        passed[i] =
            passed[i] && rc == ERR_COMM && names_only(err_text(), comm, absent);
    }
}

static void hang(const char *go)
{
    double end = clock_now() + PATIENCE_S;
    while (access(go, F_OK) != 0 && clock_now() < end)
        clock_sleep(0.01);
}

static void test_hang(struct comm *comm, const char *folder)
{
    struct comm *copies[COUNT] = { NULL };
    int64_t passed[COUNT + 1] = { 0 };
    int absent = comm_size(comm) - 1;
    char go[FSIO_PATH_MAX + 8];
    snprintf(go, sizeof go, "%s/go", folder);
    bool ready = true;
    for (int i = 0; i < COUNT; i++)
        ready = ready && comm_duplicate(comm, &copies[i]) == ERR_OK;
    if (ready && comm_rank(comm) == absent) {
        hang(go);
        for (int i = 0; i < COUNT; i++)
            passed[i] = 1;
    } else if (ready) {
        survive(comm, copies, absent, passed);
    }
    if (comm_rank(comm) == 0 && fsio_write_atomic(go, "", 0) != ERR_OK)
        tap_note("%s", err_text());
    enum err rc = comm_all_reduce_i64(comm, passed, COUNT, COMM_MIN);
    for (int i = 0; i < COUNT; i++)
        tap_ok(rc == ERR_OK && passed[i] == 1,
               "%s: all survivors name rank %d alone", names[i], absent);
    tap_is_int(rc, ERR_OK, "the first communicator still works");
    for (int i = 0; i < COUNT; i++) {
        /* Broken on the survivors; so that nobody waits for them: */
        if (comm_rank(comm) == absent && ready)
            (void)run(copies[i], RECEIVE, 0, 0.01);
        comm_destroy(copies[i]);
    }
}

int main(int argc, char **argv)
{
    struct comm *comm;
    char folder[FSIO_PATH_MAX] = "";
    if (comm_create("auto", &argc, &argv, PATIENCE_S, &comm) != ERR_OK) {
        tap_ok(false, "create: %s", err_text());
        return tap_done();
    }
    if (comm_rank(comm) > 0)
        tap_silence();
    if (comm_rank(comm) == 0)
        snprintf(folder, sizeof folder, "%s", tap_folder());
    if (comm_broadcast(comm, folder, sizeof folder, 0) != ERR_OK)
        tap_ok(false, "%s", err_text());
    else if (comm_size(comm) == 1)
        tap_skip("one rank has no peer that could hang");
    else
        test_hang(comm, folder);
    comm_destroy(comm);
    return tap_done();
}
