/* What launch scripts ask: tessera-ckpt next, and below it watch and ledger. `next`
 * says what such a script does when an attempt has ended or could not begin. The decision is made in src/control/job.h, of the facts that the
 * script has, as words KEY=VALUE, and of those that stand in the run directory:
 * its ledger, its checkpoints, what the ranks wrote, a file STOP.
 *
 * What is decided is written into the ledger before it is told, since where it
 * cannot be nothing may go on, and with its facts into RUN/health/decisions, so
 * that it can be made again. jobs/lib/next.sh reads what is printed. */
#include "src/cmd/ckpt_cmd.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/files/ckpt_index.h"
#include "src/base/clean.h"
#include "src/base/clock.h"
#include "src/base/exit_code.h"
#include "src/base/lines.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/regular.h"
#include "src/control/job_words.h"
#include "src/control/watch.h"
#include "src/job/ledger.h"
#include "src/job/ledger_history.h"

#define STEP_NAME_BYTES 32
#define HOST_BYTES 256

struct run_facts {
    char suspect[HOST_BYTES]; /* a node that was not heard any more; "" */
    bool told;                /* of its ranks one has said why it has left */
    char left[64]; /* one that was slow, to be left; "", LEDGER_SWEEP */
    char written[1024], newest[STEP_NAME_BYTES], local[STEP_NAME_BYTES];
};

static void step_name(char out[STEP_NAME_BYTES], int64_t step)
{
    out[0] = '\0';
    if (step >= 0)
        snprintf(out, STEP_NAME_BYTES, "step-%09" PRId64, step);
}

/* What each rank that left the attempt wrote; false: there is no such folder. */
static bool each_reason(const struct ckpt_cmd *cmd,
                        void (*take)(void *arg, const char *path, int rank),
                        void *arg)
{
    char path[FSIO_PATH_MAX], begin[64];
    bool named = fsio_path(path, "%s/reasons", cmd->paths[0]) == ERR_OK;
    DIR *folder = named ? opendir(path) : NULL;
    if (folder == NULL)
        return false;
    int length =
        snprintf(begin, sizeof begin, "attempt-%04d.rank-", (int)cmd->attempt);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (strncmp(entry->d_name, begin, (size_t)length) == 0 &&
            fsio_path(path, "%s/reasons/%s", cmd->paths[0], entry->d_name) ==
                ERR_OK)
            take(arg, path, atoi(entry->d_name + length));
    closedir(folder);
    return true;
}

/* What the ranks of an attempt wrote about why they left: of more than are looked at,
 * the gravest is the last. */
#define WORDS_MAX 64
struct words {
    int count;
    struct word {
        int grave, rank;
        char host[HOST_BYTES], lost[HOST_BYTES]; /* whom it did not hear; "" */
        char text[1024];
    } list[WORDS_MAX];
};

static void take_words(void *arg, const char *path, int rank)
{
    struct words *words = arg;
    struct word word = { .rank = rank };
    struct word *last = &words->list[WORDS_MAX - 1];
    FILE *file = NULL;
    if (regular_stream(path, &file) != ERR_OK || file == NULL)
        return;
    bool any = fgets(word.text, sizeof word.text, file) != NULL;
    fclose(file);
    if (!any)
        return;
    int code = atoi(word.text);
    const char *silent = strstr(word.text, "no answer");
    const char *from = silent ? strstr(silent, "from rank ") : NULL;
    word.grave = code == EXIT_STOP ? 3 : code == EXIT_USAGE ? 2 : 1;
    word.text[strcspn(word.text, "\n")] = '\0';
    (void)sscanf(word.text, "%*d %*s %255[^:]", word.host);
    if (from != NULL)
        (void)sscanf(from, "from rank %*d (%255[^)]", word.lost);
    if (words->count < WORDS_MAX)
        words->list[words->count++] = word;
    else if (word.grave > last->grave || /* or says more than whom it misses */
             (word.grave == last->grave &&
              (word.lost[0] == '\0') > (last->lost[0] == '\0')) ||
             (word.grave == last->grave && rank < last->rank &&
              (word.lost[0] == '\0') == (last->lost[0] == '\0')))
        *last = word;
}

