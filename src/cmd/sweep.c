/* tessera-sweep FILE: runs every combination of some settings' values, one after
 * the other or as an array of jobs, and compares what came of them. What was
 * finished before is left alone, so that the same command goes on. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/output.h"
#include "src/cmd/cmd_main.h"
#include "src/cmd/sweep_folder.h"
#include "src/cmd/sweep_plan.h"
#include "src/cmd/sweep_results.h"
#include "src/job/exit_code.h"

extern char **environ;

#define TRIES 3 /* of a run that ends with EXIT_RETRY */

struct sweep_options {
    const char *json;
    bool report, list, slurm;
    int64_t task; /* -1: none */
};

static const struct options_row rows[] = {
    OPTION_FLAG(struct sweep_options, report, "report", "only compare"),
    OPTION_TEXT(struct sweep_options, json, "json", "FILE",
                "the comparison for programs"),
    OPTION_FLAG(struct sweep_options, list, "list", "only the command lines"),
    OPTION_FLAG(struct sweep_options, slurm, "slurm",
                "as an array of jobs, of those that are not finished"),
    OPTION_WHOLE(struct sweep_options, task, "task", "NUMBER", 0, INT64_MAX,
                 "one run of them, in place of this program"),
    { 0 },
};

/* --- running --- */

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

