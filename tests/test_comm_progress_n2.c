/* A message between nodes goes on while both ranks compute, and neither looks. */
#include <fcntl.h>

#include "src/base/clock.h"
#include "src/comm/comm.h"
#include "tests/node_fixture.h"
#include "tests/tap.h"

#define BYTES ((size_t)24 << 20)
#define PATIENCE_S 30.0 /* on a busy machine */
#define MESSAGES 3

/* Without a call of comm.h: until the last byte is there. */
static bool comes(const char *data)
{
    const volatile char *last = data + BYTES - 1;
    double end = clock_now() + PATIENCE_S;
    while (*last == 0 && clock_now() < end)
        clock_sleep(1e-3);
    return *last != 0;
}

/* The receiver says so by a file, so that the sender calls no MPI until then. */
static bool play(struct comm *comm, char *data, int tag, const char *path)
{
    struct comm_request *request = NULL;
    bool sends = comm_rank(comm) == tag % 2, came = true;
    memset(data, sends ? 1 : 0, BYTES);
    if ((sends ? comm_start_send(comm, data, BYTES, 1 - tag % 2, tag, &request)
               : comm_start_recv(comm, data, BYTES, tag % 2, tag, &request)) !=
        ERR_OK)
        return false;
    if (!sends) {
        came = comes(data);
        close(open(path, O_WRONLY | O_CREAT, 0600));
    }
    for (double end = clock_now() + 2 * PATIENCE_S;
         sends && access(path, F_OK) != 0 && clock_now() < end;)
        clock_sleep(1e-3);
    if (sends)
        unlink(path);
    return comm_wait(request, 0) == ERR_OK && came;
}

int main(int argc, char **argv)
{
    struct comm *comm = NULL;
    char path[64], *data = malloc(BYTES);
    int64_t pid = getpid(), came;
    setenv("TESSERA_TEST_NODE_RANKS", "1", 1);
    if (!node_become()) {
        tap_skip("no nodes can be made up here");
        return tap_done();
    }
    if (comm_create("auto", &argc, &argv, 60.0, &comm) != ERR_OK ||
        comm_all_reduce_i64(comm, &pid, 1, COMM_MAX) != ERR_OK) {
        tap_ok(false, "create: %s", err_text());
        return tap_done();
    }
    if (comm_rank(comm) > 0)
        tap_silence();
    for (int tag = 0; tag < MESSAGES; tag++) {
        snprintf(path, sizeof path, "/tmp/tessera-progress-%lld-%d",
                 (long long)pid, tag);
        came = play(comm, data, tag, path);
        tap_ok(comm_all_reduce_i64(comm, &came, 1, COMM_MIN) == ERR_OK &&
                   came == 1,
               "message %d comes while nobody waits for it", tag);
    }
    comm_destroy(comm);
    free(data);
    return tap_done();
}