static bool is_lost(const struct words *words, const char *host)
{
    bool lost = false;
    for (int i = 0; i < words->count; i++)
        lost = lost || strcmp(words->list[i].lost, host) == 0;
    return lost;
}

/* The words that count: the gravest, that it would come again or that it is used
 * wrongly; of as grave ones a rank's whom all others have heard, since one that is cut
 * off blames its peers as they blame it; of these the lowest rank's. */
static bool counts_more(const struct words *words, const struct word *a,
                        const struct word *b)
{
    bool a_lost = is_lost(words, a->host), b_lost = is_lost(words, b->host);
    if (a->grave != b->grave)
        return a->grave > b->grave;
    return a_lost != b_lost ? b_lost : a->rank < b->rank;
}

static enum err read_words(const struct ckpt_cmd *cmd, struct run_facts *run)
{
    struct words *words = NULL;
    TRY(new_zeroed(&words, 1));
    (void)each_reason(cmd, take_words, words);
    for (int i = 0, best = 0; i < words->count; i++) {
        const struct word *word = &words->list[i];
        if (counts_more(words, word, &words->list[best]))
            best = i;
        if (word->lost[0] != '\0' && !is_lost(words, word->host))
            snprintf(run->suspect, sizeof run->suspect, "%s", word->lost);
        snprintf(run->written, sizeof run->written, "%s",
                 words->list[best].text);
    }
    for (int i = 0; i < words->count; i++)
        run->told =
            run->told || (words->list[i].lost[0] == '\0' &&
                          strcmp(words->list[i].host, run->suspect) == 0);
    free(words);
    return ERR_OK;
}

/* Rank 0 tells the end when all ranks have come to it. What becomes of one that does not
 * leave, or of its node, is no attempt in vain where the last step is committed. */
static void take_end(const struct ledger_job *ledger, int64_t attempt,
                     int64_t newest, struct job_facts *facts)
{
    bool planned =
        ledger->ended_code == EXIT_DONE || ledger->ended_code == EXIT_REQUEUE;
    if (ledger->ended != attempt || !planned || ledger->ended_step != newest ||
        facts->ended >= JOB_STOPPED)
        return;
    facts->ended = JOB_ITSELF;
    facts->code = ledger->ended_code;
}

/* `before` and `before_local` are the newest steps when the attempt began. */
static enum err gather(const struct ckpt_cmd *cmd, struct run_facts *run,
                       struct job_facts *facts)
{
    const char *run_dir = cmd->paths[0];
    struct ledger_job ledger;
    int64_t *steps = NULL;
    int count = 0;
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/STOP", run_dir));
    TRY(ckpt_index_steps(run_dir, &steps, &count, NULL));
    int64_t newest = count > 0 ? steps[count - 1] : -1;
    step_name(run->newest, newest);
    free(steps);
    TRY(ledger_job_read(run_dir, cmd->job, &ledger));
    take_end(&ledger, cmd->attempt, newest, facts);
    step_name(run->local, ledger.local_step);
    facts->opened = ledger.started >= cmd->attempt;
    facts->unstarted = ledger.unstarted;
    facts->silenced = ledger.silenced;
    if (ledger.futile > facts->futile || ledger.gained == cmd->attempt)
        facts->futile = ledger.futile;
    if (ledger.replaced_attempt == cmd->attempt)
        memcpy(run->left, ledger.replaced_node, sizeof run->left);
    facts->left = run->left;
    ledger_job_free(&ledger);
    facts->stop_file = access(path, F_OK) == 0;
    facts->newest = run->newest;
    facts->run_dir = run_dir;
    facts->advanced =
        (cmd->before != NULL && strcmp(run->newest, cmd->before) > 0) ||
        (cmd->before_local != NULL &&
         strcmp(run->local, cmd->before_local) > 0);
    if (facts->opened && facts->ended < JOB_STOPPED) {
        TRY(read_words(cmd, run));
        facts->written = run->written;
        facts->silent = run->told ? NULL : run->suspect;
    }
    return ERR_OK;
}

