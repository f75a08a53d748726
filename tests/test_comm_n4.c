/* Communication of any number of ranks: every operation against what can be
 * computed locally. */
#include <errno.h>

#include "src/comm/comm.h"
#include "tests/tap.h"

#define LONG_BYTES ((size_t)150 * 1024 * 1024 + 13) /* more than two pieces */

/* A start that failed left no request. */
static enum err wait_for(struct comm_request *request)
{
    return request != NULL ? comm_wait(request, 0.0) : ERR_INTERNAL;
}

/* A point counts when it holds on every rank. */
static void everywhere(struct comm *comm, bool pass, const char *what)
{
    int64_t good = pass;
    enum err rc = comm_all_reduce_i64(comm, &good, 1, COMM_MIN);
    tap_ok(rc == ERR_OK && good == 1, "%s", what);
    if (rc != ERR_OK)
        tap_note("%s", err_text());
}

static unsigned char pattern(int rank, size_t i)
{
    return (unsigned char)((i * 31 + (size_t)rank * 101 + 7) >> 2);
}

static void fill(unsigned char *data, size_t bytes, int rank)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = pattern(rank, i);
}

static bool is_filled(const unsigned char *data, size_t bytes, int rank)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != pattern(rank, i))
            return false;
    }
    return true;
}

static void test_identity(struct comm *comm)
{
    bool pass = comm_rank(comm) < comm_size(comm) &&
                comm_local_size(comm) <= comm_size(comm) &&
                comm_local_rank(comm) < comm_local_size(comm);
    for (int r = 0; r < comm_size(comm); r++)
        pass = pass && comm_host(comm, r)[0] != '\0';
    everywhere(comm, pass, "ranks, local ranks and hosts are known");
}

/* Around a ring: send to the next, receive from the one before. */
static void test_ring(struct comm *comm, size_t bytes, const char *what)
{
    int rank = comm_rank(comm);
    int size = comm_size(comm);
    int before = (rank + size - 1) % size;
    unsigned char *out = malloc(bytes + 1);
    unsigned char *in = calloc(1, bytes + 1);
    struct comm_request *requests[2];
    fill(out, bytes, rank);
    enum err rc = comm_start_recv(comm, in, bytes, before, 9, &requests[0]);
    rc |= comm_start_send(comm, out, bytes, (rank + 1) % size, 9, &requests[1]);
    rc |= wait_for(requests[0]);
    rc |= wait_for(requests[1]);
    everywhere(comm, rc == ERR_OK && is_filled(in, bytes, before), what);
    free(in);
    free(out);
}

static void test_tags(struct comm *comm)
{
    int rank = comm_rank(comm);
    int size = comm_size(comm);
    int out[2] = { 10 * rank, 10 * rank + 1 };
    int in[2] = { -1, -1 };
    struct comm_request *requests[4];
    int before = (rank + size - 1) % size;
    enum err rc = ERR_OK;
    for (int i = 0; i < 2; i++)
        rc |= comm_start_send(comm, &out[i], sizeof(int), (rank + 1) % size,
                              i == 0 ? 0 : 32767, &requests[i]);
    for (int i = 1; i >= 0; i--)
        rc |= comm_start_recv(comm, &in[i], sizeof(int), before,
                              i == 0 ? 0 : 32767, &requests[2 + i]);
    for (int i = 0; i < 4; i++)
        rc |= wait_for(requests[i]);
    everywhere(comm,
               rc == ERR_OK && in[0] == 10 * before && in[1] == 10 * before + 1,
               "tags tell messages apart");
}

static void test_all_gather(struct comm *comm)
{
    int size = comm_size(comm);
    int rank = comm_rank(comm);
    size_t bytes[64];
    size_t offsets[64];
    size_t total = 0;
    for (int r = 0; r < size; r++) {
        bytes[r] = r == 1 ? 0 : 1000 * (size_t)r + 3;
        offsets[r] = total;
        total += bytes[r];
    }
    unsigned char *data = calloc(1, total + 1);
    fill(data + offsets[rank], bytes[rank], rank);
    bool pass = comm_all_gather(comm, data, bytes, offsets) == ERR_OK;
    for (int r = 0; r < size; r++)
        pass = pass && is_filled(data + offsets[r], bytes[r], r);
    everywhere(comm, pass, "all-gather of parts of different size, one empty");
    free(data);
}

