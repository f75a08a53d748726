/* All figures of a report as JSON, for programs: a list of runs, each with all that
 * the page shows of it. Steps are at most 1000 buckets as
 * columns, so that a program reads what the eye sees; whoever wants every step
 * has metrics.jsonl. A number that is not known is null, and every key is always
 * there. */
#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/report/report_impl.h"

#define BUCKETS 1000

static json_t *seconds(int64_t us)
{
    return json_real((double)us / 1e6);
}

/* Those that have their own names there. */
#define NUMBERS(X)                                                             \
    X(loss), X(loss_min), X(eval_loss), X(eval_best), X(tokens_per_s), X(mfu), \
        X(step_ms), X(work_ms), X(work_ms_max), X(wait_ms_max), X(loader_ms),  \
        X(slowest_rank), X(waiting_rank), X(loader_rank), X(wall_s),           \
        X(goodput), X(device_hours), X(cost), X(energy_j), X(tokens_per_j),    \
        X(stall_mean_s), X(stall_max_s), X(memory_planned), X(memory_peak)

static json_t *figures_json(const struct report_figures *f)
{
    json_t *out = json_object();
#define PUT(name) json_object_set_new(out, #name, jsontext_real(f->name))
    NUMBERS(PUT);
#undef PUT
    json_object_set_new(out, "rank_spread", jsontext_real(f->spread));
    json_object_set_new(out, "eval_best_step", json_integer(f->eval_best_step));
    json_object_set_new(out, "commits", json_integer(f->commits));
    json_object_set_new(out, "commit_bytes", json_integer(f->commit_bytes));
    json_object_set_new(out, "excluded_nodes", json_integer(f->excluded));
    return out;
}

static json_t *time_json(const int64_t us[RUN_TIMES])
{
    json_t *out = json_object();
    for (int k = 0; k < RUN_TIMES; k++)
        json_object_set_new(out, run_time_names[k], seconds(us[k]));
    return out;
}

static json_t *attempts_json(const struct run_history *run)
{
    json_t *out = json_array();
    for (size_t i = 0; i < run->attempt_count; i++) {
        const struct run_attempt *a = &run->attempts[i];
        json_array_append_new(
            out,
            json_pack("{s:i, s:o, s:o, s:i, s:i, s:I, s:I, s:I, s:i, s:o?, "
                      "s:I, s:I, s:o}",
                      "attempt", a->number, "start", seconds(a->start_us),
                      "end", seconds(a->end_us), "ranks", a->ranks, "nodes",
                      a->nodes, "from_step", (json_int_t)a->from_step,
                      "last_step", (json_int_t)a->last_step, "wasted_steps",
                      (json_int_t)a->wasted_steps, "code", a->code, "reason",
                      jsontext_string(a->reason), "memory_planned",
                      (json_int_t)a->memory_planned, "memory_peak",
                      (json_int_t)a->memory_peak, "seconds",
                      time_json(a->time_us)));
    }
    return out;
}

static json_t *events_json(const struct run_history *run)
{
    json_t *out = json_array();
    for (size_t i = 0; i < run->event_count; i++) {
        const struct run_event *e = &run->events[i];
        json_array_append_new(out, json_pack("{s:o?, s:o, s:i, s:o?, s:o?}",
                                             "event", jsontext_string(e->name),
                                             "time", seconds(e->time_us),
                                             "attempt", e->attempt, "node",
                                             jsontext_string(e->node), "reason",
                                             jsontext_string(e->text)));
    }
    return out;
}

static json_t *results_json(const struct run_history *run)
{
    json_t *evals = json_array(), *tasks = json_array();
    for (size_t i = 0; i < run->eval_count; i++)
        json_array_append_new(evals,
                              json_pack("{s:I, s:o, s:f}", "step",
                                        (json_int_t)run->evals[i].step, "loss",
                                        jsontext_real(run->evals[i].loss),
                                        "seconds", run->evals[i].seconds));
    for (size_t i = 0; i < run->task_count; i++)
        json_array_append_new(
            tasks, json_pack("{s:I, s:o?, s:I, s:f}", "step",
                             (json_int_t)run->tasks[i].step, "task",
                             jsontext_string(run->tasks[i].name), "examples",
                             (json_int_t)run->tasks[i].examples, "accuracy",
                             run->tasks[i].accuracy));
    return json_pack("{s:o, s:O?, s:o}", "evaluations", evals, "sets",
                     run->sets, "tasks", tasks);
}

static json_t *stat_json(const struct run_stat *stat)
{
    return json_pack("[o, o, o]", jsontext_real(run_stat_mean(stat)),
                     jsontext_real(stat->min), jsontext_real(stat->max));
}

/* For each value a list of [mean, least, largest], beside the list of steps. */
static enum err steps_json(const struct run_history *run, json_t **out)
{
    struct run_bucket *list = NULL;
    size_t count = 0;
    TRY(run_history_buckets(run, BUCKETS, &list, &count));
    *out = json_object();
    json_t *steps = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(steps, json_integer(list[i].last));
    json_object_set_new(*out, "step", steps);
    for (int v = 0; v < RUN_VALUES; v++) {
        json_t *values = json_array();
        for (size_t i = 0; i < count; i++)
            json_array_append_new(values, list[i].of[v].count > 0
                                              ? stat_json(&list[i].of[v])
                                              : json_null());
        json_object_set_new(*out, run_value_names[v], values);
    }
    free(list);
    return ERR_OK;
}

static json_t *settings_json(const struct run_history *run)
{
    json_t *out = json_object();
    for (size_t i = 0; i < run->setting_count; i++) {
        json_t *key = jsontext_string(run->settings[i].key);
        json_object_set_new(out, json_string_value(key),
                            jsontext_string(run->settings[i].value));
        json_decref(key);
    }
    return out;
}

static enum err run_json(const struct report *report, int number_of,
                         json_t **out)
{
    const struct run_history *run = report->runs[number_of];
    json_t *steps = NULL;
    TRY(steps_json(run, &steps));
    *out = json_pack(
        "{s:o?, s:o?, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o}",
        "run", jsontext_string(report->names[number_of]), "dir",
        jsontext_string(run->dir), "last_step", (json_int_t)run->last_step,
        "tokens", (json_int_t)run->tokens, "replayed_steps",
        (json_int_t)run->replayed_steps, "skipped_lines",
        (json_int_t)run->skipped_lines, "device", report_device(run), "figures",
        figures_json(&report->figures[number_of]), "seconds",
        time_json(run->time_us), "attempts", attempts_json(run), "events",
        events_json(run), "results", results_json(run), "steps", steps,
        "settings", settings_json(run));
    return *out != NULL ? ERR_OK : err_set(ERR_MEMORY, "out of memory");
}

enum err report_json(const struct report *report, const char *path)
{
    assert(report->run_count > 0);
    enum err rc = ERR_OK;
    char *text = NULL;
    json_t *runs = json_array();
    for (int r = 0; r < report->run_count; r++) {
        json_t *run = NULL;
        TRY_OUT(run_json(report, r, &run));
        json_array_append_new(runs, run);
    }
    TRY_OUT(jsontext_make(runs, 1, &text));
    TRY_OUT(fsio_write_atomic(path, text, strlen(text)));
out:
    free(text);
    json_decref(runs);
    return rc;
}
