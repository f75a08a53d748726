/* The reader of run directories: opens, reads on, and lets go.
 *
 *     metrics.jsonl --> points --> recent ones one by one, old ones in buckets
 *     ledger.jsonl  --> attempts, commits, events
 *     eval.jsonl    --> losses and scores of tasks
 *     samples.jsonl --> the newest texts
 *     config.cfg    --> settings
 *
 * Each line is taken once and forgotten, so memory does not grow with the run. An
 * update reads what has come since and works the account of time out again from
 * the attempts' sums, which is all that it needs: nothing of it is changed step by
 * step, so that it cannot drift. */
#include "src/report/run_history.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/array.h"
#include "src/base/exit_code.h"
#include "src/base/new.h"
#include "src/base/units.h"
#include "src/report/run_history_impl.h"

const char *const run_value_names[RUN_VALUES] = { RUN_VALUE_NAMES };

const char *const run_time_names[RUN_TIMES] = {
    [RUN_TIME_TRAINING] = "training",
    [RUN_TIME_INITIALIZATION] = "initialization",
    [RUN_TIME_DATA] = "data loading",
    [RUN_TIME_CHECKPOINT] = "checkpoints",
    [RUN_TIME_WASTED] = "wasted steps",
    [RUN_TIME_DETECTION] = "detection",
    [RUN_TIME_CHECKS] = "node checks",
    [RUN_TIME_QUEUE] = "queue",
    [RUN_TIME_LAUNCH] = "launch",
    [RUN_TIME_BETWEEN] = "between attempts",
    [RUN_TIME_EVALUATION] = "evaluation",
    [RUN_TIME_OTHER] = "other",
};

