/* Reads a run's ledger and metrics for what saves cost and how often the run
 * failed. The ledger is written by ledger.c.
 *
 * It is read once, from its beginning, as a little machine: an attempt is open
 * from its "start" until something tells its end. Who dies with its node tells
 * nothing, so a "start" while one is open is itself the news that the one before
 * has failed. Medians, not means: one save that met a full file system must not
 * set the interval of all that follow. */
#include "src/job/ledger_history.h"

#include <assert.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/clock.h"
#include "src/base/real.h"
#include "src/base/exit_code.h"
#include "src/control/job.h"
#include "src/control/slow.h"
#include "src/job/ledger.h"

#define SECONDS_PER_HOUR 3600.0
/* The end of metrics.jsonl that is read: some thousand steps. */
#define METRICS_TAIL_BYTES (1L << 20)

struct values {
    double *list;
    size_t count, room;
};

struct scan {
    struct ledger_history *out;
    struct values costs, persists, restarts, steps;
    bool open;   /* an attempt has started and nothing told its end */
    bool failed; /* it is counted already */
    double start_s, last_s;
    double decided_s; /* of a restart or requeue without a start yet; 0: none */
};

static enum err add(struct values *values, double value)
{
    TRY(array_room(&values->list, &values->room, values->count + 1));
    assert(values->count < values->room);
    values->list[values->count++] = value;
    return ERR_OK;
}

static double median(struct values *values)
{
    assert(values->count <= INT_MAX);
    return values->count > 0 ? real_median(values->list, (int)values->count)
                             : -1;
}

static double number(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    return json_is_number(value) ? json_number_value(value) : -1;
}

static void fail(struct scan *scan)
{
    assert(scan->out->attempts > 0);
    scan->out->failures += !scan->failed;
    scan->failed = true;
}

/* The time of the attempt at hand counts up to its last event. */
static void close_attempt(struct scan *scan)
{
    if (scan->last_s > scan->start_s)
        scan->out->node_hours += (scan->last_s - scan->start_s) *
                                 scan->out->nodes / SECONDS_PER_HOUR;
}

static enum err take_start(struct scan *scan, const json_t *line, double time_s)
{
    size_t nodes = json_array_size(json_object_get(line, "hosts"));
    if (scan->open)
        fail(scan);
    close_attempt(scan);
    if (scan->decided_s > 0 && time_s > scan->decided_s)
        TRY(add(&scan->restarts, time_s - scan->decided_s));
    scan->out->attempts++;
    scan->out->nodes = nodes > 0 ? (int)nodes : 1;
    scan->open = true;
    scan->failed = false;
    scan->start_s = scan->last_s = time_s;
    scan->decided_s = 0;
    return ERR_OK;
}

static enum err take_event(void *arg, json_t *line)
{
    struct scan *scan = arg;
    const char *event = json_string_value(json_object_get(line, "event"));
    double time_s = number(line, "time");
    double code = number(line, "code");
    if (event == NULL || time_s <= 0)
        return ERR_OK;
    if (strcmp(event, "start") == 0)
        return take_start(scan, line, time_s);
    if (scan->out->attempts == 0)
        return ERR_OK;
    if (strcmp(event, "commit") == 0) {
        double seconds = number(line, "seconds");
        double stage_s = number(line, "stage_s");
        scan->out->commits++;
        if (seconds > 0) {
            TRY(add(&scan->costs, stage_s > 0 ? stage_s : seconds));
            TRY(add(&scan->persists, stage_s > 0 ? seconds : 0));
        }
    } else if (strcmp(event, "stop") == 0) {
        if (code == EXIT_RETRY && scan->open)
            fail(scan);
        scan->open = false;
    } else if (strcmp(event, "restart") == 0 || strcmp(event, "requeue") == 0) {
        if (code != EXIT_DONE && code != EXIT_REQUEUE)
            fail(scan);
        scan->open = false;
        scan->decided_s = time_s;
        return ERR_OK;
    } else if (strcmp(event, "give-up") == 0) {
        scan->open = false;
    }
    if (scan->decided_s == 0 && time_s > scan->last_s)
        scan->last_s = time_s;
    return ERR_OK;
}

static enum err take_step(void *arg, json_t *line)
{
    struct scan *scan = arg;
    double step_ms = number(line, "step_ms");
    return step_ms > 0 ? add(&scan->steps, step_ms / 1e3) : ERR_OK;
}

