/* What is left after a kill: four ranks are killed with SIGKILL together with
 * their mpirun, and the next four start at once. Also the exit code that
 * mpirun passes on when a rank aborts. The program starts itself as ranks. */
#include <sys/stat.h>
#include <time.h>

#include "tests/dead_ranks.h"

#define ABORT_CODE 75

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

static int exit_code(pid_t pid)
{
    int status = 0;
    if (waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* All ranks' pids, once all are there. */
static bool read_ranks(const char *folder, pid_t *pids, bool *clean)
{
    bool all = true;
    *clean = true;
    for (int r = 0; r < RANKS; r++) {
        char text[1400], what[32] = "nothing";
        long pid = 0;
        ranks_await(folder, "rank", r, text, sizeof text);
        (void)sscanf(text, "%ld %31s", &pid, what);
        if (strcmp(what, "clean") != 0) {
            tap_note("rank %d: %s", r, text);
            *clean = false;
        }
        pids[r] = (pid_t)pid;
        all = all && pid > 0;
    }
    return all;
}

static void test_kill(const char *folder)
{
    pid_t pids[RANKS];
    bool clean = false;
    pid_t mpirun = ranks_launch("wait", folder, false);
    if (!tap_ok(read_ranks(folder, pids, &clean), "four ranks start")) {
        kill(mpirun, SIGTERM);
        exit_code(mpirun);
        return;
    }
    tap_ok(clean, "no shared-memory segment of theirs has a name");
    kill(mpirun, SIGKILL);
    for (int r = 0; r < RANKS; r++)
        kill(pids[r], SIGKILL);
    tap_is_int(exit_code(mpirun), -1, "they and mpirun are killed");
    tap_is_int(exit_code(ranks_launch("run", folder, false)), 0,
               "four ranks start again at once and end in order");
}

/* What a kill in the middle of a start or end left is removed once it is so
 * old that it can't be another program's that is starting just now. */
static void test_stale(const char *folder)
{
    char old[] = "/dev/shm/tessera-mpi-XXXXXX";
    char young[] = "/dev/shm/tessera-mpi-XXXXXX";
    time_t ago = time(NULL) - 7200;
    struct timespec times[2] = { { .tv_sec = ago }, { .tv_sec = ago } };
    if (mkdtemp(old) == NULL || mkdtemp(young) == NULL ||
        utimensat(AT_FDCWD, old, times, 0) != 0) {
        tap_skip("/dev/shm is not writable");
    } else {
        int code = exit_code(ranks_launch("run", folder, false));
        tap_ok(code == 0 && !fsio_exists(old) && fsio_exists(young),
               "old folders in /dev/shm are removed, young ones are not");
    }
    rmdir(old);
    rmdir(young);
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return rank_main(argv[1], argv[2]);
    if (!ranks_possible())
        return tap_done();
    const char *folder = tap_folder();
    tap_is_int(exit_code(ranks_launch("run", folder, false)), 0,
               "four ranks run");
    test_kill(folder);
    test_stale(folder);
    tap_is_int(exit_code(ranks_launch("abort", folder, false)), ABORT_CODE,
               "mpirun returns the code of a rank that aborts");
    return tap_done();
}
