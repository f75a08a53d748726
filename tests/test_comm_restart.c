/* What is left after a kill: four ranks are killed with SIGKILL together with
 * their mpirun, and the next four start at once. Also the exit code that
 * mpirun passes on when a rank aborts. The program starts itself as ranks. */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/comm/comm.h"
#include "tests/tap.h"

#define RANKS 4
#define PATIENCE_S 120.0
#define ABORT_CODE 75
#define NO_LAUNCHER 127

/* A segment in /dev/shm that has a name still: true, and its line. */
static bool named_segment(char *line, int bytes)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    bool found = false;
    while (maps != NULL && !found && fgets(line, bytes, maps) != NULL)
        found = strstr(line, "/dev/shm/") != NULL &&
                strstr(line, "(deleted)") == NULL;
    if (maps != NULL)
        fclose(maps);
    return found;
}

/* rank: tell the pid and whether anything would be left, then wait. */
static int rank_wait(struct comm *comm, const char *folder)
{
    char path[FSIO_PATH_MAX];
    char text[1400];
    char line[1024] = "";
    /* Every rank has created its communicator. */
    if (comm_barrier(comm) != ERR_OK)
        return 1;
    bool named = named_segment(line, sizeof line);
    snprintf(text, sizeof text, "%ld %s", (long)getpid(),
             named ? line : "clean\n");
    if (fsio_path(path, "%s/rank-%d", folder, comm_rank(comm)) != ERR_OK ||
        fsio_write_atomic(path, text, strlen(text)) != ERR_OK)
        return 1;
    double end = clock_now() + PATIENCE_S;
    while (clock_now() < end)
        clock_sleep(0.1);
    return 1;
}

static int rank_main(const char *mode, const char *folder)
{
    struct comm *comm;
    if (comm_create("mpi", NULL, NULL, PATIENCE_S, &comm) != ERR_OK) {
        fprintf(stderr, "# %s\n", err_text());
        return 1;
    }
    if (strcmp(mode, "wait") == 0)
        return rank_wait(comm, folder);
    if (strcmp(mode, "abort") == 0 && comm_rank(comm) == RANKS - 1)
        comm_abort(comm, ABORT_CODE);
    enum err rc = comm_barrier(comm);
    comm_destroy(comm);
    return rc == ERR_OK ? 0 : 1;
}

static pid_t launch(const char *program, const char *mode, const char *folder)
{
    char ranks[16];
    snprintf(ranks, sizeof ranks, "%d", RANKS);
    fflush(stdout);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    /* mpirun ends its ranks when it gets this. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setenv("TMPDIR", folder, 1);
    /* In a sanitized build OpenMPI's own leaks would be the ranks' exit code. */
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
    int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execlp("mpirun", "mpirun", "--oversubscribe", "-np", ranks, program, mode,
           folder, (char *)NULL);
    _Exit(NO_LAUNCHER);
}

static int exit_code(pid_t pid)
{
    int status = 0;
    if (waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* All ranks' pids, once all are there. */
static bool read_ranks(pid_t mpirun, const char *folder, pid_t *pids,
                       bool *clean)
{
    double end = clock_now() + PATIENCE_S;
    int count = 0;
    *clean = true;
    while (count < RANKS && clock_now() < end) {
        char path[FSIO_PATH_MAX];
        char *text = NULL;
        size_t bytes = 0;
        char what[32] = "";
        long pid = 0;
        if (fsio_path(path, "%s/rank-%d", folder, count) != ERR_OK)
            return false;
        if (!fsio_exists(path)) {
            if (waitpid(mpirun, NULL, WNOHANG) != 0)
                return false;
            clock_sleep(0.01);
            continue;
        }
        if (fsio_read_file(path, 4096, &text, &bytes) != ERR_OK)
            return false;
        if (sscanf(text, "%ld %31s", &pid, what) != 2)
            snprintf(what, sizeof what, "unreadable");
        if (strcmp(what, "clean") != 0) {
            tap_note("rank %d: %s", count, text);
            *clean = false;
        }
        pids[count++] = (pid_t)pid;
        free(text);
    }
    return count == RANKS;
}

static void test_kill(const char *program, const char *folder)
{
    pid_t pids[RANKS];
    bool clean = false;
    pid_t mpirun = launch(program, "wait", folder);
    if (!tap_ok(read_ranks(mpirun, folder, pids, &clean), "four ranks start")) {
        kill(mpirun, SIGTERM);
        exit_code(mpirun);
        return;
    }
    tap_ok(clean, "no shared-memory segment of theirs has a name");
    kill(mpirun, SIGKILL);
    for (int r = 0; r < RANKS; r++)
        kill(pids[r], SIGKILL);
    tap_is_int(exit_code(mpirun), -1, "they and mpirun are killed");
    tap_is_int(exit_code(launch(program, "run", folder)), 0,
               "four ranks start again at once and end in order");
}

/* What a kill in the middle of a start or end left is removed once it is so
 * old that it can't be another program's that is starting just now. */
static void test_stale(const char *program, const char *folder)
{
    char old[] = "/dev/shm/tessera-mpi-XXXXXX";
    char young[] = "/dev/shm/tessera-mpi-XXXXXX";
    time_t ago = time(NULL) - 7200;
    struct timespec times[2] = { { .tv_sec = ago }, { .tv_sec = ago } };
    if (mkdtemp(old) == NULL || mkdtemp(young) == NULL ||
        utimensat(AT_FDCWD, old, times, 0) != 0) {
        tap_skip("/dev/shm is not writable");
    } else {
        int code = exit_code(launch(program, "run", folder));
        tap_ok(code == 0 && !fsio_exists(old) && fsio_exists(young),
               "old folders in /dev/shm are removed, young ones are not");
    }
    rmdir(old);
    rmdir(young);
}

int main(int argc, char **argv)
{
    char folder[FSIO_PATH_MAX];
    char program[FSIO_PATH_MAX] = "";
    const char *tmp = getenv("TMPDIR");
    if (argc == 3)
        return rank_main(argv[1], argv[2]);
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return 1;
    snprintf(folder, sizeof folder, "%s/tsr-XXXXXX",
             tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(folder) == NULL) {
        tap_ok(false, "no temporary folder %s", folder);
        return tap_done();
    }
    int code = exit_code(launch(program, "run", folder));
    if (!TESSERA_WITH_MPI) {
        tap_skip("this build has no MPI");
    } else if (code == NO_LAUNCHER) {
        tap_skip("there is no mpirun here");
    } else {
        tap_is_int(code, 0, "four ranks run");
        test_kill(program, folder);
        test_stale(program, folder);
        tap_is_int(exit_code(launch(program, "abort", folder)), ABORT_CODE,
                   "mpirun returns the code of a rank that aborts");
    }
    fsio_remove_tree(folder);
    return tap_done();
}
