/* The listener that judges whether a step's loss or gradient is far beyond
 * those before, and keeps the history by which it judges. An update that it
 * asks to leave out is left out by trainer_step.c, and where it asks to go back
 * train_run.c does.
 *
 * The median of the last steps and not their mean, which one spike would move for
 * as long as it is among them. All ranks judge by the same sums and come to the
 * same answer, so nothing has to be exchanged before the update. */
#include "src/train/listeners/on_spike.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/jsontext.h"
#include "src/base/log.h"
#include "src/base/real.h"
#include "src/job/ledger.h"
#include "src/train/listeners/spike_budget.h"
#include "src/train/run/run.h"

#define KEY "spike_history"

/* The median, of an even number of values the upper one. */
static double median(const double *values, int count)
{
    double sorted[ON_SPIKE_STEPS];
    assert(count > 0 && count <= ON_SPIKE_STEPS);
    memcpy(sorted, values, (size_t)count * sizeof sorted[0]);
    return real_median_upper(sorted, count);
}

static void take(struct on_spike *spike, double loss, double norm)
{
    if (spike->count == ON_SPIKE_STEPS) {
        size_t bytes = (ON_SPIKE_STEPS - 1) * sizeof spike->loss[0];
        memmove(spike->loss, spike->loss + 1, bytes);
        memmove(spike->norm, spike->norm + 1, bytes);
        spike->count--;
    }
    spike->loss[spike->count] = loss;
    spike->norm[spike->count] = norm;
    spike->count++;
}

bool on_spike_judge(struct on_spike *spike, double loss_factor,
                    double norm_factor, double loss, double norm, char *text,
                    size_t size)
{
    int count = spike->count;
    double loss_median = count > 0 ? median(spike->loss, count) : loss;
    double norm_median = count > 0 ? median(spike->norm, count) : norm;
    take(spike, loss, norm);
    if (count == 0)
        return false;
    if (loss_factor > 0 && loss > loss_factor * loss_median &&
        loss > loss_median + ON_SPIKE_NATS)
        snprintf(text, size,
                 "loss %.4g is %.3g times the median of the last %d steps, "
                 "%.4g (train.spike_loss = %g)",
                 loss, loss / loss_median, count, loss_median, loss_factor);
    else if (norm_factor > 0 && norm > norm_factor * norm_median)
        snprintf(text, size,
                 "gradient norm %.4g is %.3g times the median of the last %d "
                 "steps, %.4g (train.spike_norm = %g)",
                 norm, norm / norm_median, count, norm_median, norm_factor);
    else
        return false;
    return true;
}

static json_t *numbers(const double *values, int count)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        jsontext_append(&array, json_real(values[i]));
    return array;
}

enum err on_spike_store(const struct on_spike *spike, json_t *state)
{
    if (spike->count == 0)
        return ERR_OK;
    json_t *history =
        json_pack("{s:o, s:o}", "loss", numbers(spike->loss, spike->count),
                  "grad_norm", numbers(spike->norm, spike->count));
    return run_put(state, KEY, history);
}

static bool read_numbers(const json_t *array, int count, double *out)
{
    if (!json_is_array(array) || json_array_size(array) != (size_t)count)
        return false;
    for (int i = 0; i < count; i++) {
        const json_t *value = json_array_get(array, (size_t)i);
        out[i] = json_number_value(value);
        if (!json_is_number(value) || !isfinite(out[i]))
            return false;
    }
    return true;
}

enum err on_spike_restore(struct on_spike *spike, const json_t *state)
{
    const json_t *history = json_object_get(state, KEY);
    const json_t *loss = json_object_get(history, "loss");
    struct on_spike read = { 0 };
    if (history == NULL) {
        *spike = read;
        return ERR_OK;
    }
    size_t count = json_array_size(loss);
    read.count = count <= ON_SPIKE_STEPS ? (int)count : -1;
    if (read.count < 0 || !read_numbers(loss, read.count, read.loss) ||
        !read_numbers(json_object_get(history, "grad_norm"), read.count,
                      read.norm))
        return err_set(ERR_CHECKPOINT, "the checkpoint's " KEY
                                       " is no history of losses and gradient "
                                       "norms: go on from another one");
    *spike = read;
    return ERR_OK;
}

