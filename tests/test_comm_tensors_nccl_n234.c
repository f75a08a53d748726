/* The way nccl where it differs: starts that fail, errors, how far the host is
 * ahead. By a fake library. */

#include "tests/deferred_memory.h"
#include "tests/nccl_fake.h"
#include "tests/tensors_bench.h"

/* The host does not wait for NCCL, nor does it leave it far behind. */
static void test_ahead(struct comm *comm)
{
    struct bench b = { .comm = comm, .memory = &deferred_memory };
    int rank = comm_rank(comm), size = comm_size(comm);
    enum err rc = bench_open(&b, EXCHANGE_NCCL, &nccl_fake_library);
    everywhere(comm, rc == ERR_OK, "nccl", "begins");
    everywhere(comm,
               nccl_fake.groups == 1 && nccl_fake.met == size - 1 &&
                   nccl_fake.ahead == 0,
               "nccl", "after a message from and to everybody");
    nccl_fake.ahead_most = 0;
    for (int turn = 0; rc == ERR_OK && turn < 50; turn++) {
        struct comm_tensors_request *request;
        rc = comm_tensors_start_exchange(
            b.tensors, (rank + 1) % size, tensor(&b, 100), 100,
            (rank + size - 1) % size, tensor(&b, 100), 100, 0, &request);
        if (rc == ERR_OK)
            rc = comm_tensors_wait(request, 0.0);
        if (turn == 9)
            everywhere(comm, nccl_fake.ahead == 10, "nccl",
                       "a wait does not stop the host");
    }
    if (rc == ERR_OK)
        rc = comm_tensors_settle(b.tensors, 0.0);
    everywhere(comm, rc == ERR_OK && nccl_fake.ahead == 0, "nccl",
               "a settle does");
    everywhere(comm, nccl_fake.ahead_most < 20, "nccl",
               "and so does a long way ahead");
    bench_close(&b);
}

/* An all-gather, and a message of the first rank to the last, begun together: one group,
 * at the end or when one of them is waited for first. */
static void test_together(struct comm *comm, bool ended)
{
    struct bench b = { .comm = comm, .memory = &deferred_memory };
    int rank = comm_rank(comm), last = comm_size(comm) - 1;
    struct comm_tensors_request *all = NULL, *one = NULL;
    char *data = NULL;
    enum err rc = bench_open(&b, EXCHANGE_NCCL, &nccl_fake_library);
    everywhere(comm, rc == ERR_OK, "nccl", "begins");
    int groups = nccl_fake.groups;
    begin(&b);
    char *out = tensor(&b, 100), *in = tensor(&b, 100);
    put(&b, out, 100, 77);
    comm_tensors_together(b.tensors);
    all = gather(&b, 1, &data);
    note(&b,
         comm_tensors_start_exchange(b.tensors, rank == 0 ? last : -1, out, 100,
                                     rank == last ? 0 : -1, in, 100, 0, &one));
    everywhere(comm,
               nccl_fake.groups == groups && all != NULL &&
                   !comm_tensors_test(all),
               "nccl", "what begins together is put aside");
    if (ended)
        note(&b, comm_tensors_together_end(b.tensors, ERR_OK));
    everywhere(comm, nccl_fake.groups == groups + ended, "nccl",
               ended ? "the end begins it, as one group"
                     : "until it is needed");
    if (one != NULL)
        note(&b, comm_tensors_wait(one, 0.0));
    everywhere(comm, nccl_fake.groups == groups + 1, "nccl",
               "also on ranks that have no part in what is waited for");
    if (all != NULL)
        note(&b, comm_tensors_wait(all, 0.0));
    if (!ended)
        note(&b, comm_tensors_together_end(b.tensors, ERR_OK));
    if (rank == last)
        look(&b, in, 100, 77);
    for (int r = 0; r <= last; r++)
        look(&b, data + (size_t)(last - r) * 200 + 3, share(r, 1),
             (unsigned)(r + 1));
    end(&b, "nccl: both have come");
    everywhere(comm, nccl_fake.groups == groups + 1, "nccl", "in one group");
    bench_close(&b);
}

