/* tessera-ckpt watch: what can be seen of an attempt without asking Slurm, for the
 * launch script beside which it runs: a step has come, the attempt is in the
 * ledger, there is a file STOP. When something is to be done it prints a line, "PID
 * stop", "PID ask", "PID say TEXT", or "PID start", "PID hang" and "PID apart" where the
 * attempt is to be ended, by src/control/watch.h; its own number tells the lines of one
 * watch from those that another has left in the pipe.
 *
 * A process of its own, since a file system that stands still would stop the script
 * as well, which must hear signals and the step's end. It ends with its parent. The
 * guards in turn see the script in RUN/health/beat.JOB. */
#include "src/cmd/ckpt_cmd.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/regular.h"
#include "src/control/watch.h"
#include "src/job/ledger_history.h"

/* Shared storage has many such watches. */
#define STOP_LOOK_S 4

struct paths {
    char stop[FSIO_PATH_MAX], beat[FSIO_PATH_MAX], metrics[FSIO_PATH_MAX];
    char ledger[FSIO_PATH_MAX], reasons[FSIO_PATH_MAX];
};

/* What the ledger says, and what the ranks do, read where they have changed. */
struct said {
    uint64_t version, reasons;
    bool started, apart, left;
};

static enum err seconds(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= 1 && *out <= 1e9
               ? ERR_OK
               : err_set(ERR_USAGE, "watch: '%s': not so many seconds", text);
}

/* For the guards; what cannot be written they ask Slurm about. */
static void touch(const char *path)
{
    int fd = -1;
    if (regular_open_at(AT_FDCWD, path, O_WRONLY | O_CREAT, REGULAR_NO_LINK,
                        path, &fd) != ERR_OK)
        return;
    (void)futimens(fd, NULL);
    close(fd);
}

/* Another one when the file has changed: of metrics.jsonl at every step. */
static uint64_t version_of(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0
               ? (uint64_t)status.st_mtim.tv_sec * 1000000007 +
                     (uint64_t)status.st_mtim.tv_nsec +
                     ((uint64_t)status.st_size << 32)
               : 0;
}

static void read_ledger(const struct ckpt_cmd *cmd, const struct paths *paths,
                        struct said *said)
{
    struct ledger_job job;
    uint64_t version = version_of(paths->ledger);
    if (version == said->version ||
        ledger_job_read(cmd->paths[0], cmd->job, &job) != ERR_OK)
        return;
    ledger_job_free(&job);
    said->version = version;
    said->started = job.started >= cmd->attempt;
    said->apart = job.apart >= cmd->attempt;
}

static bool lost_others(const char *path)
{
    char line[32] = "";
    FILE *file = NULL;
    if (regular_stream(path, &file) != ERR_OK || file == NULL)
        return false;
    bool lost = fgets(line, sizeof line, file) != NULL &&
                strncmp(line, "75 comm ", 8) == 0;
    fclose(file);
    return lost;
}

/* Who leaves first has MPI end the others, rank 0 perhaps before its line. */
static void read_reasons(const struct ckpt_cmd *cmd, const struct paths *paths,
                         struct said *said)
{
    char path[FSIO_PATH_MAX], begin[64];
    uint64_t version = version_of(paths->reasons);
    DIR *folder = version != said->reasons ? opendir(paths->reasons) : NULL;
    if (folder == NULL)
        return;
    said->reasons = version;
    snprintf(begin, sizeof begin, "attempt-%04d.rank-", (int)cmd->attempt);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strncmp(entry->d_name, begin, strlen(begin)) == 0 &&
            fsio_path(path, "%s/%s", paths->reasons, entry->d_name) == ERR_OK)
            said->left = said->left || lost_others(path);
    closedir(folder);
}

static void tell(const char *what)
{
    printf("%d %s\n", (int)getpid(), what);
    fflush(stdout);
}

/* True: it is over. */
static bool tick(const struct ckpt_cmd *cmd, const struct paths *paths,
                 struct said *ledger, struct watch *watch)
{
    read_ledger(cmd, paths, ledger);
    read_reasons(cmd, paths, ledger);
    struct watch_seen seen = { .beat = version_of(paths->metrics),
                               .started = ledger->started,
                               .apart = ledger->apart || ledger->left,
                               .now_s = clock_now() };
    char said[80];
    enum watch_what what = watch_tick(watch, &seen);
    snprintf(said, sizeof said,
             "say stood still for %.0f s, which do not count", watch->still_s);
    if (watch->still_s > 0)
        tell(said);
    if (what != WATCH_ON)
        tell(what == WATCH_ASK     ? "ask"
             : what == WATCH_START ? "start"
             : what == WATCH_HANG  ? "hang"
                                   : "apart");
    return what > WATCH_ASK;
}

enum err ckpt_cmd_watch(struct ckpt_cmd *cmd)
{
    struct watch watch = { 0 };
    struct said ledger = { 0 };
    struct paths paths;
    const char *run_dir = cmd->paths[0];
    pid_t parent = getppid();
    bool over = false, stopped = false;
    double looked_s = -STOP_LOOK_S;
    TRY(seconds(cmd->words[0], &watch.start_s));
    TRY(seconds(cmd->words[1], &watch.hang_s));
    TRY(seconds(cmd->words[2], &watch.tick_s));
    TRY(fsio_path(paths.stop, "%s/STOP", run_dir));
    TRY(fsio_path(paths.metrics, "%s/metrics.jsonl", run_dir));
    TRY(fsio_path(paths.reasons, "%s/reasons", run_dir));
    TRY(fsio_path(paths.ledger, "%s/ledger.jsonl", run_dir));
    TRY(fsio_path(paths.beat, "%s/health/beat.%" PRId64, run_dir, cmd->job));
    while (getppid() == parent) {
        over = over || tick(cmd, &paths, &ledger, &watch);
        clock_sleep(watch.tick_s);
        if (clock_now() - looked_s < STOP_LOOK_S)
            continue;
        looked_s = clock_now();
        touch(paths.beat);
        if (!stopped && access(paths.stop, F_OK) == 0) {
            stopped = true;
            tell("stop");
        }
    }
    return ERR_OK;
}
