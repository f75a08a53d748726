/* Pairing rounds between GPUs, three nodes of two each, without hardware: the
 * emulated kernels fill and count, and what stands in for NCCL carries sums over a
 * communicator of the test's. */
#define CUDA_EMULATED
#include "healthcheck/health_pair.h"

#include "src/base/clock.h"
#include "src/base/log.h"
#include "tests/probe_fixture.h"
#include "tests/tap.h"

#define BUSY 3 /* looks at a communicator before a call is through */

static struct {
    struct comm *comm; /* of the stand-in alone */
    char folder[200];  /* where who joins leaves its rank */
    int ids, alive, made, aborts, code;
    bool misused;
} fake;

struct fake_comm {
    int peer, busy;
    float *received;
};

static int fake_id(struct comm_nccl_id *id)
{
    snprintf(id->bytes, sizeof id->bytes, "%d %d", comm_rank(fake.comm),
             fake.ids++);
    return COMM_NCCL_SUCCESS;
}

/* The id tells the lower rank to the higher; that tells its own by a file. */
static int fake_peer(const struct comm_nccl_id *id, bool higher)
{
    char path[400], made[420];
    int lower = atoi(id->bytes), peer = -1;
    snprintf(path, sizeof path, "%s/%s", fake.folder, id->bytes);
    snprintf(made, sizeof made, "%s.made", path);
    if (higher) {
        FILE *file = fopen(made, "w");
        if (file == NULL)
            return -1;
        fprintf(file, "%d", comm_rank(fake.comm));
        fclose(file);
        return rename(made, path) == 0 ? lower : -1;
    }
    for (double begin = clock_now(); peer < 0 && clock_now() - begin < 60;) {
        FILE *file = fopen(path, "r");
        if (file == NULL) {
            clock_sleep(1e-3);
            continue;
        }
        if (fscanf(file, "%d", &peer) != 1)
            peer = -1;
        fclose(file);
    }
    return peer;
}

static int fake_init(void **out, int ranks, struct comm_nccl_id id, int rank,
                     struct comm_nccl_config *config)
{
    struct fake_comm *comm;
    fake.misused |= ranks != 2 || config->blocking != 0 ||
                    config->bytes != sizeof *config ||
                    config->ctas_max != COMM_NCCL_CTAS;
    comm = calloc(1, sizeof *comm);
    *out = comm;
    fake.alive++;
    fake.made++;
    if (fake.code != COMM_NCCL_SUCCESS)
        return fake.code;
    comm->peer = fake_peer(&id, rank == 1);
    comm->received = malloc((size_t)4 << 20);
    comm->busy = BUSY;
    return COMM_NCCL_IN_PROGRESS;
}

static int fake_async_error(void *from, int *result)
{
    struct fake_comm *comm = from;
    *result = comm->busy > 0 ? COMM_NCCL_IN_PROGRESS : COMM_NCCL_SUCCESS;
    comm->busy -= comm->busy > 0;
    return COMM_NCCL_SUCCESS;
}

static int fake_all_reduce(const void *from, void *to, size_t count, int type,
                           int op, void *with, void *stream)
{
    struct fake_comm *comm = with;
    struct comm_request *recv = NULL, *send = NULL;
    float *sum = to;
    (void)stream;
    fake.misused |= comm->busy > 0 || type != COMM_NCCL_FLOAT ||
                    op != COMM_NCCL_SUM || from != to;
    if (comm_start_recv(fake.comm, comm->received, count * sizeof *sum,
                        comm->peer, 1, &recv) != ERR_OK ||
        comm_start_send(fake.comm, from, count * sizeof *sum, comm->peer, 1,
                        &send) != ERR_OK ||
        comm_wait(recv, 60) != ERR_OK || comm_wait(send, 60) != ERR_OK)
        return COMM_NCCL_REMOTE_ERROR;
    for (size_t i = 0; i < count; i++)
        sum[i] += comm->received[i];
    comm->busy = BUSY;
    return COMM_NCCL_IN_PROGRESS;
}

static int fake_finalize(void *comm)
{
    fake.misused |= ((struct fake_comm *)comm)->busy > 0;
    ((struct fake_comm *)comm)->busy = BUSY;
    return COMM_NCCL_IN_PROGRESS;
}

static int fake_destroy(void *from)
{
    struct fake_comm *comm = from;
    fake.misused |= comm->busy > 0;
    free(comm->received);
    free(comm);
    fake.alive--;
    return COMM_NCCL_SUCCESS;
}

static int fake_abort(void *comm)
{
    ((struct fake_comm *)comm)->busy = 0;
    fake.aborts++;
    return fake_destroy(comm);
}

