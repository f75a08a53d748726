/* Ranks of which one stops or dies: the program starts itself under mpirun, and
 * hears from the survivors whom they blame. */
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "src/base/clock.h"
#include "src/base/err.h"
#include "src/base/fsio.h"
#include "src/comm/comm.h"
#include "tests/tap.h"

#ifndef RANKS
#define RANKS 4
#endif
#ifndef DEADLINE_S
#define DEADLINE_S ranks_seconds(1.5)
#endif
#define PATIENCE_S 600.0
#define NO_LAUNCHER 127

/* So long where nothing else runs, longer where many wait for a processor: a rank that
 * has none is not dead. Ranks have it from who started them. */
static inline double ranks_seconds(double alone_s)
{
    const char *times = getenv("TESSERA_TEST_TIMES");
    return alone_s * (times != NULL ? strtod(times, NULL) : 1.0);
}

/* A rank: `act`, which ends the victim, and returns what a survivor got. Writes
 * the files pid-RANK before and said-RANK after it. Returns only a failure. */
static inline int ranks_main(int number, const char *folder,
                             enum err (*act)(struct comm *comm, int number))
{
    struct comm *comm;
    char path[FSIO_PATH_MAX], text[1024];
    if (comm_create("mpi", NULL, NULL, DEADLINE_S, &comm) != ERR_OK ||
        fsio_path(path, "%s/pid-%d", folder, comm_rank(comm)) != ERR_OK)
        return 1;
    snprintf(text, sizeof text, "%ld", (long)getpid());
    if (fsio_write_atomic(path, text, strlen(text)) != ERR_OK)
        return 1;
    enum err rc = comm_barrier(comm);
    if (rc == ERR_OK)
        rc = act(comm, number);
    snprintf(text, sizeof text, "%s: %s", err_name(rc),
             rc == ERR_OK ? "it went on" : err_text());
    if (fsio_path(path, "%s/said-%d", folder, comm_rank(comm)) != ERR_OK ||
        fsio_write_atomic(path, text, strlen(text)) != ERR_OK)
        return 1;
    /* whoever ends now may make mpirun end the others */
    clock_sleep(PATIENCE_S);
    _Exit(1);
}

/* A second one that ends, beside the victim; -1: none. */
static int ranks_second = -1;

/* mpirun with the ranks of this program, called with ARGUMENT FOLDER. recovery: the
 * others live on when one is killed. */
static inline pid_t ranks_launch(const char *argument, const char *folder,
                                 bool recovery)
{
    char program[FSIO_PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    fflush(stdout);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* mpirun ends its ranks then */
    setenv("TMPDIR", folder, 1);
    /* In a sanitized build OpenMPI's own leaks would be the ranks' exit code. */
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    char count[16], times[32];
    snprintf(count, sizeof count, "%d", RANKS);
    double load = 0.0, most = 4.0 * (double)sysconf(_SC_NPROCESSORS_ONLN);
    (void)getloadavg(&load, 1);
    snprintf(times, sizeof times, "%.1f", load > most ? load / most : 1.0);
    setenv("TESSERA_TEST_TIMES", times, 1);
    char path[FSIO_PATH_MAX];
    int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    snprintf(path, sizeof path, "%.900s/stderr", folder);
    dup2(open(path, O_CREAT | O_WRONLY | O_APPEND, 0600), STDERR_FILENO);
    if (recovery)
        execlp("mpirun", "mpirun", "--enable-recovery", "--oversubscribe",
               "--bind-to", "none", "-np", count, program, argument, folder,
               (char *)NULL);
    else
        execlp("mpirun", "mpirun", "--oversubscribe", "-np", count, program,
               argument, folder, (char *)NULL);
    _Exit(NO_LAUNCHER);
}

/* The file's text once it is there; "" when it never comes. */
static inline void ranks_await(const char *folder, const char *name, int rank,
                               char *text, size_t size)
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

static inline bool ranks_names_only(const char *text, int victim)
{
    bool pass = strncmp(text, "comm:", 5) == 0;
    for (int r = 0; r < RANKS; r++) {
        char name[32];
        snprintf(name, sizeof name, "rank %d (", r);
        pass = pass && (strstr(text, name) != NULL) ==
                           (r == victim || r == ranks_second);
    }
    return pass;
}

/* The program again, as the ranks of a case. */
struct ranks {
    char folder[FSIO_PATH_MAX];
    pid_t mpirun, pids[RANKS];
    bool started; /* all of them */
};

static inline void ranks_start(struct ranks *ranks, int number)
{
    char text[1024];
    snprintf(ranks->folder, sizeof ranks->folder, "%s", tap_folder());
    snprintf(text, sizeof text, "%d", number);
    ranks->mpirun = ranks_launch(text, ranks->folder, true);
    ranks->started = true;
    for (int r = 0; r < RANKS; r++) {
        ranks_await(ranks->folder, "pid", r, text, sizeof text);
        ranks->pids[r] = (pid_t)strtol(text, NULL, 10);
        ranks->started = ranks->started && ranks->pids[r] > 0;
    }
}

static inline void ranks_stop(const struct ranks *ranks)
{
    kill(ranks->mpirun, SIGKILL);
    waitpid(ranks->mpirun, NULL, 0);
    for (int r = 0; r < RANKS; r++)
        if (ranks->pids[r] > 0)
            kill(ranks->pids[r], SIGKILL);
}

/* All ranks of case `number` but the victim must name it, and nobody else. What they
 * all have written to stderr is in the folder that is returned. */
static inline const char *ranks_test(int number, const char *what, int victim)
{
    static char folder[FSIO_PATH_MAX];
    struct ranks ranks;
    char text[1024];
    bool named = true;
    ranks_start(&ranks, number);
    for (int r = 0; ranks.started && r < RANKS; r++) {
        if (r == victim || r == ranks_second)
            continue;
        ranks_await(ranks.folder, "said", r, text, sizeof text);
        bool good = ranks_names_only(text, victim);
        if (!good || getenv("TESSERA_TEST_SAID") != NULL)
            tap_note("rank %d says: %s", r, text);
        named = named && good;
    }
    tap_ok(ranks.started && named, "%s: all survivors name rank %d alone", what,
           victim);
    ranks_stop(&ranks);
    return strcpy(folder, ranks.folder);
}

/* False: a test has said why there can't be any. */
static inline bool ranks_possible(void)
{
    bool possible =
        TESSERA_WITH_MPI && system("command -v mpirun >/dev/null") == 0;
    if (!possible)
        tap_skip("there is no MPI here");
    return possible;
}

/* What main() begins with: a rank acts, and does not return. */
static inline bool ranks_prepare(int argc, char **argv,
                                 enum err (*act)(struct comm *comm, int number))
{
    if (argc == 3)
        exit(ranks_main((int)strtol(argv[1], NULL, 10), argv[2], act));
    return ranks_possible();
}
