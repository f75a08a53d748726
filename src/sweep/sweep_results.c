/* Reads the runs of a sweep with src/report/run_history.h, and judges them.
 *
 * Two things make a run good, its quality and the time that it took, and there is
 * no rate at which one buys the other. So runs are not ranked by a score: those
 * are marked that nobody beats in both (the Pareto front). Quality is the best
 * that a run has had, time is that of its attempts, without what lay between them
 * and which the cluster decided. Only finished runs are compared; one that is half
 * done has spent half of its time and would be on the front for that. */
#include "src/sweep/sweep.h"

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/clean.h"
#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/base/units.h"
#include "src/base/exit_code.h"
#include "src/report/run_history.h"

static bool better(const struct sweep *sweep, double value, double than)
{
    if (isnan(value) || isnan(than))
        return isnan(than) && !isnan(value);
    return sweep->settings.better == SWEEP_LOWER ? value < than : value > than;
}

/* Is `value` the target or beyond it? */
static bool results_reaches(const struct sweep *sweep, double value)
{
    double target = sweep->settings.target;
    return target != 0 && !isnan(value) && !better(sweep, target, value);
}

/* Seconds in attempts up to this time; NaN: not known. */
static double seconds_until(const struct run_history *run, int attempt,
                            int64_t time_us)
{
    double seconds = 0;
    if (time_us == 0 || attempt < 0 || (size_t)attempt >= run->attempt_count)
        return NAN;
    for (int a = 0; a < attempt; a++)
        seconds +=
            (double)(run->attempts[a].end_us - run->attempts[a].start_us) / 1e6;
    return seconds + (double)(time_us - run->attempts[attempt].start_us) / 1e6;
}

/* The best value so far, and when the target was reached first. */
static void results_take(const struct sweep *sweep, double value,
                         double seconds, struct sweep_result *out)
{
    if (better(sweep, value, out->quality))
        out->quality = value;
    if (results_reaches(sweep, value) && isnan(out->to_target))
        out->to_target = seconds;
}

/* How often the metric is in the run. */
static size_t results_measure(const struct sweep *sweep,
                              const struct run_history *run,
                              struct sweep_result *out)
{
    const char *metric = sweep->settings.metric;
    size_t found = 0;
    if (strcmp(metric, "eval/loss") == 0)
        for (; found < run->eval_count; found++)
            results_take(sweep, run->evals[found].loss,
                         seconds_until(run, run->evals[found].attempt,
                                       run->evals[found].time_us),
                         out);
    else if (strcmp(metric, "train/loss") == 0)
        for (; found < run->recent_count; found++)
            results_take(sweep, run->recent[found].of[RUN_LOSS],
                         seconds_until(run, run->recent[found].attempt,
                                       run->recent[found].time_us),
                         out);
    else
        for (size_t i = 0; i < run->task_count; i++)
            if (strcmp(run->tasks[i].name, metric) == 0) {
                results_take(sweep, run->tasks[i].accuracy, NAN, out);
                found++;
            }
    return found;
}

static enum err no_metric(const struct sweep *sweep,
                          const struct run_history *run)
{
    char tasks[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < run->task_count && used < sizeof tasks; i++)
        if (run->tasks[i].step == run->tasks[0].step)
            used += (size_t)snprintf(tasks + used, sizeof tasks - used, ", %s",
                                     run->tasks[i].name);
    return err_set(ERR_USAGE, "metric: %s has no '%s'; it has train/loss%s%s",
                   run->dir, sweep->settings.metric,
                   run->eval_count > 0 ? ", eval/loss" : "", tasks);
}

enum err sweep_result(const struct sweep *sweep, int64_t number,
                      struct sweep_result *out)
{
    assert(number >= 0 && number < sweep->runs);
    char name[SWEEP_NAME_BYTES], path[FSIO_PATH_MAX], ledger[FSIO_PATH_MAX];
    struct run_history *run = NULL;
    struct stat st;
    enum err rc = ERR_OK;
    bool other = false;
    *out = (struct sweep_result){ .quality = NAN, .to_target = NAN };
    sweep_name(sweep, number, name);
    TRY(fsio_path(path, "%s/%s", sweep->settings.dir, name));
    TRY(fsio_path(ledger, "%s/ledger.jsonl", path));
    if (stat(ledger, &st) != 0)
        return ERR_OK;
    TRY(sweep_folder_other(sweep, number, &other));
    if (other) {
        out->state = SWEEP_OTHER;
        return ERR_OK;
    }
    TRY(run_history_create(path, &run));
    out->state = SWEEP_BEGUN;
    out->steps = run->last_step < 0 ? 0 : run->last_step;
    out->energy_j = run->energy_j;
    out->cost = run->device_hours * sweep->settings.price;
    for (size_t a = 0; a < run->attempt_count; a++)
        out->seconds +=
            (double)(run->attempts[a].end_us - run->attempts[a].start_us) / 1e6;
    if (run->attempt_count > 0) {
        const struct run_attempt *last = &run->attempts[run->attempt_count - 1];
        if (last->ended && last->code == EXIT_DONE)
            out->state = SWEEP_FINISHED;
        else if (last->ended &&
                 (last->code == EXIT_STOP || last->code == EXIT_USAGE))
            out->state = SWEEP_FAILED;
        if (out->state == SWEEP_FAILED)
            snprintf(out->reason, sizeof out->reason, "%.150s", last->reason);
    }
    if (results_measure(sweep, run, out) == 0 && out->state == SWEEP_FINISHED)
        rc = no_metric(sweep, run);
    run_history_destroy(run);
    return rc;
}