static enum err write_event(const struct ckpt_cmd *cmd,
                            const struct job_facts *facts,
                            const struct job_decision *d)
{
    static const char *const progress[] = { "", "null", "false", "true" };
    char number[32], code[32], row[32], by[] = "by=launch",
                                        silent[HOST_BYTES + 8];
    char reason[sizeof d->reason + 16], newest[STEP_NAME_BYTES + 16];
    char *words[7] = { number, code, reason };
    int count = 3;
    snprintf(number, sizeof number, "job=%" PRId64, cmd->job);
    snprintf(code, sizeof code, "code=%d", d->code);
    snprintf(reason, sizeof reason, "reason=%s", d->reason);
    snprintf(row, sizeof row, "progress=%s", progress[d->progress]);
    snprintf(newest, sizeof newest, "newest=%s", facts->newest);
    if (strcmp(d->event, "give-up") == 0)
        words[count++] = newest;
    else if (d->progress != JOB_NO_WORD)
        words[count++] = row;
    if (strcmp(d->event, "stop") == 0) {
        words[count++] = by;
    } else if (d->silent != NULL) {
        snprintf(silent, sizeof silent, "silent=%.*s", HOST_BYTES - 1,
                 d->silent);
        words[count++] = silent;
    }
    return ledger_append_words(cmd->paths[0], d->event, (int)cmd->attempt,
                               words, count);
}

