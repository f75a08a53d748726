/* What a run has been evaluated to, and what it has written: eval.jsonl and
 * samples.jsonl. Lists are by step, and what an attempt finds at a step that is
 * there already is done again: it takes the place of all from that step on, so
 * that what is shown is one run and not its attempts over each other. */
#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/report/run_history_impl.h"

#define SAMPLE_BYTES_MAX 2000

static bool good_step(double step)
{
    return step >= 0 && step <= RUN_STEP_MAX && step == floor(step);
}

/* --- losses ---------------------------------------------------------------- */

static enum err keep_eval(struct run_history *history,
                          const struct run_eval *eval)
{
    struct run_reader *reader = history->reader;
    /* what an earlier attempt has found there or behind it is done again */
    while (history->eval_count > 0 &&
           history->evals[history->eval_count - 1].step >= eval->step)
        history->eval_count--;
    if (reader->evals_seen++ % reader->eval_stride != 0 &&
        history->eval_count > 0) {
        history->evals[history->eval_count - 1] = *eval;
        return ERR_OK;
    }
    if (history->eval_count == RUN_EVALS_MAX) {
        size_t kept = 0;
        for (size_t i = 0; i < RUN_EVALS_MAX; i += 2)
            history->evals[kept++] = history->evals[i];
        history->eval_count = kept;
        reader->eval_stride *= 2;
    }
    TRY(array_room(&history->evals, &reader->rooms.evals,
                   history->eval_count + 1));
    history->evals[history->eval_count++] = *eval;
    return ERR_OK;
}

/* When the step ended: of recent ones. */
static int64_t time_of(const struct run_history *history, int64_t step)
{
    for (size_t i = history->recent_count; i-- > 0;)
        if (history->recent[i].step <= step)
            return history->recent[i].step == step ? history->recent[i].time_us
                                                   : 0;
    return 0;
}

/* The seconds are no step's time: training waited. */
static enum err take_loss(struct run_history *history, const double *values)
{
    struct run_eval eval = {
        .step = (int64_t)values[1],
        .time_us = time_of(history, (int64_t)values[1]),
        .loss = fabs(values[2]) < 1e300 ? values[2] : NAN,
        .seconds = fmax(0, values[3]),
    };
    TRY(run_reader_attempt(history, values[0], &eval.attempt));
    if (eval.attempt < 0) {
        history->skipped_lines++;
        return ERR_OK;
    }
    struct run_attempt *attempt = &history->attempts[eval.attempt];
    struct run_clock *clock = &history->reader->clocks[eval.attempt];
    int64_t us = run_reader_us(eval.seconds);
    attempt->evaluation_us = run_reader_add(attempt->evaluation_us, us);
    run_account_stall(&clock->evals, eval.step, us);
    return keep_eval(history, &eval);
}

/* --- tasks ----------------------------------------------------------------- */

static enum err keep_task(struct run_history *history, int64_t step,
                          const json_t *task)
{
    const json_t *accuracy = json_object_get(task, "accuracy");
    const char *name = json_string_value(json_object_get(task, "task"));
    struct run_task kept = {
        .step = step,
        .accuracy = json_number_value(accuracy),
        .examples = json_integer_value(json_object_get(task, "examples")),
    };
    if (name == NULL || !json_is_number(accuracy) ||
        history->task_count == RUN_TASKS_MAX)
        return ERR_OK;
    run_reader_text(kept.name, sizeof kept.name, name);
    TRY(array_room(&history->tasks, &history->reader->rooms.tasks,
                   history->task_count + 1));
    history->tasks[history->task_count++] = kept;
    return ERR_OK;
}

static enum err take_tasks(struct run_history *history, const char *line,
                           size_t bytes, int64_t step)
{
    enum err rc = ERR_OK;
    json_t *object = json_loadb(line, bytes, 0, NULL);
    const json_t *tasks = json_object_get(object, "tasks");
    if (!json_is_array(tasks))
        history->skipped_lines++;
    while (history->task_count > 0 &&
           history->tasks[history->task_count - 1].step >= step)
        history->task_count--;
    for (size_t i = 0; rc == ERR_OK && i < json_array_size(tasks); i++)
        rc = keep_task(history, step, json_array_get(tasks, i));
    json_decref(object);
    return rc;
}

enum err run_results_eval(void *arg, const char *line, size_t bytes)
{
    static const char *const keys[] = { "attempt", "step", "eval_loss",
                                        "seconds" };
    static const char loss[] = "\"eval_loss\"";
    struct run_history *history = arg;
    double values[4];
    if (!line_tail_numbers(line, bytes, keys, 4, values) ||
        !good_step(values[1])) {
        history->skipped_lines++;
        return ERR_OK;
    }
    if (memmem(line, bytes, loss, sizeof loss - 1) != NULL) {
        json_t *object = json_loadb(line, bytes, 0, NULL);
        json_decref(history->sets);
        history->sets = json_incref(json_object_get(object, "sets"));
        json_decref(object);
        return take_loss(history, values);
    }
    return take_tasks(history, line, bytes, (int64_t)values[1]);
}

/* --- samples --------------------------------------------------------------- */

static char *copy_text(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    size_t bytes = json_string_length(value);
    if (!json_is_string(value))
        return NULL;
    return strndup(json_string_value(value),
                   bytes < SAMPLE_BYTES_MAX ? bytes : SAMPLE_BYTES_MAX);
}

/* The oldest makes room. */
static void drop_sample(struct run_history *history, size_t at)
{
    assert(at < history->sample_count);
    free(history->samples[at].prompt);
    free(history->samples[at].text);
    history->sample_count--;
    memmove(&history->samples[at], &history->samples[at + 1],
            (history->sample_count - at) * sizeof history->samples[0]);
}

static enum err keep_sample(struct run_history *history,
                            const struct run_sample *sample)
{
    size_t count = history->sample_count;
    for (size_t i = count; i-- > 0;)
        if (history->samples[i].step > sample->step ||
            (history->samples[i].step == sample->step &&
             history->samples[i].number == sample->number))
            drop_sample(history, i);
    if (history->sample_count == RUN_SAMPLES_MAX) {
        drop_sample(history, 0);
        history->samples_left_out++;
    }
    TRY(array_room(&history->samples, &history->reader->rooms.samples,
                   history->sample_count + 1));
    history->samples[history->sample_count++] = *sample;
    return ERR_OK;
}

enum err run_results_sample(void *arg, const char *line, size_t bytes)
{
    struct run_history *history = arg;
    json_t *object = json_loadb(line, bytes, 0, NULL);
    double step = json_number_value(json_object_get(object, "step"));
    struct run_sample sample = {
        .prompt = copy_text(object, "prompt"),
        .text = copy_text(object, "text"),
        .number = json_integer_value(json_object_get(object, "number")),
    };
    enum err rc = ERR_OK;
    if (sample.text == NULL || !good_step(step)) {
        history->skipped_lines++;
    } else {
        sample.step = (int64_t)step;
        rc = keep_sample(history, &sample);
        if (rc == ERR_OK)
            sample = (struct run_sample){ .prompt = NULL };
    }
    free(sample.prompt);
    free(sample.text);
    json_decref(object);
    return rc;
}