static const char *fake_last(void *comm)
{
    (void)comm;
    return "";
}

static int fake_version(int *version)
{
    *version = 22809;
    return COMM_NCCL_SUCCESS;
}

static const struct comm_nccl_library fake_library = {
    .version = fake_version,
    .unique_id = fake_id,
    .init = fake_init,
    .finalize = fake_finalize,
    .destroy = fake_destroy,
    .abort = fake_abort,
    .async_error = fake_async_error,
    .error_text = nccl_error,
    .last_error = fake_last,
    .all_reduce = fake_all_reduce,
};

/* The text for people; the caller frees it. */
static enum err play(struct comm *comm, const char *inject, size_t bytes_max,
                     int rails, char **text)
{
    struct health_pair_options options = {
        .bytes_min = 1024,
        .bytes_max = bytes_max,
        .repeats = 6,
        .timeout_s = 60,
        .budget_s = 16000,
        .ratio_min = inject == NULL ? 0 : 0.001, /* what is injected alone */
        .inject = inject,
        .rails = rails,
        .gpus = &gpus,
        .nccl = &fake_library,
    };
    struct health_pairs *pairs;
    size_t bytes;
    *text = NULL;
    TRY(health_pair_run(comm, &options, &pairs));
    FILE *file = open_memstream(text, &bytes);
    health_pair_print(pairs, file);
    fclose(file);
    health_pair_destroy(pairs);
    return ERR_OK;
}

static void test_faults(struct comm *comm)
{
    static const struct {
        const char *name, *inject, *says;
    } cases[] = {
        { "all are sound", NULL, "6 ranks over NCCL, GPU memory: ok in " },
        { "a rail is slow everywhere", "pair:rail1:slow",
          ": warn: tessera: RAIL rail 1 of all nodes " },
        { "one port of a node is slow", "pair:rank5:slow",
          "(rank 4): warn: tessera: PAIR_SLOW rank 4 with " },
        { "a GPU's numbers are wrong", "pair:rank3:wrong",
          "(rank 2): bad: tessera: PAIR_WRONG rank 2 with " },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = NULL;
        fake.made = 0;
        tap_is_int(play(comm, cases[i].inject, i == 0 ? (size_t)1 << 30 : 1024,
                        2, &text),
                   ERR_OK, "%s: runs", cases[i].name);
        tap_ok(text != NULL && strstr(text, cases[i].says) != NULL, "%s: '%s'",
               cases[i].name, cases[i].says);
        int named = 0;
        for (const char *at = text; at != NULL && (at = strstr(at, "(rank "));
             at++)
            named++;
        tap_is_int(named,
                   i == 0   ? 0
                   : i == 1 ? 3
                            : 1,
                   "%s: no other", cases[i].name);
        tap_ok(i > 0 || (strstr(text, " 1048576 ") != NULL &&
                         strstr(text, " 4194304 ") == NULL),
               "%s: as large as half of the memory", cases[i].name);
        tap_ok(fake.made > 0 && fake.alive == 0 && !fake.misused,
               "%s: communicators are made, %d, and left", cases[i].name,
               fake.made);
        if (strstr(text, cases[i].says) == NULL)
            tap_note("%s", text);
        free(text);
    }
}

int main(int argc, char **argv)
{
    struct comm *comm;
    char *text;
    log_init("test", -1, LOG_ERROR);
    fixture_begin();
    (void)gpu_none;
    (void)small;
    if (comm_create("mpi", &argc, &argv, 60, &comm) != ERR_OK ||
        comm_duplicate(comm, &fake.comm) != ERR_OK) {
        tap_ok(false, "communication: %s", err_text());
        return tap_done();
    }
    snprintf(fake.folder, sizeof fake.folder, "%s", tap_folder());
    if (comm_broadcast(comm, fake.folder, sizeof fake.folder, 0) != ERR_OK)
        tap_ok(false, "a folder for all");
    if (comm_rank(comm) != 0)
        tap_silence();
    test_faults(comm);
    fake.code = COMM_NCCL_SYSTEM_ERROR;
    tap_ok(play(comm, NULL, 1024, 3, &text) != ERR_OK,
           "NCCL that cannot start");
    tap_ok(fake.alive == 0 && fake.aborts > 0, "is aborted");
    int status = tap_done();
    enum err failed = status == 0 ? ERR_OK : err_set(ERR_INTERNAL, "failed");
    status = comm_agree(comm, failed) == ERR_OK ? 0 : 1;
    comm_destroy(fake.comm);
    comm_destroy(comm);
    return status;
}