static const char *name_of(const char *dir)
{
    const char *slash = strrchr(dir, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : dir;
}

static enum err set_paths(struct run_history *history, const char *dir)
{
    struct run_reader *reader = history->reader;
    char path[PATH_MAX];
    struct stat status;
    if (realpath(dir, path) == NULL || stat(path, &status) != 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? err_set(ERR_USAGE, "%s: no such run directory", dir)
                   : err_errno("%s: run directory", dir);
    if (!S_ISDIR(status.st_mode))
        return err_set(ERR_USAGE, "%s: is no folder: give a run directory",
                       dir);
    TRY(new_text(&history->dir, path));
    TRY(new_text(&history->name, name_of(history->dir)));
    TRY(fsio_path(reader->metrics.path, "%s/metrics.jsonl", path));
    TRY(fsio_path(reader->eval.path, "%s/eval.jsonl", path));
    TRY(fsio_path(reader->ledger.path, "%s/ledger.jsonl", path));
    return fsio_path(reader->samples.path, "%s/samples.jsonl", path);
}

static enum err make_room(struct run_history *history)
{
    TRY(new_zeroed(&history->reader, 1));
    TRY(new_zeroed(&history->reader->by_number, RUN_ATTEMPTS_MAX + 1));
    TRY(new_zeroed(&history->recent, RUN_RECENT_MAX));
    TRY(new_zeroed(&history->old, RUN_BUCKETS_MAX));
    history->reader->eval_stride = history->reader->commit_stride = 1;
    history->old_base = history->last_step = -1;
    history->old_width = 1;
    return ERR_OK;
}

enum err run_history_update(struct run_history *history)
{
    struct run_reader *reader = history->reader;
    /* the ledger first: it tells where an attempt goes on */
    TRY(line_tail_read(&reader->ledger, run_ledger_line, history));
    TRY(line_tail_read(&reader->metrics, run_points_line, history));
    TRY(line_tail_read(&reader->eval, run_results_eval, history));
    TRY(line_tail_read(&reader->samples, run_results_sample, history));
    TRY(run_config_read(history));
    run_account(history);
    return ERR_OK;
}

/* A line without an end counts when nobody will end it: now. */
static int64_t history_torn(const struct line_tail *tail)
{
    return (tail->held > 0) + tail->too_long;
}

enum err run_history_create(const char *dir, struct run_history **out)
{
    return run_history_create_newest(dir, 0, out);
}

enum err run_history_create_newest(const char *dir, int64_t bytes,
                                   struct run_history **out)
{
    enum err rc = ERR_OK;
    struct run_history *history = NULL;
    *out = NULL;
    TRY(new_zeroed(&history, 1));
    TRY_OUT(make_room(history));
    TRY_OUT(set_paths(history, dir));
    history->reader->metrics.newest = bytes;
    TRY_OUT(run_history_update(history));
    struct run_reader *reader = history->reader;
    if (reader->metrics.file == 0 && reader->ledger.file == 0)
        TRY_OUT(
            err_set(ERR_DATA,
                    "%s: has neither metrics.jsonl nor ledger.jsonl: give a "
                    "run directory (run.dir of tessera-train)",
                    dir));
    history->skipped_lines +=
        history_torn(&reader->metrics) + history_torn(&reader->eval) +
        history_torn(&reader->ledger) + history_torn(&reader->samples);
    *out = history;
out:
    if (rc != ERR_OK)
        run_history_destroy(history);
    return rc;
}

static void free_lists(struct run_history *history)
{
    for (size_t i = 0; i < history->sample_count; i++) {
        free(history->samples[i].prompt);
        free(history->samples[i].text);
    }
    run_config_forget(history);
    free(history->recent);
    free(history->old);
    free(history->attempts);
    free(history->evals);
    json_decref(history->sets);
    free(history->commits);
    free(history->events);
    free(history->samples);
    free(history->tasks);
    free(history->settings);
}

void run_history_destroy(struct run_history *history)
{
    if (history == NULL)
        return;
    if (history->reader != NULL) {
        line_tail_free(&history->reader->metrics);
        line_tail_free(&history->reader->eval);
        line_tail_free(&history->reader->ledger);
        line_tail_free(&history->reader->samples);
        free(history->reader->clocks);
        free(history->reader->by_number);
        free(history->reader);
    }
    free_lists(history);
    free(history->dir);
    free(history->name);
    free(history);
}

double run_stat_mean(const struct run_stat *stat)
{
    return stat->count > 0 ? stat->sum / (double)stat->count : NAN;
}

#define WHO_STEPS 20

int run_history_who(const struct run_history *history, enum run_who who)
{
    size_t count = history->recent_count;
    size_t first = count > WHO_STEPS ? count - WHO_STEPS : 0;
    int rank = -1, most = 0;
    for (size_t i = first; i < count; i++) {
        int times = 0, at = history->recent[i].who[who];
        for (size_t j = first; j < count; j++)
            times += history->recent[j].who[who] == at;
        if (at >= 0 && times >= most) {
            rank = at;
            most = times;
        }
    }
    return rank;
}

double run_history_goodput(const struct run_history *history)
{
    int64_t wall_us = history->end_us - history->begin_us;
    return wall_us > 0
               ? (double)history->time_us[RUN_TIME_TRAINING] / (double)wall_us
               : NAN;
}

/* --- all steps -------------------------------------------------------------- */

/* A bucket goes where its last step lies. An old one may be wider than the new
 * ones: it is not divided, for nobody knows how its values lie in it. */
static void put_into(struct run_bucket *list, size_t buckets, int64_t base,
                     int64_t width, const struct run_bucket *bucket)
{
    assert(width > 0 && bucket->points > 0);
    int64_t at = (bucket->last - 1 - base) / width;
    if (at < 0)
        at = 0;
    if (at >= (int64_t)buckets)
        at = (int64_t)buckets - 1;
    run_buckets_add(&list[at], bucket);
}

static int64_t first_step(const struct run_history *history)
{
    for (size_t i = 0; i < RUN_BUCKETS_MAX; i++)
        if (history->old[i].points > 0)
            return history->old[i].first;
    return history->recent_count > 0 ? history->recent[0].step : 1;
}

enum err run_history_buckets(const struct run_history *history, size_t buckets,
                             struct run_bucket **out, size_t *count)
{
    int64_t base = first_step(history) - 1;
    int64_t steps = history->last_step - base;
    assert(buckets > 0);
    if (steps < 1)
        steps = 1;
    int64_t width = (steps + (int64_t)buckets - 1) / (int64_t)buckets;
    *count = 0;
    TRY(new_zeroed(out, buckets));
    struct run_bucket *list = *out;
    assert(history->recent_count <= RUN_RECENT_MAX);
    for (size_t i = 0; i < RUN_BUCKETS_MAX; i++)
        if (history->old[i].points > 0)
            put_into(list, buckets, base, width, &history->old[i]);
    for (size_t i = 0; i < history->recent_count; i++) {
        struct run_bucket bucket = run_buckets_of(&history->recent[i]);
        put_into(list, buckets, base, width, &bucket);
    }
    for (size_t i = 0; i < buckets; i++)
        if (list[i].points > 0)
            list[(*count)++] = list[i];
    return ERR_OK;
}

bool run_history_over(const struct run_history *run)
{
    if (run->attempt_count == 0)
        return false;
    const struct run_attempt *last = &run->attempts[run->attempt_count - 1];
    for (size_t i = run->event_count; i-- > 0;)
        if (run->events[i].kind == RUN_EVENT_GIVE_UP &&
            run->events[i].time_us >= last->end_us)
            return true;
    return last->stop_code >= 0 && last->stop_code != EXIT_REQUEUE &&
           last->stop_code != EXIT_RETRY;
}

int64_t run_history_steps_max(const struct run_history *run)
{
    char text[64];
    struct duration duration;
    const char *value = run_history_setting(run, "train.max_duration");
    snprintf(text, sizeof text, "%s", value[0] == '"' ? value + 1 : value);
    text[strcspn(text, "\"")] = '\0';
    if (text[0] == '\0' || units_parse(text, &duration) != ERR_OK)
        return -1;
    if (duration.unit == UNIT_TOK && run->last_step > 0 && run->tokens > 0)
        duration.value *= (double)run->last_step / (double)run->tokens;
    else if (duration.unit != UNIT_BA)
        return -1;
    return duration.value <= RUN_STEP_MAX ? (int64_t)ceil(duration.value) : -1;
}

/* --- what the parts of the reader share ---
 *
 * Numbers come from files that anybody may have written: a time is limited before it
 * becomes a whole number, and sums stop at the limit instead of running over. */

int64_t run_reader_us(double seconds)
{
    if (!(seconds > 0.0) || seconds * 1e6 > (double)RUN_US_MAX)
        return 0;
    return llround(seconds * 1e6);
}

int64_t run_reader_add(int64_t a, int64_t b)
{
    assert(a >= 0 && b >= 0);
    return a > RUN_US_MAX - b ? RUN_US_MAX : a + b;
}

/* Numbers of attempts have gaps and files name them in any order, so a table leads
 * from each number to its place in the list, which is that of first mention. */
enum err run_reader_attempt(struct run_history *history, double number,
                            int *index)
{
    struct run_reader *reader = history->reader;
    size_t count = history->attempt_count, room = reader->rooms.attempts;
    *index = -1;
    if (!(number >= 1 && number <= RUN_ATTEMPTS_MAX) || number != floor(number))
        return ERR_OK;
    int *known = &reader->by_number[(int)number];
    if (*known == 0) {
        TRY(array_room(&reader->clocks, &room, count + 1));
        TRY(array_room(&history->attempts, &reader->rooms.attempts, count + 1));
        history->attempts[count] = (struct run_attempt){
            .number = (int)number,
            .ranks = 1,
            .nodes = 1,
            .threads = 1,
            .from_step = -1,
            .last_step = -1,
            .code = -1,
            .stop_code = -1,
        };
        reader->clocks[count] =
            (struct run_clock){ .first_step = -1, .commit_step = -1 };
        *known = (int)++history->attempt_count;
    }
    *index = *known - 1;
    assert(history->attempts[*index].number == (int)number);
    return ERR_OK;
}

void run_reader_heard(struct run_history *history, int attempt, int64_t us)
{
    assert(attempt >= 0 && (size_t)attempt < history->attempt_count);
    struct run_clock *clock = &history->reader->clocks[attempt];
    if (us > clock->heard_us)
        clock->heard_us = us;
}

void run_reader_text(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text != NULL ? text : "");
}
