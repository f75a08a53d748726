/* A rank that stops or dies while groups of ranks compute together is named by
 * all survivors, and by its name alone: also by those that waited for somebody
 * who waited for it, and by those of other groups, who come to the roll call
 * from an exchange of their own. The program starts itself as ranks under
 * mpirun. */
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
#include "src/parallel/group.h"
#include "tests/tap.h"

#define RANKS 4
#define DEADLINE_S 1.5
#define PATIENCE_S 60.0
#define NO_LAUNCHER 127

static const struct {
    const char *what;
    int degree;
    int victim;
    int signal;
} cases[] = {
    { "a ring of 4, stopped", 4, 3, SIGSTOP },
    { "a ring of 4, killed", 4, 1, SIGKILL },
    { "rings of 2, stopped", 2, 0, SIGSTOP },
    { "rings of 2, killed", 2, 3, SIGKILL },
};
#define CASES (int)(sizeof cases / sizeof cases[0])

/* --- a rank -------------------------------------------------------------- */

/* What comes goes on to the next one: only the next one of the victim waits for
 * the victim itself. */
static enum err pass_on(const struct group_access *group, int laps)
{
    enum err rc = ERR_OK;
    int data = 0;
    int next = (group->rank + 1) % group->size;
    int last = (group->rank + group->size - 1) % group->size;
    for (int lap = 0; lap < laps; lap++) {
        if (group->rank > 0 || lap > 0) {
            TRY(group->start(group->arg, 0, next, NULL, 0, last, &data,
                             sizeof data));
            TRY(group->wait(group->arg, 0));
        }
        TRY(group->start(group->arg, 0, next, &data, sizeof data, last, NULL,
                         0));
        TRY(group->wait(group->arg, 0));
    }
out:
    return rc;
}

static enum err compute(struct comm *comm, int number)
{
    enum err rc = ERR_OK;
    struct group *group = NULL;
    bool victim = comm_rank(comm) == cases[number].victim;
    TRY(group_create(comm, cases[number].degree, &group));
    TRY(comm_barrier(comm));
    rc = pass_on(group_access(group), victim ? 1 : 3);
    if (rc == ERR_OK && victim)
        raise(cases[number].signal);
    if (rc == ERR_OK) /* of a group that is whole */
        rc = comm_barrier(comm);
    if (rc != ERR_OK)
        rc = group_roll_call(group, rc);
out:
    return rc;
}

/* Writes a file: "PID text" of the survivor's error, before that "PID". */
static int rank_main(int number, const char *folder)
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
        rc = compute(comm, number);
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
    snprintf(text, sizeof text, "%d", number);
    fflush(stdout);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* mpirun ends its ranks then */
    setenv("TMPDIR", folder, 1);
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

static void test_case(const char *program, int number, const char *folder)
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
    snprintf(folder, sizeof folder, "%s/tsg-XXXXXX",
             tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(folder) == NULL) {
        tap_ok(false, "no temporary folder %s", folder);
        return tap_done();
    }
    for (int i = 0; i < CASES; i++)
        test_case(program, i, folder);
    fsio_remove_tree(folder);
    return tap_done();
}