/* Rank r has r times three bytes, or nobody any. */
static void test_gather_parts(struct comm *comm, int each)
{
    int rank = comm_rank(comm), size = comm_size(comm);
    unsigned char own[64], *all = NULL;
    size_t bytes_of[16] = { 77, 77, 77, 77 };
    memset(own, 'a' + rank, sizeof own);
    bool good = comm_gather_parts(comm, own, (size_t)(each * rank), &all,
                                  bytes_of) == ERR_OK;
    size_t at = 0;
    for (int r = 0; r < size && good; r++) {
        good = bytes_of[r] == (size_t)(each * r);
        for (int i = 0; i < each * r && good; i++)
            good = all[at++] == 'a' + r;
    }
    free(all);
    everywhere(comm, good,
               each > 0 ? "parts of lengths that none knew"
                        : "and parts of nothing");
}

static void test_broadcast(struct comm *comm)
{
    bool pass = true;
    for (int root = 0; root < comm_size(comm); root++) {
        unsigned char data[5000] = { 0 };
        if (comm_rank(comm) == root)
            fill(data, sizeof data, root);
        pass = pass &&
               comm_broadcast(comm, data, sizeof data, root) == ERR_OK &&
               is_filled(data, sizeof data, root);
    }
    everywhere(comm, pass, "broadcast from every root");
}

static void test_all_reduce(struct comm *comm)
{
    static const struct {
        enum comm_op op;
        size_t count;
        const char *what;
    } cases[] = { { COMM_SUM, 1000, "all-reduce, sum of 1000" },
                  { COMM_MAX, 16, "all-reduce, maximum of 16" },
                  { COMM_MIN, 17, "all-reduce, minimum of 17" },
                  { COMM_SUM, 0, "all-reduce of nothing" } };
    for (unsigned c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int64_t values[1000];
        int64_t want[1000];
        for (size_t i = 0; i < cases[c].count; i++) {
            for (int r = comm_size(comm) - 1; r >= 0; r--) {
                int64_t v = (int64_t)((i + 1) * 7919 % 1013) * (r + 1) -
                            500 * ((int64_t)1 << 40) * (r % 2);
                if (r == comm_rank(comm))
                    values[i] = v;
                if (r == comm_size(comm) - 1)
                    want[i] = v;
                else if (cases[c].op == COMM_SUM)
                    want[i] += v;
                else if ((cases[c].op == COMM_MAX) == (v > want[i]))
                    want[i] = v;
            }
        }
        enum err rc =
            comm_all_reduce_i64(comm, values, cases[c].count, cases[c].op);
        bool pass = rc == ERR_OK;
        for (size_t i = 0; i < cases[c].count; i++)
            pass = pass && values[i] == want[i];
        everywhere(comm, pass, cases[c].what);
    }
}

static void test_all_to_all(struct comm *comm)
{
    int size = comm_size(comm);
    int rank = comm_rank(comm);
    size_t *arrays[4];
    unsigned char send[64 * 100];
    unsigned char recv[64 * 100] = { 0 };
    struct comm_request *request;
    for (int i = 0; i < 4; i++)
        arrays[i] = comm_sizes(comm, i);
    for (int r = 0; r < size; r++) {
        arrays[0][r] = (size_t)((rank + 2 * r) % 5) * 20;
        arrays[2][r] = (size_t)((r + 2 * rank) % 5) * 20;
        arrays[1][r] = arrays[3][r] = (size_t)r * 100;
        fill(send + arrays[1][r], arrays[0][r], 10 * rank + r);
    }
    enum err rc = comm_start_all_to_all(comm, send, arrays[0], arrays[1], recv,
                                        arrays[2], arrays[3], &request);
    rc = rc == ERR_OK ? wait_for(request) : rc;
    bool pass = rc == ERR_OK;
    for (int r = 0; r < size; r++)
        pass =
            pass && is_filled(recv + (size_t)r * 100,
                              (size_t)((r + 2 * rank) % 5) * 20, 10 * r + rank);
    everywhere(comm, pass, "all-to-all, some parts empty");
}