static void handle_signals(void)
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
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    int failed = posix_spawnattr_init(&attributes);
    if (failed != 0)
        return failed;
    failed = posix_spawn_file_actions_init(&actions);
    if (failed == 0) {
        posix_spawnattr_setpgroup(&attributes, 0);
        posix_spawnattr_setsigmask(&attributes, before);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP |
                                                  POSIX_SPAWN_SETSIGMASK);
        failed = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO,
                                                  "/dev/null", O_RDONLY, 0);
        if (failed == 0)
            failed = posix_spawnp(pid, command[0], &actions, &attributes,
                                  command, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    posix_spawnattr_destroy(&attributes);
    return failed;
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

static enum err run_all(const struct sweep *sweep, int *exit_code)
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

/* In place of this program, so that signals and exit codes are the run's. */
static enum err run_task(const struct sweep *sweep, int64_t number)
{
    char **command = NULL;
    if (number >= sweep->runs)
        return err_set(ERR_USAGE,
                       "--task %lld: the sweep has %lld runs, from 0 "
                       "on",
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
static enum err unfinished(const struct sweep *sweep, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int64_t i = 0; i < sweep->runs; i++) {
        struct sweep_result result;
        TRY(sweep_result(sweep, i, &result));
        if (result.state != SWEEP_FINISHED && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%lld",
                                     used > 0 ? "," : "", (long long)i);
    }
    return ERR_OK;
}

/* For a shell, in quotes. */
static void quote(char *out, size_t bytes, const char *text)
{
    size_t used = 0;
    out[used++] = '\'';
    for (const char *p = text; *p != '\0' && used + 6 < bytes; p++)
        if (*p == '\'')
            used += (size_t)snprintf(out + used, bytes - used, "'\\''");
        else
            out[used++] = *p;
    out[used++] = '\'';
    out[used] = '\0';
}

static enum err submit(const struct sweep *sweep, const char *file,
                       int *exit_code)
{
    enum err rc = ERR_OK;
    size_t bytes = 8 * SWEEP_RUNS_MAX;
    char path[FSIO_PATH_MAX], self[FSIO_PATH_MAX];
    char quoted[2][2 * FSIO_PATH_MAX], wrap[5 * FSIO_PATH_MAX];
    char options[SETTINGS_TEXT_BYTES], *words[128], *next = NULL;
    int count = 0;
    char *array = NULL;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    TRY(new_room(&array, bytes));
    TRY_OUT(check_folders(sweep));
    if (length < 0 || realpath(file, path) == NULL)
        TRY_OUT(err_errno("%s", file));
    self[length] = '\0';
    size_t head = (size_t)snprintf(array, bytes, "--array=");
    TRY_OUT(unfinished(sweep, array + head, bytes - head));
    if (array[head] == '\0') {
        log_info("all %lld runs are finished", (long long)sweep->runs);
        goto out;
    }
    quote(quoted[0], sizeof quoted[0], self);
    quote(quoted[1], sizeof quoted[1], path);
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
    if (*exit_code != 0) {
        rc = err_set(ERR_USAGE, "sbatch ended with exit code %d", *exit_code);
        goto out;
    }
out:
    free(array);
    return rc;
}

/* --- */

static enum err list(const struct sweep *sweep)
{
    for (int64_t i = 0; i < sweep->runs; i++) {
        char **command = NULL;
        TRY(sweep_command(sweep, i, &command));
        for (char **word = command; *word != NULL; word++) {
            char quoted[2 * SETTINGS_VALUE_BYTES];
            bool plain =
                (*word)[strcspn(*word, " \t\n'\"\\$`(){};|&<>*?#~")] == '\0';
            quote(quoted, sizeof quoted, *word);
            printf("%s%s", word > command ? " " : "", plain ? *word : quoted);
        }
        putchar('\n');
        sweep_command_free(command);
    }
    return ERR_OK;
}

static enum err compare(const struct sweep *sweep, struct output *json)
{
    enum err rc = ERR_OK;
    struct sweep_result *results = NULL;
    TRY(new_zeroed(&results, (size_t)sweep->runs));
    for (int64_t i = 0; i < sweep->runs; i++)
        TRY_OUT(sweep_result(sweep, i, &results[i]));
    sweep_front(sweep, results);
    TRY_OUT(sweep_print(sweep, results, stdout));
    if (json->file != NULL)
        TRY_OUT(sweep_json(sweep, results, json->file));
    fflush(stdout); /* it is out before the file may fail */
    TRY_OUT(output_end(json, false));
out:
    free(results);
    return rc;
}

/* The programs beside this one are found first, also where no module is loaded.
 */
static enum err add_own_folder(void)
{
    char self[FSIO_PATH_MAX], path[16384];
    const char *before = getenv("PATH");
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return err_errno("/proc/self/exe");
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    int n = snprintf(path, sizeof path, "%s:%s", self,
                     before != NULL ? before : "/usr/bin:/bin");
    if (n >= (int)sizeof path || setenv("PATH", path, 1) != 0)
        return err_set(ERR_MEMORY, "PATH is too long");
    return ERR_OK;
}

static enum err run(const struct options *line, int *exit_code)
{
    enum err rc = ERR_OK;
    const struct sweep_options *options = line->into;
    const char *file = line->operands[0];
    struct output json = { .file = NULL };
    struct sweep *sweep = NULL;
    TRY(new_zeroed(&sweep, 1));
    TRY_OUT(add_own_folder());
    handle_signals();
    TRY_OUT(sweep_load(file, sweep));
    if (options->list) {
        rc = list(sweep);
        goto out;
    }
    const char *const inputs[] = { file, sweep->settings.config };
    if (options->json != NULL)
        TRY_OUT(output_begin(options->json, inputs, 2, &json));
    TRY_OUT(fsio_mkdirs(sweep->settings.dir));
    if (options->task >= 0)
        rc = run_task(sweep, options->task);
    else if (options->slurm)
        rc = submit(sweep, file, exit_code);
    else if (!options->report)
        rc = run_all(sweep, exit_code);
    if (rc == ERR_OK && !options->slurm)
        rc = compare(sweep, &json);
out:
    output_drop(&json);
    sweep_free(sweep);
    free(sweep);
    return rc;
}

static const struct options_command commands[] = {
    { .operands = "FILE", .rows = rows, .operands_min = 1, .operands_max = 1 }
};

int main(int argc, char **argv)
{
    static const struct options_program program = {
        .name = "sweep",
        .about =
            "Trains with every combination of the values in FILE's grid, each "
            "in a run\ndirectory of its own, one after the other; runs that "
            "are finished are left alone,\nothers go on. Then, or with "
            "--report alone, compares them: quality, time, time to\nthe "
            "target, and which are not beaten in both.\n",
        .end = "exit codes: 0; 85 a run was stopped: the same command goes on; "
               "93 some failed; 64\nusage or configuration\n\nFILE has:\n",
        .more = sweep_help,
        OPTIONS_COMMANDS(commands),
    };
    struct sweep_options options = { .task = -1 };
    return cmd_main(&(struct cmd_main){ &program, &options, run }, argc, argv);
}