enum err ledger_history_read(const char *run_dir, struct ledger_history *out)
{
    enum err rc = ERR_OK;
    struct scan scan = { .out = out };
    *out = (struct ledger_history){ 0 };
    TRY_OUT(ledger_each_line(run_dir, "ledger.jsonl", 0, take_event, &scan));
    close_attempt(&scan);
    rc = ledger_each_line(run_dir, "metrics.jsonl", METRICS_TAIL_BYTES,
                          take_step, &scan);
    if (rc == ERR_DATA) /* a run that was cut off before its first step */
        rc = ERR_OK;
    out->cost_s = median(&scan.costs);
    out->persist_s = median(&scan.persists);
    out->restart_s = median(&scan.restarts);
    out->step_s = median(&scan.steps);
out:
    free(scan.costs.list);
    free(scan.persists.list);
    free(scan.restarts.list);
    free(scan.steps.list);
    return rc;
}

/* --- what a launch script asks --- */

struct bad_node {
    char name[64];
    double time_s; /* when it was left out last, or left as a slow one */
    bool slow;
};

struct job_scan {
    struct ledger_job *job;
    struct bad_node *bad;
    size_t count, room;
    double local_job, local_restart; /* whose nodes have local_step */
    double ready_s; /* when nodes were there for a start; 0: not known */
    bool running;   /* it has started, and no end of it is told */
};

static void take_readiness(struct job_scan *scan, const char *event,
                           double time_s)
{
    struct ledger_job *job = scan->job;
    bool restart = strcmp(event, "restart") == 0;
    bool requeue = strcmp(event, "requeue") == 0;
    if (strcmp(event, "start") == 0) {
        if (scan->ready_s > 0 && time_s - scan->ready_s > job->start_took_s)
            job->start_took_s = time_s - scan->ready_s;
        job->start_failed = 0;
        scan->ready_s = 0;
        scan->running = true;
    } else if (restart || strcmp(event, "check") == 0) {
        job->start_failed += restart && !scan->running;
        scan->ready_s = time_s;
    }
    scan->running = scan->running && !restart && !requeue;
}

static enum err take_exclusion(struct job_scan *scan, const json_t *line,
                               bool slow)
{
    const char *name = json_string_value(json_object_get(line, "node"));
    if (name == NULL || *name == '\0' || strpbrk(name, ", \n") != NULL ||
        strlen(name) >= sizeof scan->bad->name)
        return ERR_OK;
    size_t i = 0;
    while (i < scan->count &&
           (strcmp(scan->bad[i].name, name) != 0 || scan->bad[i].slow != slow))
        i++;
    assert(i <= scan->count && scan->count <= scan->room);
    if (i == scan->count) {
        TRY(array_room(&scan->bad, &scan->room, scan->count + 1));
        scan->bad[scan->count].slow = slow;
        snprintf(scan->bad[scan->count++].name, sizeof scan->bad->name, "%s",
                 name);
    }
    scan->bad[i].time_s = number(line, "time");
    return ERR_OK;
}

/* The attempts of a job follow each other: its newest one is still at work. */
static enum err take_replacement(struct job_scan *scan, const json_t *line)
{
    struct ledger_job *job = scan->job;
    const char *action = json_string_value(json_object_get(line, "action"));
    const char *node = json_string_value(json_object_get(line, "node"));
    int attempt = (int)number(line, "attempt");
    bool sweep =
        action != NULL && strcmp(action, slow_action_names[SLOW_SWEEP]) == 0;
    if (action == NULL || node == NULL ||
        (!sweep && strcmp(action, slow_action_names[SLOW_REPLACE]) != 0))
        return ERR_OK;
    if (attempt > 0 && attempt == job->started) {
        job->replaced++;
        job->replaced_attempt = attempt;
        job->replaced_s = number(line, "time");
        snprintf(job->replaced_node, sizeof job->replaced_node, "%s",
                 sweep ? LEDGER_SWEEP : node);
    }
    return sweep ? ERR_OK : take_exclusion(scan, line, true);
}

static void take_beginning(struct ledger_job *job, const json_t *line)
{
    int64_t step = (int64_t)number(line, "step");
    if (job->started == 0 || step <= job->begun_step ||
        number(line, "attempt") != (double)job->started)
        return;
    if (job->begun_step >= 0 && job->gains++ < LEDGER_GAINS) {
        job->gained = job->started;
        job->futile = job->silenced = 0;
    }
    job->begun_step = step;
}