/* Several at once, waited for in the other order on odd ranks. */
/* Two long messages and a short one to the next rank. */
static void test_messages(struct comm *comm)
{
    const size_t bytes[] = { LONG_BYTES, LONG_BYTES / 2, 5 };
    int rank = comm_rank(comm), size = comm_size(comm);
    unsigned char *data = malloc(4 * LONG_BYTES), *at = data;
    struct comm_message list[6];
    struct comm_request *request = NULL;
    for (int i = 0; i < 6; i++) {
        int step = i < 3 ? size - 1 : 1;
        list[i] = (struct comm_message){ at, bytes[i % 3], (rank + step) % size,
                                         i < 3 };
        fill(at, bytes[i % 3], i < 3 ? -1 : 3 * rank + i);
        at += bytes[i % 3];
    }
    bool pass = comm_start_messages(comm, list, 6, &request) == ERR_OK &&
                wait_for(request) == ERR_OK;
    for (int i = 0; i < 3; i++)
        pass =
            pass && is_filled(list[i].data, bytes[i], 3 * list[i].peer + i + 3);
    everywhere(comm, pass, "listed messages, long ones too");
    free(data);
}

static void test_overlap(struct comm *comm)
{
    enum { COUNT = 8 };
    struct comm_request *requests[COUNT];
    int64_t values[COUNT][40];
    bool pass = true;
    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k < 40; k++)
            values[i][k] = i + k;
        pass = pass && comm_start_all_reduce_i64(comm, values[i], 40, COMM_SUM,
                                                 &requests[i]) == ERR_OK;
    }
    for (int i = 0; pass && i < COUNT; i++) {
        int next = comm_rank(comm) % 2 == 0 ? i : COUNT - 1 - i;
        pass = wait_for(requests[next]) == ERR_OK;
    }
    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k < 40; k++)
            pass = pass && values[i][k] == (int64_t)(i + k) * comm_size(comm);
    }
    everywhere(comm, pass, "several operations at once");
}

static void test_duplicate(struct comm *comm)
{
    struct comm *copy = NULL;
    int rank = comm_rank(comm);
    int size = comm_size(comm);
    int before = (rank + size - 1) % size;
    int after = (rank + 1) % size;
    int out[2] = { rank, 100 + rank };
    int in[2] = { -1, -1 };
    struct comm_request *requests[4];
    if (comm_agree(comm, comm_duplicate(comm, &copy)) != ERR_OK) {
        tap_ok(false, "duplicate: %s", err_text());
        return;
    }
    enum err rc = comm_start_send(comm, &out[0], 4, after, 3, &requests[0]);
    rc |= comm_start_send(copy, &out[1], 4, after, 3, &requests[1]);
    rc |= comm_start_recv(copy, &in[1], 4, before, 3, &requests[2]);
    rc |= comm_start_recv(comm, &in[0], 4, before, 3, &requests[3]);
    for (int i = 3; i >= 0; i--)
        rc |= wait_for(requests[i]);
    everywhere(comm, rc == ERR_OK && in[0] == before && in[1] == 100 + before,
               "messages of a duplicate are apart");
    rc = comm_barrier(copy);
    everywhere(comm, rc == ERR_OK, "and it has collectives");
    comm_destroy(copy);
}

