/* Starts the runs of a sweep: one after the other, each in a process that gets
 * our signals; one in our place; or all that are left as an array of jobs.
 *
 * Signals are the difficult part. One that comes between the fork and the moment
 * when the child's number is known would not reach the run, so
 * all are blocked there and the child gets the mask that was before. The number is
 * forgotten before the child is reaped, for then it may be another process's. */
#include "src/sweep/sweep.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clean.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/exit_code.h"
#include "src/base/process.h"

#define TRIES 3 /* of a run that ends with EXIT_RETRY */

static volatile sig_atomic_t running; /* a process; 0: nobody */
static volatile sig_atomic_t asked;   /* to stop, by this signal; 0: not */

/* The run stops and saves, and then so does the sweep. A second Ctrl-C would end
 * tessera-train at once, so it gets SIGTERM, and only one. */
static void pass_on(int number)
{
    bool again = asked == SIGINT && number == SIGINT;
    asked = number;
    if (running > 0 && !again)
        kill((pid_t)running, number == SIGINT ? SIGTERM : number);
}

void sweep_run_signals(void)
{
    static const int signals[] = { SIGTERM, SIGINT, SIGUSR1, SIGQUIT, SIGHUP };
    const struct sigaction action = { .sa_handler = pass_on,
                                      .sa_flags = SA_RESTART };
    struct sigaction now;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        if (signals[i] != SIGHUP || (sigaction(SIGHUP, NULL, &now) == 0 &&
                                     now.sa_handler != SIG_IGN)) /* nohup's */
            sigaction(signals[i], &action, NULL);
}

/* In a process group of its own, so that what a terminal sends comes by
 * pass_on() alone, and so without the terminal as its input. */
static int spawn(char **command, const sigset_t *before, pid_t *pid)
{
    return process_start(&(struct process_start){ .argv = command,
                                                  .environment = environ,
                                                  .in = -1,
                                                  .out = -1,
                                                  .mask = before,
                                                  .group = true },
                         pid);
}

/* The child's exit code; 128 + a signal's number; EXIT_REQUEUE if it was not
 * begun, because of a signal. */
static enum err run_command(char **command, int *code)
{
    int status = 0, failed = 0;
    pid_t pid = 0;
    siginfo_t ended;
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    if (!asked)
        failed = spawn(command, &before, &pid);
    running = failed == 0 ? pid : 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (failed != 0)
        return err_set(ERR_USAGE, "command %s: %s", command[0],
                       strerror(failed));
    *code = EXIT_REQUEUE;
    if (pid == 0)
        return ERR_OK;
    /* nobody is signalled whose number is free again */
    while (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT) != 0)
        if (errno != EINTR)
            return err_errno("waitid");
    running = 0;
    if (waitpid(pid, &status, 0) < 0)
        return err_errno("waitpid");
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return ERR_OK;
}

/* What may go well another time (EXIT_RETRY) is tried again at once; a run that
 * ends otherwise is left as it is. */
static enum err run_one(const struct sweep *sweep, int64_t number, int *code)
{
    enum err rc = ERR_OK;
    char name[SWEEP_NAME_BYTES];
    char **command = NULL;
    sweep_name(sweep, number, name);
    TRY(sweep_folder_take(sweep, number));
    TRY(sweep_command(sweep, number, &command));
    log_info("run %lld of %lld: %s", (long long)number + 1,
             (long long)sweep->runs, name);
    *code = EXIT_RETRY;
    for (int i = 0; i < TRIES && *code == EXIT_RETRY; i++)
        TRY_OUT(run_command(command, code));
out:
    sweep_command_free(command);
    return rc;
}

/* Before any is started. */
static enum err check_folders(const struct sweep *sweep)
{
    for (int64_t i = 0; i < sweep->runs; i++)
        TRY(sweep_folder_check(sweep, i));
    return ERR_OK;
}

enum err sweep_run_all(const struct sweep *sweep, int *exit_code)
{
    TRY(check_folders(sweep));
    for (int64_t i = 0; i < sweep->runs; i++) {
        struct sweep_result result;
        int code = EXIT_DONE;
        TRY(sweep_result(sweep, i, &result));
        if (result.state == SWEEP_FINISHED)
            continue;
        TRY(run_one(sweep, i, &code));
        if (code == EXIT_REQUEUE || code > 128) {
            *exit_code = EXIT_REQUEUE;
            return ERR_OK;
        }
        if (code != EXIT_DONE) {
            log_warn("it ended with exit code %d; the sweep goes on", code);
            *exit_code = EXIT_STOP;
        } else {
            TRY(sweep_result(sweep, i, &result)); /* has it the metric? */
        }
    }
    return ERR_OK;
}

