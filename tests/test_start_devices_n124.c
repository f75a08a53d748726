/* Which GPUs ranks have: as one host of up to 4 ranks, by what they say of
 * their devices. */

#include "src/base/log.h"
#include "src/train/start/start.h"
#include "tests/tap.h"

static char name[16];
static int seen;

static enum err identify(char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", name);
    return ERR_OK;
}

static enum err visible(int *count)
{
    *count = seen;
    return seen > 0 ? ERR_OK : err_set(ERR_UNSUPPORTED, "no GPU here");
}

static void everywhere(struct comm *comm, bool pass, const char *what)
{
    int64_t good = pass;
    enum err rc = comm_all_reduce_i64(comm, &good, 1, COMM_MIN);
    if (!pass)
        fprintf(stderr, "# rank %d: %s\n", comm_rank(comm), err_text());
    tap_ok(rc == ERR_OK && good == 1, "%s", what);
}

/* This rank's device and how many it sees. */
static void given(int device, int count)
{
    snprintf(name, sizeof name, "0000:0%d:00.0", device);
    seen = count;
}

static void test_devices(struct comm *comm)
{
    struct kernel_memory memory = { .device = true,
                                    .identify = identify,
                                    .visible = visible };
    int rank = comm_rank(comm), ranks = comm_size(comm), last = ranks - 1;
    char text[96], want[96];
    given(rank, ranks);
    enum err rc = start_devices(comm, &memory, false, text, sizeof text);
    snprintf(want, sizeof want, "%d GPU%s for %d rank%s", ranks,
             ranks > 1 ? "s" : "", ranks, ranks > 1 ? "s" : "");
    everywhere(comm, rc == ERR_OK && strcmp(text, want) == 0, "one GPU each");
    given(rank, 1);
    rc = start_devices(comm, &memory, false, text, sizeof text);
    everywhere(comm, rc == ERR_OK, "one GPU each, which sees no other");
    given(rank, ranks + 2);
    rc = start_devices(comm, &memory, false, text, sizeof text);
    everywhere(comm,
               rc == ERR_USAGE && strstr(err_text(), "2 would be idle") &&
                   strstr(err_text(), comm_host(comm, 0)) &&
                   strstr(err_text(), "hardware.fallback"),
               "idle GPUs are refused");
    rc = start_devices(comm, &memory, true, text, sizeof text);
    everywhere(comm, rc == ERR_OK, "or allowed");
    if (last > 0) {
        given(rank == last ? 0 : rank, 1);
        rc = start_devices(comm, &memory, false, text, sizeof text);
        snprintf(want, sizeof want,
                 "rank %d shares GPU 0000:00:00.0 of %s with "
                 "rank 0",
                 last, comm_host(comm, 0));
        everywhere(comm, rc == ERR_USAGE && strstr(err_text(), want),
                   "a shared GPU is refused");
        rc = start_devices(comm, &memory, true, text, sizeof text);
        snprintf(want, sizeof want, "%d GPU%s for %d ranks", last,
                 last > 1 ? "s" : "", ranks);
        everywhere(comm, rc == ERR_OK && strcmp(text, want) == 0, "or allowed");
        given(rank, rank == last ? 0 : ranks);
        rc = start_devices(comm, &memory, true, text, sizeof text);
        everywhere(comm, rc == ERR_UNSUPPORTED,
                   "a rank that can't ask is everybody's error");
    }
    memory.device = false;
    rc = start_devices(comm, &memory, false, text, sizeof text);
    everywhere(comm, rc == ERR_OK && text[0] == '\0', "processors have none");
}

int main(int argc, char **argv)
{
    struct comm *comm;
    if (comm_create("auto", &argc, &argv, 60.0, &comm) != ERR_OK) {
        tap_ok(false, "create: %s", err_text());
        return tap_done();
    }
    log_init("test", comm_rank(comm), LOG_ERROR);
    if (comm_rank(comm) > 0)
        tap_silence();
    test_devices(comm);
    comm_destroy(comm);
    return tap_done();
}