/* Ops of the stream that are not done. */
static bool run_op(void *argument)
{
    --*(int *)argument;
    return true;
}

static int most_waiting(struct comm *comm, enum comm_exchange way, int ahead)
{
    struct bench b = { .comm = comm, .memory = &deferred_memory };
    int waiting = 0, most = -1;
    enum err rc = bench_open(&b, way, &nccl_fake_library);
    for (int i = 0; rc == ERR_OK && i < 100; i++) {
        rc = comm_tensors_pace(b.tensors, ahead);
        most = waiting > most ? waiting : most;
        waiting++;
        deferred_call(b.stream, run_op, &waiting);
    }
    if (rc == ERR_OK)
        rc = comm_tensors_settle(b.tensors, 0.0);
    bench_close(&b);
    return rc == ERR_OK && waiting == 0 ? most : -1;
}

static void test_pace(struct comm *comm)
{
    everywhere(comm, most_waiting(comm, EXCHANGE_NCCL, 16) == 16, "nccl",
               "16 portions ahead and no more");
    everywhere(comm, most_waiting(comm, EXCHANGE_NCCL, 1) == 1, "nccl",
               "1 ahead");
    everywhere(comm, most_waiting(comm, EXCHANGE_STAGED, 1) == 99, "staged",
               "as far ahead as may be");
}

/* NCCL that starts badly, on the last rank, is everybody's error, and no reason
 * to go another way. */
static void test_bad_start(struct comm *comm)
{
    static const struct {
        int result;
        enum err rc;
    } cases[] = { { COMM_NCCL_SYSTEM_ERROR, ERR_IO },
                  { COMM_NCCL_INTERNAL_ERROR, ERR_INTERNAL } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bench b = { .comm = comm, .memory = &deferred_memory };
        if (comm_rank(comm) == comm_size(comm) - 1)
            nccl_fake.start_result = cases[i].result;
        enum err rc = bench_open(&b, EXCHANGE_NCCL, &nccl_fake_library);
        everywhere(comm,
                   rc == cases[i].rc && b.tensors == NULL &&
                       strstr(err_text(), "NCCL: starting: another") != NULL,
                   "nccl", "a bad start on one rank is everybody's");
        bench_close(&b);
    }
    everywhere(comm,
               nccl_fake.alive == 0 &&
                   nccl_fake.aborts ==
                       (comm_rank(comm) == comm_size(comm) - 1 ? 0 : 2),
               "nccl", "and aborts what others began");
    nccl_fake.aborts = 0;
    nccl_fake.start_result = COMM_NCCL_SUCCESS;
}

/* No shutdown of a comm of which some ranks are broken: break it on all. */
static void drop(struct comm *comm)
{
    comm_request_break(comm);
    comm_destroy(comm);
}

/* The first messages fail on the last rank. */
static void test_bad_greeting(struct comm *comm, int result, enum err want)
{
    struct bench b = { .comm = comm, .memory = &deferred_memory };
    bool last = comm_rank(comm) == comm_size(comm) - 1;
    enum err rc = comm_duplicate(comm, &nccl_fake.comm);
    comm->timeout_s = 4.0;
    nccl_fake.groups_good = 0;
    nccl_fake.error_result = last ? result : COMM_NCCL_SUCCESS;
    if (rc == ERR_OK)
        rc = bench_open(&b, EXCHANGE_NCCL, &nccl_fake_library);
    everywhere(comm,
               rc == want && b.tensors == NULL && nccl_fake.alive == 0 &&
                   nccl_fake.aborts == 1 &&
                   strstr(err_text(), "NCCL: first messages") != NULL,
               "nccl", "bad first messages on one rank are everybody's");
    nccl_fake.aborts = 0;
    nccl_fake.error_result = COMM_NCCL_SUCCESS;
    comm->timeout_s = 60.0;
    bench_close(&b);
    drop(nccl_fake.comm);
}

static struct arena left_to_mpi[2];

