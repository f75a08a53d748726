/* A rank that stops or dies in the exchange of gradients or weights is named by
 * all survivors, and by its name alone, before anything else ends them; and
 * what is then killed leaves nothing in /dev/shm. The program starts itself as
 * ranks under mpirun. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/parallel/weights.h"
#include "tests/node_fixture.h"
#include "tests/reduce_fixture.h"
#include "tests/tap.h"

#define RANKS 4
#define DEADLINE_S 1.5
#define PATIENCE_S 60.0
#define ELEMENTS ((int64_t)64 * KERNEL_CHUNK)
#define NO_LAUNCHER 127

enum place { BEFORE, INSIDE, WEIGHTS, NOWHERE };

static const struct {
    const char *what;
    int node_ranks; /* 0: one node */
    int victim;
    enum place place;
    int signal;
} cases[] = {
    { "stopped before the exchange", 0, 3, BEFORE, SIGSTOP },
    { "stopped while it adds", 0, 3, INSIDE, SIGSTOP },
    { "killed while it adds", 0, 0, INSIDE, SIGKILL },
    { "stopped before the weights", 0, 1, WEIGHTS, SIGSTOP },
    { "two nodes: stopped before the exchange", 2, 3, BEFORE, SIGSTOP },
    { "two nodes: stopped while it adds", 2, 3, INSIDE, SIGSTOP },
    { "two nodes: killed while it adds", 2, 2, INSIDE, SIGKILL },
    { "two nodes: killed before the weights", 2, 1, WEIGHTS, SIGKILL },
};
#define CASES (int)(sizeof cases / sizeof cases[0])

/* --- a rank -------------------------------------------------------------- */

static int adding_signal; /* what ends this rank as it adds; 0: nothing */

static enum err add_or_end(const struct kernel_ctx *ctx, enum dtype dtype,
                           int64_t n, const void *a, float scale, const void *b,
                           void *out)
{
    if (adding_signal != 0)
        raise(adding_signal);
    return fixture_add(ctx, dtype, n, a, scale, b, out);
}

static enum err exchange(struct comm *comm, int number)
{
    enum err rc = ERR_OK;
    struct kernel_ctx ctx = { .threads = 1 };
    struct kernels kernels = fixture_kernels;
    struct reduce *reduce = NULL;
    struct weights *weights = NULL;
    int rank = comm_rank(comm);
    bool victim = rank == cases[number].victim;
    enum place place = victim ? cases[number].place : NOWHERE;
    float *own;
    kernels.add = add_or_end;
    TRY(reduce_create(comm, &kernels, &ctx, ELEMENTS, RANKS, &reduce));
    TRY(weights_create(comm, ELEMENTS, &weights));
    TRY(fixture_slots(reduce, rank, RANKS, RANKS, ELEMENTS, 0, 1));
    TRY(comm_barrier(comm));
    if (place == BEFORE)
        raise(cases[number].signal);
    adding_signal = place == INSIDE ? cases[number].signal : 0;
    TRY(reduce_finish(reduce, &own));
    if (place == WEIGHTS)
        raise(cases[number].signal);
    TRY(weights_exchange(weights));
out:
    return rc;
}

/* Writes a file: "PID text" of the survivor's error, before that "PID". */
static int rank_main(int number, const char *folder)
{
    struct comm *comm;
    char path[FSIO_PATH_MAX], text[1024];
    if (!node_become() ||
        comm_create("mpi", NULL, NULL, DEADLINE_S, &comm) != ERR_OK ||
        fsio_path(path, "%s/pid-%d", folder, comm_rank(comm)) != ERR_OK)
        return 1;
    snprintf(text, sizeof text, "%ld", (long)getpid());
    if (fsio_write_atomic(path, text, strlen(text)) != ERR_OK)
        return 1;
    enum err rc = comm_barrier(comm);
    if (rc == ERR_OK)
        rc = exchange(comm, number);
    snprintf(text, sizeof text, "%s: %s", err_name(rc),
             rc == ERR_OK ? "it went on" : err_text());
    if (fsio_path(path, "%s/said-%d", folder, comm_rank(comm)) != ERR_OK ||
        fsio_write_atomic(path, text, strlen(text)) != ERR_OK)
        return 1;
    /* whoever ends now may make mpirun end the others */
    clock_sleep(PATIENCE_S);
    _Exit(1);
}

/* --- the launcher ----------------------------------------------------------
 */