/* At most as dear and at least as good, and one of both more so. */
static bool results_beats(const struct sweep *sweep,
                          const struct sweep_result *a,
                          const struct sweep_result *b)
{
    if (isnan(a->quality) || better(sweep, b->quality, a->quality) ||
        a->seconds > b->seconds)
        return false;
    return better(sweep, a->quality, b->quality) || a->seconds < b->seconds;
}

void sweep_front(const struct sweep *sweep, struct sweep_result *results)
{
    /* every pair: 10^4 runs at the most */
    for (int64_t i = 0; i < sweep->runs; i++) {
        results[i].front =
            results[i].state == SWEEP_FINISHED && !isnan(results[i].quality);
        for (int64_t j = 0; j < sweep->runs && results[i].front; j++)
            results[i].front = results[j].state != SWEEP_FINISHED ||
                               !results_beats(sweep, &results[j], &results[i]);
    }
}

static const char *const state_names[] = { "not begun", "begun", "failed",
                                           "other", "finished" };

static void print_number(FILE *out, double value)
{
    if (isnan(value))
        clean_fprintf(out, "%11s", "-");
    else
        clean_fprintf(out, "%11.5g", value);
}

static void print_seconds(FILE *out, double seconds)
{
    clean_fprintf(out, "%10s", seconds > 0 ? UNITS_SECONDS(seconds) : "-");
}

/* Columns that are there where something is known of them. */
static void print_spent(const struct sweep *sweep, bool energy,
                        const struct sweep_result *r, FILE *out)
{
    if (energy)
        print_number(out, r->energy_j > 0 ? r->energy_j / 3.6e6 : NAN);
    if (sweep->settings.price > 0)
        print_number(out, r->cost);
}

/* The place of the next best behind those that are `done`. */
static int64_t next_best(const struct sweep *sweep,
                         const struct sweep_result *results, const bool *done)
{
    int64_t best = -1;
    for (int64_t i = 0; i < sweep->runs; i++)
        if (!done[i] && (best < 0 || better(sweep, results[i].quality,
                                            results[best].quality)))
            best = i;
    return best;
}

enum err sweep_print(const struct sweep *sweep,
                     const struct sweep_result *results, FILE *out)
{
    bool *done = NULL, energy = false;
    TRY(new_zeroed(&done, (size_t)sweep->runs));
    for (int64_t i = 0; i < sweep->runs; i++)
        energy |= results[i].energy_j > 0;
    clean_fprintf(out, "%c %10s%8s%11s%10s%10s%*s%*s  run\n", ' ', "state",
                  "steps", sweep->settings.metric, "time", "to target",
                  energy ? 11 : 0, energy ? "kWh" : "",
                  sweep->settings.price > 0 ? 11 : 0,
                  sweep->settings.price > 0 ? "cost" : "");
    for (int64_t n = 0; n < sweep->runs; n++) {
        int64_t i = next_best(sweep, results, done);
        const struct sweep_result *r = &results[i];
        char name[SWEEP_NAME_BYTES];
        assert(i >= 0);
        done[i] = true;
        sweep_name(sweep, i, name);
        clean_fprintf(out, "%c %10s%8lld", r->front ? '*' : ' ',
                      state_names[r->state], (long long)r->steps);
        print_number(out, r->quality);
        print_seconds(out, r->seconds);
        print_seconds(out, r->to_target);
        print_spent(sweep, energy, r, out);
        clean_fprintf(out, "  %s%s%s\n", name, r->reason[0] != '\0' ? ": " : "",
                      r->reason);
    }
    fputs("* no other finished run is as good in less time\n", out);
    free(done);
    return ERR_OK;
}

enum err sweep_json(const struct sweep *sweep,
                    const struct sweep_result *results, FILE *out)
{
    char *text = NULL;
    json_t *runs = json_array();
    for (int64_t i = 0; i < sweep->runs; i++) {
        const struct sweep_result *r = &results[i];
        char name[SWEEP_NAME_BYTES];
        json_t *settings = json_object();
        sweep_name(sweep, i, name);
        for (int a = 0; a < sweep->axis_count; a++)
            json_object_set_new(settings, sweep->axes[a].key,
                                jsontext_string(sweep_value(sweep, i, a)));
        json_array_append_new(
            runs,
            json_pack(
                "{s:s, s:o, s:s, s:I, s:o, s:f, s:o, s:o, s:o, s:b}", "run",
                name, "settings", settings, "state", state_names[r->state],
                "steps", (json_int_t)r->steps, "quality",
                jsontext_real(r->quality), "seconds", r->seconds,
                "seconds_to_target", jsontext_real(r->to_target), "energy_j",
                jsontext_real(r->energy_j > 0 ? r->energy_j : NAN), "cost",
                jsontext_real(sweep->settings.price > 0 ? r->cost : NAN),
                "front", (int)r->front));
    }
    json_t *all =
        json_pack("{s:s, s:o}", "metric", sweep->settings.metric, "runs", runs);
    enum err rc = jsontext_make(all, 2, &text);
    if (rc == ERR_OK)
        fputs(text, out);
    free(text);
    json_decref(all);
    return rc;
}