/* The last rank sends to the one before it. */
static enum err send_back(struct bench *b)
{
    int last = comm_size(b->comm) - 1, rank = comm_rank(b->comm);
    struct comm_tensors_request *request;
    TRY(comm_tensors_start_exchange(
        b->tensors, rank == last ? last - 1 : -1, tensor(b, 50), 50,
        rank == last - 1 ? last : -1, tensor(b, 50), 50, 0, &request));
    return comm_tensors_wait(request, 0.5);
}

static enum err gather_all(struct bench *b)
{
    char *data;
    struct comm_tensors_request *request = gather(b, 1, &data);
    return request != NULL ? comm_tensors_wait(request, 0.5) : b->rc;
}

/* After some groups NCCL reports an error on the last rank. Nobody hangs, all
 * know, those too that have no part in it, and what comes next fails with the
 * same text. */
static void test_error(struct comm *comm, int which, int groups)
{
    struct bench b = { .comm = comm, .memory = &deferred_memory };
    bool last = comm_rank(comm) == comm_size(comm) - 1;
    char text[512];
    enum err rc = comm_duplicate(comm, &nccl_fake.comm);
    nccl_fake.groups_good = groups;
    nccl_fake.error_result = last ? COMM_NCCL_REMOTE_ERROR : COMM_NCCL_SUCCESS;
    if (rc == ERR_OK)
        rc = bench_open(&b, EXCHANGE_NCCL, &nccl_fake_library);
    everywhere(comm, rc == ERR_OK, "nccl", "begins");
    for (int turn = 0; rc == ERR_OK && turn < 40; turn++) {
        begin(&b);
        rc = which == 0 ? gather_all(&b) : send_back(&b);
        if (rc == ERR_OK && turn % 10 == 9)
            rc = comm_tensors_settle(b.tensors, 0.5);
    }
    snprintf(text, sizeof text, "%s", err_text());
    const char *want = last ? "remote process exited: of the fake" : "NCCL";
    bool told = rc == ERR_COMM && strstr(text, want) != NULL;
    if (!told)
        tap_note("%s: %s", err_name(rc), text);
    everywhere(comm,
               told && gather_all(&b) == ERR_COMM &&
                   strcmp(text, err_text()) == 0 &&
                   comm_tensors_settle(b.tensors, 0.0) == ERR_COMM &&
                   strcmp(text, err_text()) == 0,
               "nccl", "an error on one rank ends all");
    comm_tensors_destroy(b.tensors);
    everywhere(comm,
               nccl_fake.alive == 0 && nccl_fake.aborts == 1 &&
                   !nccl_fake.misused,
               "nccl", "its communicator is aborted");
    nccl_fake.aborts = 0;
    nccl_fake.error_result = COMM_NCCL_SUCCESS;
    deferred_memory.wait(b.stream);
    deferred_memory.stream_destroy(b.stream);
    deferred_memory.host_destroy(&b.host);
    /* the tensors stay: MPI may have them still */
    left_to_mpi[which] = b.device;
    drop(nccl_fake.comm);
}

int main(int argc, char **argv)
{
    struct comm *comm;
    deferred.name = "0000:01:00.0";
    if (comm_create("auto", &argc, &argv, 60.0, &comm) != ERR_OK ||
        comm_duplicate(comm, &nccl_fake.comm) != ERR_OK) {
        tap_ok(false, "create: %s", err_text());
        return tap_done();
    }
    if (comm_rank(comm) > 0)
        tap_silence();
    test_bad_start(comm);
    test_pace(comm);
    for (int busy = 0; busy < 6; busy += 3) {
        nccl_fake.busy = busy;
        test_ahead(comm);
        test_together(comm, true);
        test_together(comm, false);
    }
    everywhere(comm,
               nccl_fake.alive == 0 && nccl_fake.aborts == 0 &&
                   !nccl_fake.misused,
               "nccl", "was used well");
    comm_destroy(nccl_fake.comm);
    test_bad_greeting(comm, COMM_NCCL_SYSTEM_ERROR, ERR_IO);
    test_bad_greeting(comm, COMM_NCCL_REMOTE_ERROR, ERR_COMM);
    test_error(comm, 0, 3);
    test_error(comm, 1, 22);
    comm_destroy(comm);
    return tap_done();
}