/* For whoever asks why: the facts, and what came of them. */
static void keep_decision(const struct ckpt_cmd *cmd,
                          const struct job_facts *facts,
                          const struct job_decision *d)
{
    char folder[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    char *line = NULL;
    size_t bytes;
    int fd = -1;
    FILE *out = open_memstream(&line, &bytes);
    if (out == NULL)
        return;
    job_words_write(facts, out);
    fprintf(out, "-> %s %d %s", job_what_names[d->what], d->exit_code,
            d->reason);
    bool written = fclose(out) == 0;
    if (written && fsio_path(folder, "%s/health", cmd->paths[0]) == ERR_OK &&
        lines_open(folder, "decisions", path, &fd) == ERR_OK)
        (void)lines_append(fd, path, line);
    fsio_close(fd);
    free(line);
}

enum err ckpt_cmd_next(struct ckpt_cmd *cmd)
{
    struct job_facts facts = { 0 };
    struct job_decision decision;
    struct run_facts run = { .written = "" };
    TRY(job_words_read(cmd->words, cmd->word_count, &facts));
    TRY(gather(cmd, &run, &facts));
    job_next(&facts, &decision);
    if (job_decided(decision.what)) {
        keep_decision(cmd, &facts, &decision);
        if (decision.event != NULL &&
            write_event(cmd, &facts, &decision) != ERR_OK) {
            log_warn("%s", err_text());
            job_unwritten(&facts, &decision);
        }
    }
    clean_text(decision.words, false);
    printf("do %s\nexit %d\nfutile %d\nsay %s\n", job_what_names[decision.what],
           decision.exit_code, decision.futile, decision.words);
    clean_text(run.suspect, false);
    if (run.suspect[0] != '\0')
        printf("suspect %s\n", run.suspect);
    if (decision.pause_s > 0)
        printf("pause %d\n", decision.pause_s);
    if (decision.what == JOB_RETRY && strcmp(run.left, LEDGER_SWEEP) == 0)
        printf("phase job\n");
    return ERR_OK;
}

/* --- watch: what can be seen of an attempt without asking Slurm, for the
 * launch script beside which it runs: a step has come, the attempt is in the
 * ledger, there is a file STOP. When something is to be done it prints a line, "PID
 * stop", "PID ask", "PID say TEXT", or "PID start SECONDS", "PID hang" and "PID apart" where the
 * attempt is to be ended, by src/control/watch.h; its own number tells the lines of one
 * watch from those that another has left in the pipe.
 *
 * A process of its own, since a file system that stands still would stop the script
 * as well, which must hear signals and the step's end. It ends with its parent. The
 * guards in turn see the script in RUN/health/beat.JOB. */

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

static void lost_others(void *arg, const char *path, int rank)
{
    bool *left = arg;
    char line[32] = "";
    FILE *file = NULL;
    if (regular_stream(path, &file) != ERR_OK || file == NULL)
        return;
    (void)rank;
    *left = *left || (fgets(line, sizeof line, file) != NULL &&
                      strncmp(line, "75 comm ", 8) == 0);
    fclose(file);
}

/* Who leaves first has MPI end the others, rank 0 perhaps before its line. */
static void read_reasons(const struct ckpt_cmd *cmd, const struct paths *paths,
                         struct said *said)
{
    uint64_t version = version_of(paths->reasons);
    if (version != said->reasons && each_reason(cmd, lost_others, &said->left))
        said->reasons = version;
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
    char said[80], start[32];
    enum watch_what what = watch_tick(watch, &seen);
    snprintf(start, sizeof start, "start %.0f", watch->start_s);
    snprintf(said, sizeof said,
             "say stood still for %.0f s, which do not count", watch->still_s);
    if (watch->still_s > 0)
        tell(said);
    if (what != WATCH_ON)
        tell(what == WATCH_ASK     ? watch->started ? "ask" : "ask start"
             : what == WATCH_START ? start
             : what == WATCH_HANG  ? "hang"
                                   : "apart");
    return what > WATCH_ASK;
}

enum err ckpt_cmd_watch(struct ckpt_cmd *cmd)
{
    struct watch watch = { 0 };
    struct said ledger = { 0 };
    struct paths paths;
    struct ledger_job job;
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
    if (ledger_job_read(run_dir, cmd->job, &job) == ERR_OK) {
        watch.took_s = job.start_took_s;
        watch.start_s =
            watch_start_s(watch.start_s, job.start_took_s, job.start_failed);
    }
    ledger_job_free(&job);
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

/* --- ledger: what launch scripts ask of a run's ledger, and what they
 * add. They know words; JSON is read and written here.
 *
 * Without --event it prints a line for each number, name and value with a blank
 * between, which jobs/lib/ledger.sh reads: a name that is changed here has to be
 * changed there. With --event each KEY=VALUE is checked against the event's row
 * (src/job/ledger_rows.h), so that what a script writes can be read again by those
 * who count attempts and failures. */

enum err ckpt_cmd_ledger(struct ckpt_cmd *cmd)
{
    struct ledger_job job;
    if (cmd->event != NULL)
        return ledger_append_words(cmd->paths[0], cmd->event, (int)cmd->attempt,
                                   cmd->words, cmd->word_count);
    if (cmd->word_count > 0)
        return err_set(ERR_USAGE, "ledger: '%s': give its --event",
                       cmd->words[0]);
    TRY(ledger_job_read(cmd->paths[0], cmd->job, &job));
    printf("attempts %d\nstarted %d\nfutile %d\nunstarted %d\n", job.attempts,
           job.started, job.futile, job.unstarted);
    if (job.local_step >= 0)
        printf("local step-%09" PRId64 "\n", job.local_step);
    if (job.excluded != NULL)
        printf("excluded %s\n", job.excluded);
    if (job.expired != NULL)
        printf("expired %s\n", job.expired);
    if (job.slow != NULL)
        printf("slow %s\n", job.slow);
    ledger_job_free(&job);
    return ERR_OK;
}