static void test_agree(struct comm *comm)
{
    int rank = comm_rank(comm);
    int last = comm_size(comm) - 1;
    char want[600];
    everywhere(comm, comm_agree(comm, ERR_OK) == ERR_OK, "agree: all is well");

    enum err rc = ERR_OK;
    if (rank == last)
        rc = err_set(ERR_DATA, "shard 7: torn");
    rc = comm_agree(comm, rc);
    snprintf(want, sizeof want, "rank %d (%s): shard 7: torn", last,
             comm_host(comm, last));
    const char *text = rank == last ? "shard 7: torn" : want;
    everywhere(comm, rc == ERR_DATA && strcmp(err_text(), text) == 0,
               "agree: one rank's failure is everybody's, with its text");

    rc = err_set(rank == 0 ? ERR_USAGE : ERR_IO, "of rank %d", rank);
    rc = comm_agree(comm, rc);
    snprintf(want, sizeof want, "of rank %d", rank);
    everywhere(comm,
               rc == (last == 0 ? ERR_USAGE : ERR_IO) &&
                   strcmp(err_text(), want) == 0,
               "agree: the largest code wins, own texts stay");
}

static void test_wrong_size(struct comm *comm)
{
    struct comm *copy = NULL;
    struct comm_request *request;
    int rank = comm_rank(comm);
    char buffer[8] = "1234567";
    if (comm_size(comm) == 1) {
        tap_skip("a message of the wrong size needs two ranks");
        return;
    }
    if (comm_duplicate(comm, &copy) != ERR_OK) {
        tap_ok(false, "duplicate: %s", err_text());
        return;
    }
    enum err rc = ERR_COMM;
    if (rank == 0) {
        rc = comm_start_recv(copy, buffer, 8, 1, 1, &request);
        rc = rc == ERR_OK ? wait_for(request) : ERR_INTERNAL;
        tap_note("%s", err_text());
    } else if (rank == 1) {
        rc = comm_start_send(copy, buffer, 4, 0, 1, &request);
        rc = rc == ERR_OK && wait_for(request) == ERR_OK ? ERR_COMM
                                                         : ERR_INTERNAL;
    }
    everywhere(comm, rc == ERR_COMM, "a message of the wrong size is an error");
    /* Shutting the copy down is collective, and broken on rank 0 alone. */
    if (rank != 0) {
        rc = comm_start_recv(copy, buffer, 8, 0, 2, &request);
        rc = comm_wait(request, 0.01);
    }
    everywhere(comm, rc == ERR_COMM, "and breaks its communicator only");
    comm_destroy(copy);
}

/* A write to a rank that has died is an error, not the end of the writer. */
static void test_broken_pipe(struct comm *comm)
{
    int ends[2];
    bool told = pipe(ends) == 0 && close(ends[0]) == 0 &&
                write(ends[1], "x", 1) < 0 && errno == EPIPE;
    close(ends[1]);
    everywhere(comm, told, "a broken pipe is an error");
}

/* Kernels are loaded before NCCL's wait for peers, unless the user says otherwise. */
static void test_loading(struct comm *comm)
{
    const char *loading = getenv("CUDA_MODULE_LOADING");
    everywhere(comm, loading != NULL && strcmp(loading, "EAGER") == 0,
               "CUDA is told to load kernels at the start");
}

int main(int argc, char **argv)
{
    struct comm *comm;
    if (comm_create("auto", &argc, &argv, 60.0, &comm) != ERR_OK) {
        tap_ok(false, "create: %s", err_text());
        return tap_done();
    }
    if (comm_rank(comm) > 0)
        tap_silence();
    test_identity(comm);
    test_broken_pipe(comm);
    test_loading(comm);
    test_ring(comm, 0, "ring of empty messages");
    test_ring(comm, 1, "ring of one byte");
    test_ring(comm, 100000, "ring of 100 kB");
    if (comm_size(comm) <= 4)
        test_ring(comm, LONG_BYTES, "ring of messages in several pieces");
    test_tags(comm);
    test_all_gather(comm);
    test_gather_parts(comm, 3);
    test_gather_parts(comm, 0);
    test_broadcast(comm);
    test_all_reduce(comm);
    test_all_to_all(comm);
    test_messages(comm);
    test_overlap(comm);
    test_duplicate(comm);
    test_agree(comm);
    test_wrong_size(comm);
    everywhere(comm, comm_barrier(comm) == ERR_OK, "barrier at the end");
    comm_destroy(comm);
    return tap_done();
}