int on_spike_medians(const struct on_spike *spike, double *loss, double *norm)
{
    *loss = spike->count > 0 ? median(spike->loss, spike->count) : NAN;
    *norm = spike->count > 0 ? median(spike->norm, spike->count) : NAN;
    return spike->count;
}

/* --- the listener --- */

struct listening_spike {
    struct run *run; /* lent */
    struct on_spike history;
    struct spike_budget budget;
};

/* Where the answer is to do nothing, `cause` says nothing. */
enum answer {
    ANSWER_NOTHING,
    ANSWER_WARN,
    ANSWER_STOP,
    ANSWER_SKIP,
    ANSWER_ROLLBACK
};

static enum err spike_create(void *self, struct run *run)
{
    struct listening_spike *spike = self;
    const struct train_settings *s = &run->settings;
    spike->run = run;
    spike->budget.limit = s->train.spike_budget;
    return run_steps(run, "train.spike_window", s->train.spike_window,
                     &spike->budget.window);
}

static enum answer judge(struct listening_spike *spike,
                         const struct step_record *step,
                         struct rollback_cause *cause)
{
    static const enum answer of_spike[] = { ANSWER_WARN, ANSWER_STOP,
                                            ANSWER_SKIP, ANSWER_ROLLBACK };
    static const enum answer of_nan[] = { ANSWER_STOP, ANSWER_SKIP,
                                          ANSWER_ROLLBACK };
    const struct train_settings *s = &spike->run->settings;
    *cause = (struct rollback_cause){ .kind = step->diverged ? "nan" : "spike",
                                      .from = step->step,
                                      .loss = step->loss,
                                      .grad_norm = step->grad_norm };
    if (step->diverged) {
        snprintf(cause->text, sizeof cause->text,
                 "loss %.4g, gradient norm %.4g (train.on_nan)", step->loss,
                 step->grad_norm);
        return of_nan[s->train.on_nan];
    }
    /* a batch without a token to learn from says nothing */
    if (step->loss_tokens == 0 ||
        !on_spike_judge(&spike->history, s->train.spike_loss,
                        s->train.spike_norm, step->loss, step->grad_norm,
                        cause->text, sizeof cause->text))
        return ANSWER_NOTHING;
    return of_spike[s->train.on_spike];
}

/* `before`: the history without the step. */
static enum err check_budget(const struct listening_spike *spike,
                             const struct on_spike *before,
                             const struct rollback_cause *cause)
{
    const struct spike_budget *budget = &spike->budget;
    const struct rollbacks *rollbacks = &spike->run->position.rollbacks;
    char done[160];
    double loss, norm;
    int64_t used = spike_budget_used(budget, rollbacks, cause->from);
    if (used < budget->limit)
        return ERR_OK;
    spike_budget_text(budget, rollbacks, cause->from, done, sizeof done);
    int steps = on_spike_medians(before, &loss, &norm);
    return err_set(ERR_NUMERIC,
                   "step %lld: %s; medians of %d steps: loss %.4g, norm %.4g; "
                   "done in the last %lld steps: %s. train.spike_budget = %lld "
                   "allows no more: lower optimizer.lr, check the data from "
                   "batch %lld on, or raise it",
                   (long long)cause->from + 1, cause->text, steps, loss, norm,
                   (long long)budget->window, done, (long long)budget->limit,
                   (long long)rollback_batch(rollbacks, cause->from));
}

/* Rank 0's, once for a batch: a step that is done again after a restart is left
 * out again. */