static enum err take_decision(void *arg, json_t *line)
{
    struct job_scan *scan = arg;
    struct ledger_job *job = scan->job;
    const char *event = json_string_value(json_object_get(line, "event"));
    const char *reason = json_string_value(json_object_get(line, "reason"));
    const json_t *progress = json_object_get(line, "progress");
    if (event == NULL)
        return ERR_OK;
    bool start = strcmp(event, "start") == 0,
         end = strcmp(event, "give-up") == 0;
    job->attempts += start;
    if (json_is_true(json_object_get(line, "apart")))
        job->apart = (int)number(line, "attempt");
    if (strcmp(event, "commit-local") == 0)
        job->local_step = (int64_t)number(line, "step");
    /* what nodes have is a job's, up to its requeue */
    if (strcmp(event, "requeue") == 0 ||
        (start && (number(line, "job") != scan->local_job ||
                   number(line, "restart") != scan->local_restart)))
        job->local_step = -1;
    if (start) {
        scan->local_job = number(line, "job");
        scan->local_restart = number(line, "restart");
    }
    if (strcmp(event, "exclude") == 0)
        TRY(take_exclusion(scan, line, false));
    if (strcmp(event, "slow") == 0)
        return take_replacement(scan, line);
    /* ranks do not say of which job they are but at the start */
    if (job->started > 0 && strcmp(event, "stop") == 0 &&
        json_object_get(line, "by") == NULL &&
        number(line, "attempt") == (double)job->started) {
        job->ended = job->started;
        job->ended_code = (int)number(line, "code");
        job->ended_step = (int64_t)number(line, "step");
    }
    if (strcmp(event, "hardware") == 0)
        take_beginning(job, line);
    if (number(line, "job") != (double)job->number)
        return ERR_OK;
    take_readiness(scan, event, number(line, "time"));
    if (start)
        job->started = (int)number(line, "attempt");
    if (start || end)
        job->unstarted = 0;
    if (reason != NULL && strcmp(reason, JOB_UNSTARTED) == 0)
        job->unstarted++;
    if (end || json_is_true(progress)) {
        job->futile = job->silenced = job->gains = 0;
        job->begun_step = -1;
    }
    job->silenced += json_object_get(line, "silent") != NULL;
    job->futile += json_is_false(progress);
    return ERR_OK;
}

/* Those since `since_s`, or those before, of bad or slow ones. A node that turned out well meanwhile is
 * no less in the list: that one check passed is no proof, and a day is short. */
static enum err list_bad(const struct job_scan *scan, double since_s,
                         bool lately, bool slow, char **out)
{
    struct buffer text = { 0 };
    enum err rc = ERR_OK;
    for (size_t i = 0; i < scan->count; i++) {
        if ((scan->bad[i].time_s >= since_s) != lately ||
            scan->bad[i].slow != slow)
            continue;
        if (text.bytes > 0)
            TRY_OUT(buffer_add(&text, ",", 1));
        TRY_OUT(
            buffer_add(&text, scan->bad[i].name, strlen(scan->bad[i].name)));
    }
    if (text.bytes > 0)
        TRY_OUT(buffer_add(&text, "", 1));
out:
    if (rc != ERR_OK)
        buffer_free(&text);
    assert(rc == ERR_OK || text.data == NULL);
    *out = (char *)text.data;
    return rc;
}

enum err ledger_job_read(const char *run_dir, int64_t number,
                         struct ledger_job *out)
{
    *out = (struct ledger_job){ .number = number,
                                .local_step = -1,
                                .begun_step = -1 };
    struct job_scan scan = { .job = out };
    double since_s = clock_wall() - LEDGER_EXCLUDED_S;
    enum err rc =
        ledger_each_line(run_dir, "ledger.jsonl", 0, take_decision, &scan);
    if (rc != ERR_DATA) /* of a run that has not begun */
        TRY_OUT(rc);
    if (scan.local_job != (double)number)
        out->local_step = -1;
    TRY_OUT(list_bad(&scan, since_s, true, false, &out->excluded));
    TRY_OUT(list_bad(&scan, since_s, false, false, &out->expired));
    TRY_OUT(list_bad(&scan, since_s, true, true, &out->slow));
out:
    free(scan.bad);
    return rc;
}

void ledger_job_free(struct ledger_job *job)
{
    free(job->excluded);
    free(job->expired);
    free(job->slow);
}