enum err sweep_run_task(const struct sweep *sweep, int64_t number)
{
    assert(number >= 0);
    char **command = NULL;
    if (number >= sweep->runs)
        return err_set(ERR_USAGE,
                       "--task %lld: the sweep has %lld runs, from 0 on",
                       (long long)number, (long long)sweep->runs);
    TRY(sweep_folder_take(sweep, number));
    TRY(sweep_command(sweep, number, &command));
    execvp(command[0], command);
    enum err rc =
        err_set(ERR_USAGE, "command %s: %s", command[0], strerror(errno));
    sweep_command_free(command);
    return rc;
}

/* --- an array of jobs --- */

/* "0,2,3" of those that are not finished; empty: all are. */
static enum err run_unfinished(const struct sweep *sweep, char *text,
                               size_t bytes)
{
    text[0] = '\0';
    for (int64_t i = 0; i < sweep->runs; i++) {
        struct sweep_result result;
        TRY(sweep_result(sweep, i, &result));
        if (result.state != SWEEP_FINISHED)
            clean_join(text, bytes, ",", "%lld", (long long)i);
    }
    return ERR_OK;
}

/* One array whose jobs are the numbers of those that are left, each of which calls
 * this program again with its number: what runs is then in one place, and a job
 * that Slurm requeues goes on with the same run. */
enum err sweep_run_submit(const struct sweep *sweep, const char *file,
                          int *exit_code)
{
    enum err rc = ERR_OK;
    size_t bytes = 8 * SWEEP_RUNS_MAX;
    char path[FSIO_PATH_MAX], folder[FSIO_PATH_MAX], self[FSIO_PATH_MAX];
    char quoted[2][CLEAN_QUOTED_BYTES(FSIO_PATH_MAX)];
    char wrap[sizeof quoted + 64];
    char options[SETTINGS_TEXT_BYTES], *words[128], *next = NULL;
    int count = 0;
    char *array = NULL;
    TRY(fsio_own_folder(folder));
    TRY(fsio_path(self, "%s/tessera-sweep", folder));
    TRY(new_room(&array, bytes));
    TRY_OUT(check_folders(sweep));
    if (realpath(file, path) == NULL)
        TRY_OUT(err_errno("%s", file));
    size_t head = (size_t)snprintf(array, bytes, "--array=");
    TRY_OUT(run_unfinished(sweep, array + head, bytes - head));
    if (array[head] == '\0') {
        log_info("all %lld runs are finished", (long long)sweep->runs);
        goto out;
    }
    clean_quote(self, quoted[0], sizeof quoted[0]);
    clean_quote(path, quoted[1], sizeof quoted[1]);
    snprintf(wrap, sizeof wrap,
             "--wrap=exec %s %s --task \"$SLURM_ARRAY_TASK_ID\"", quoted[0],
             quoted[1]);
    words[count++] = (char[]){ "sbatch" };
    words[count++] = array;
    snprintf(options, sizeof options, "%s", sweep->settings.sbatch);
    for (char *word = strtok_r(options, " \t\n", &next);
         word != NULL && count < 120; word = strtok_r(NULL, " \t\n", &next))
        words[count++] = word;
    words[count++] = wrap;
    words[count] = NULL;
    TRY_OUT(run_command(words, exit_code));
    if (*exit_code != 0)
        TRY_OUT(
            err_set(ERR_USAGE, "sbatch ended with exit code %d", *exit_code));
out:
    free(array);
    return rc;
}

enum err sweep_run_list(const struct sweep *sweep)
{
    for (int64_t i = 0; i < sweep->runs; i++) {
        char **command = NULL;
        TRY(sweep_command(sweep, i, &command));
        for (char **word = command; *word != NULL; word++) {
            char quoted[CLEAN_QUOTED_BYTES(SETTINGS_VALUE_BYTES)];
            clean_quote(*word, quoted, sizeof quoted);
            printf("%s%s", word > command ? " " : "", quoted);
        }
        putchar('\n');
        sweep_command_free(command);
    }
    return ERR_OK;
}