static enum err record_skip(const struct run *run,
                            const struct rollback_cause *cause)
{
    size_t i;
    json_t *event, *events = NULL;
    const char *dir = run->settings.run.dir;
    int64_t batch = rollback_batch(&run->position.rollbacks, cause->from);
    bool found = false;
    TRY(ledger_events(dir, "skip", &events));
    json_array_foreach(events, i, event)
    {
        const json_t *its = json_object_get(event, "batch");
        const char *uuid =
            json_string_value(json_object_get(event, "run_uuid"));
        found = found || (uuid != NULL && strcmp(uuid, run->uuid) == 0 &&
                          json_is_integer(its) &&
                          json_integer_value(its) == (json_int_t)batch);
    }
    json_decref(events);
    if (found)
        return ERR_OK;
    event = rollback_cause_json(cause, run->uuid);
    json_object_set_new(event, "batch", json_integer(batch));
    json_object_set_new(event, "batches", json_integer(1));
    return ledger_append(dir, "skip", run->attempt, event);
}

static enum err spike_judge(struct listening_spike *spike,
                            const struct step_record *step, struct asks *asks)
{
    enum err rc = ERR_OK;
    struct run *run = spike->run;
    struct on_spike before = spike->history;
    struct rollback_cause cause;
    static const char *const what[] = { [ANSWER_WARN] = "",
                                        [ANSWER_SKIP] =
                                            ": the update is left out",
                                        [ANSWER_ROLLBACK] =
                                            ": the run goes back" };
    assert(step->step == run->position.step && !run->now.back.asked);
    enum answer answer = judge(spike, step, &cause);
    long long number = (long long)step->step + 1;
    if (answer == ANSWER_NOTHING)
        return ERR_OK;
    if (answer == ANSWER_STOP)
        return err_set(ERR_NUMERIC,
                       "step %lld: %s: stopped before the update by "
                       "train.on_spike; lower optimizer.lr, check the data, or "
                       "set train.on_spike=skip",
                       number, cause.text);
    if (answer != ANSWER_WARN)
        TRY(check_budget(spike, &before, &cause));
    if (step->rank == 0)
        log_warn("step %lld: %s%s", number, cause.text, what[answer]);
    if (answer == ANSWER_ROLLBACK) {
        cause.asked = true;
        run->now.back = cause;
    }
    if (answer != ANSWER_SKIP)
        return ERR_OK;
    events_ask(asks, ASK_SKIP, 1);
    spike_budget_skip(&spike->budget, step->step);
    if (step->rank == 0)
        rc = record_skip(run, &cause);
    return comm_agree(run->comm, rc);
}

/* Batches that are behind the run and not in its weights. */
static void tell(const struct listening_spike *spike,
                 const struct step_record *step)
{
    const struct run *run = spike->run;
    const struct train_settings *s = &run->settings;
    if (s->train.on_spike < ON_SPIKE_SKIP && s->train.on_nan == ON_NAN_STOP)
        return;
    int64_t batches =
        spike->budget.left_out +
        rollback_left_out(&run->position.rollbacks, step->step - 1);
    tracking_list_add(step->scalars, "train/skipped_batches", (double)batches);
}

static enum err spike_handle(void *self, enum event event,
                             const struct step_record *step, struct asks *asks)
{
    struct listening_spike *spike = self;
    if (event == EVENT_AFTER_TRAIN_BATCH)
        return spike_judge(spike, step, asks);
    if (step_record_logs(step))
        tell(spike, step);
    return ERR_OK;
}

static enum err spike_store(const void *self, json_t *state)
{
    const struct listening_spike *spike = self;
    TRY(spike_budget_store(&spike->budget, state));
    return on_spike_store(&spike->history, state);
}

static enum err spike_restore(void *self, const json_t *state)
{
    struct listening_spike *spike = self;
    TRY(spike_budget_restore(&spike->budget, state));
    return on_spike_restore(&spike->history, state);
}

const struct listener_ops on_spike_ops = {
    LISTENER_OF(struct listening_spike), .create_together = spike_create,
    .handle = spike_handle, .store = spike_store, .restore = spike_restore
};