static pid_t launch(const char *program, int number, const char *folder)
{
    char text[16];
    char nodes[16];
    snprintf(text, sizeof text, "%d", number);
    snprintf(nodes, sizeof nodes, "%d", cases[number].node_ranks);
    fflush(stdout);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* mpirun ends its ranks then */
    setenv("TMPDIR", folder, 1);
    setenv("TESSERA_TEST_NODE_RANKS", nodes, 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    /* recovery: the others live on when one is killed */
    execlp("mpirun", "mpirun", "--enable-recovery", "--oversubscribe",
           "--bind-to", "none", "-np", "4", program, text, folder,
           (char *)NULL);
    _Exit(NO_LAUNCHER);
}

/* The file's text once it is there; "" when it never comes. */
static void await(const char *folder, const char *name, int rank, char *text,
                  size_t size)
{
    char path[FSIO_PATH_MAX];
    char *data = NULL;
    size_t bytes = 0;
    double end = clock_now() + PATIENCE_S;
    text[0] = '\0';
    if (fsio_path(path, "%s/%s-%d", folder, name, rank) != ERR_OK)
        return;
    while (!fsio_exists(path) && clock_now() < end)
        clock_sleep(0.02);
    if (fsio_read_file(path, 4096, &data, &bytes) == ERR_OK)
        snprintf(text, size, "%s", data);
    free(data);
}

static bool names_only(const char *text, int victim)
{
    bool pass = strncmp(text, "comm:", 5) == 0;
    for (int r = 0; r < RANKS; r++) {
        char name[32];
        snprintf(name, sizeof name, "rank %d (", r);
        pass = pass && (strstr(text, name) != NULL) == (r == victim);
    }
    return pass;
}

/* Names in /dev/shm that end processes of ours may have left. */
static int shm_names(void)
{
    int count = 0;
    DIR *folder = opendir("/dev/shm");
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL)
        count += entry->d_name[0] != '.';
    if (folder != NULL)
        closedir(folder);
    return count;
}

static void test_case(const char *program, int number, const char *folder,
                      bool private_shm)
{
    char dir[FSIO_PATH_MAX], text[1024];
    pid_t pids[RANKS];
    bool started = true, named = true;
    if (fsio_path(dir, "%s/case-%d", folder, number) != ERR_OK ||
        fsio_mkdirs(dir) != ERR_OK) {
        tap_ok(false, "%s", err_text());
        return;
    }
    pid_t mpirun = launch(program, number, dir);
    for (int r = 0; r < RANKS; r++) {
        await(dir, "pid", r, text, sizeof text);
        pids[r] = (pid_t)strtol(text, NULL, 10);
        started = started && pids[r] > 0;
    }
    for (int r = 0; started && r < RANKS; r++) {
        if (r == cases[number].victim)
            continue;
        await(dir, "said", r, text, sizeof text);
        bool good = names_only(text, cases[number].victim);
        if (!good)
            tap_note("rank %d says: %s", r, text);
        named = named && good;
    }
    tap_ok(started && named, "%s: all survivors name rank %d alone",
           cases[number].what, cases[number].victim);
    kill(mpirun, SIGKILL);
    waitpid(mpirun, NULL, 0);
    for (int r = 0; r < RANKS; r++)
        if (pids[r] > 0)
            kill(pids[r], SIGKILL);
    if (private_shm)
        tap_is_int(shm_names(), 0, "nothing is left in /dev/shm");
}

int main(int argc, char **argv)
{
    char folder[FSIO_PATH_MAX];
    char program[FSIO_PATH_MAX] = "";
    const char *tmp = getenv("TMPDIR");
    if (argc == 3)
        return rank_main(atoi(argv[1]), argv[2]);
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return 1;
    if (!TESSERA_WITH_MPI || system("command -v mpirun >/dev/null") != 0) {
        tap_skip("there is no MPI here");
        return tap_done();
    }
    snprintf(folder, sizeof folder, "%s/tsd-XXXXXX",
             tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(folder) == NULL) {
        tap_ok(false, "no temporary folder %s", folder);
        return tap_done();
    }
    bool root = unshare(CLONE_NEWNS) == 0 &&
                mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                mount("none", "/dev/shm", "tmpfs", 0, NULL) == 0;
    if (!root)
        tap_skip("no namespaces here: /dev/shm is not looked at");
    for (int i = 0; i < CASES; i++) {
        if (cases[i].node_ranks > 0 && !root)
            tap_skip("%s: no nodes can be made up here", cases[i].what);
        else
            test_case(program, i, folder, root);
    }
    fsio_remove_tree(folder);
    return tap_done();
}
