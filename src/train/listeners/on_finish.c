/* Listener: ends a run by the rules of `finish` (finish_settings.h), as if that
 * had been its length. Rank 0.
 *
 * A rule is judged in batch_end, after evaluations, and what it has seen is in
 * every checkpoint (state["finish"], a list in the order of the rules). A rule
 * that is met ends the run after the step that follows, in every attempt the
 * same one. An evaluation that a stop signal has left out is not judged. */
#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/globs.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/tracking/tracking_record.h"
#include "src/train/settings/finish_settings.h"
#include "src/train/run/run.h"

#define KEY "finish"

#define ROW(group, type, field, ...)                                           \
    SETTINGS_ROW(offsetof(struct finish_##group, field), #field, type,         \
                 __VA_ARGS__),
#define COUNT(schema) (int)(sizeof(schema) / sizeof(schema)[0])
static const struct setting early_stop_schema[] = { EARLY_STOP_SETTINGS(ROW) };
static const struct setting threshold_schema[] = { THRESHOLD_SETTINGS(ROW) };
const struct settings_kind finish_kinds[] = {
    [FINISH_EARLY_STOP] = { "early_stop", "when a figure gets no better",
                            early_stop_schema, COUNT(early_stop_schema) },
    [FINISH_THRESHOLD] = { "threshold", "when a figure is beyond a value",
                           threshold_schema, COUNT(threshold_schema) },
    { 0 },
};

struct rule {
    int kind; /* enum finish_kind */
    union {
        struct finish_early_stop early_stop;
        struct finish_threshold threshold;
    } settings;
    const char *metric; /* lent by settings, as all that follow */
    enum finish_better better;
    int64_t patience; /* steps */
    bool judged;      /* in this attempt */
    double best;      /* NaN: none yet */
    int64_t best_step;
};

struct on_finish {
    const struct run *run; /* lent */
    struct rule *rules;
    int count;
    int64_t met; /* the step after which a rule was met; -1: none was */
    char why[EVENTS_WHY]; /* which one, and by what figure; empty likewise */
};

/* --- which figures there are --- */

#define GIVEN(text) ((text)[0] != '\0')
/* X(name, globs of figures, unless, why there are none); plug-ins may have
 * others. */
#define FIGURES(X)                                                             \
    X(steps,                                                                   \
      "train/loss train/lr train/grad_norm train/tokens train/loss_tokens "    \
      "train/skipped_batches throughput/*_per_sec throughput/device/mfu* "     \
      "watch/* "                                                               \
      "time/step time/loader time/train time/remaining",                       \
      true, "")                                                                \
    X(evaluations, "eval/loss time/eval", GIVEN(s->data.eval),                 \
      "data.eval is empty")                                                    \
    X(gauntlet, "eval/gauntlet/*", GIVEN(s->eval.gauntlet),                    \
      "eval.gauntlet is empty")                                                \
    X(sets, "eval/*/loss", GIVEN(s->eval.sets), "eval.sets is empty")          \
    X(tasks, "eval/*-shot", GIVEN(s->eval.tasks) || GIVEN(s->eval.gauntlet),   \
      "eval.tasks and eval.gauntlet are empty")                                \
    X(experts, "train/balance_loss experts/*", s->model.experts > 0,           \
      "model.experts is 0")                                                    \
    X(mixture, "data/*/tokens", GIVEN(s->data.mixture),                        \
      "data.mixture is empty")                                                 \
    X(norms, "norm/*", s->monitor.norms.value > 0, "monitor.norms is 0ba")     \
    X(activations, "activation/*", s->monitor.activations.value > 0,           \
      "monitor.activations is 0ba")                                            \
    X(system, "system/* gpu/* energy_j", s->monitor.system.value > 0,          \
      "monitor.system is 0ba")                                                 \
    X(memory, "memory/*", s->monitor.memory.value > 0, "monitor.memory is 0ba")

#define FIGURE_FUNCTION(name, globs, there, why)                               \
    static bool has_##name(const struct train_settings *s)                     \
    {                                                                          \
        (void)s;                                                               \
        return there;                                                          \
    }
#define FIGURE_ROW(name, globs, there, why) { globs, why, has_##name },
FIGURES(FIGURE_FUNCTION)
static const struct {
    const char *globs, *why;
    bool (*there)(const struct train_settings *s);
} figures[] = { FIGURES(FIGURE_ROW) };

static enum err check_metric(const struct train_settings *s, int number,
                             const char *metric)
{
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        if (!globs_match(figures[i].globs, metric))
            continue;
        return figures[i].there(s)
                   ? ERR_OK
                   : err_set(ERR_USAGE,
                             KEY ": rule %d watches %.128s, and %s: give it, "
                                 "or watch train/loss",
                             number, metric, figures[i].why);
    }
    if (strcmp(s->alone.plugins, "()") != 0 ||
        strstr(s->alone.algorithms, "name = \"plugin\"") != NULL)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   KEY ": rule %d watches \"%.128s\", and no run has a figure "
                       "of that name: those of TensorBoard are meant, such as "
                       "eval/loss or train/grad_norm",
                   number, metric);
}

static enum err read_rule(const struct train_settings *s, int index,
                          struct rule *rule)
{
    TRY(settings_list_item(train_settings_setting(KEY), s->alone.finish, index,
                           &rule->kind, &rule->settings));
    bool threshold = rule->kind == FINISH_THRESHOLD;
    rule->metric = threshold ? rule->settings.threshold.metric
                             : rule->settings.early_stop.metric;
    rule->better = threshold ? rule->settings.threshold.better
                             : rule->settings.early_stop.better;
    return ERR_OK;
}

enum err finish_check(const struct train_settings *s)
{
    struct rule rule;
    int count = 0;
    TRY(settings_list_count(train_settings_setting(KEY), s->alone.finish,
                            &count));
    for (int i = 0; i < count; i++) {
        TRY(read_rule(s, i, &rule));
        TRY(check_metric(s, i + 1, rule.metric));
    }
    return ERR_OK;
}

/* --- rules --- */

static enum err set_rule(struct rule *rule, const struct run *run)
{
    rule->best = NAN;
    if (rule->kind == FINISH_THRESHOLD)
        return ERR_OK;
    return err_prefix(units_steps(rule->settings.early_stop.patience,
                                  &run->plan.rates, &rule->patience),
                      KEY ": early_stop: patience");
}

static enum err on_finish_create(void *self, const struct run *run)
{
    struct on_finish *on = self;
    const struct setting *setting = train_settings_setting(KEY);
    const char *list = run->settings.alone.finish;
    on->run = run;
    on->met = -1;
    TRY(settings_list_count(setting, list, &on->count));
    TRY(new_zeroed(&on->rules, (size_t)on->count + 1));
    for (int i = 0; i < on->count; i++) {
        TRY(read_rule(&run->settings, i, &on->rules[i]));
        TRY(set_rule(&on->rules[i], run));
    }
    return ERR_OK;
}

static void on_finish_destroy(void *self)
{
    struct on_finish *on = self;
    free(on->rules);
}

/* What the step has of this name. */
static bool find(const struct step_record *step, const char *name,
                 double *value)
{
    *value = step->loss;
    if (strcmp(name, "train/loss") == 0)
        return step->loss_tokens > 0;
    const struct tracking_record *record = tracking_list_record(step->scalars);
    for (int i = 0; i < record->count; i++)
        if (strcmp(record->scalars[i].name, name) == 0) {
            *value = record->scalars[i].value;
            return true;
        }
    return false;
}

static bool is_better(const struct rule *rule, double value, double than)
{
    return rule->better == FINISH_LOWER ? value < than : value > than;
}

/* Is the rule met by this value, after this step? */
static bool judge(struct rule *rule, double value, int64_t step)
{
    assert(rule->patience >= 0);
    if (rule->kind == FINISH_THRESHOLD)
        return is_better(rule, value, rule->settings.threshold.value);
    double delta = rule->settings.early_stop.min_delta;
    double bound = rule->best + (rule->better == FINISH_LOWER ? -delta : delta);
    /* no number is better than any, and any than none */
    if (isnan(rule->best) ? !isnan(value) : is_better(rule, value, bound)) {
        rule->best = value;
        rule->best_step = step;
    }
    return step - rule->best_step >= rule->patience;
}

/* The reason is the rule that was met. */
static void meet(struct on_finish *on, int number, double value, int64_t step)
{
    const struct rule *rule = &on->rules[number];
    assert(on->met < 0 && number < on->count);
    on->met = step;
    if (rule->kind == FINISH_THRESHOLD)
        snprintf(on->why, sizeof on->why,
                 "finish, rule %d (threshold): %.128s was %.6g after step "
                 "%lld, beyond %.6g",
                 number + 1, rule->metric, value, (long long)step,
                 rule->settings.threshold.value);
    else
        snprintf(on->why, sizeof on->why,
                 "finish, rule %d (early_stop): after step %lld %.128s had not "
                 "been better than %.6g for %lld steps",
                 number + 1, (long long)step, rule->metric, rule->best,
                 (long long)(step - rule->best_step));
}

/* A figure that a plug-in or this machine does not have would never be heard of.
 */
static void tell_idle(const struct on_finish *on)
{
    for (int i = 0; i < on->count && on->met < 0; i++)
        if (!on->rules[i].judged)
            log_warn("finish: rule %d was never judged: no step had a figure "
                     "\"%s\"",
                     i + 1, on->rules[i].metric);
}

static enum err on_finish_handle(void *self, enum event event,
                                 const struct step_record *step,
                                 struct asks *asks)
{
    struct on_finish *on = self;
    if (event == EVENT_BATCH_ASK) {
        if (on->met >= 0 && step->step > on->met)
            events_ask_finish(asks, "%s", on->why);
        return ERR_OK;
    }
    if (event == EVENT_FIT_END) {
        if (step->finished)
            tell_idle(on);
        return ERR_OK;
    }
    for (int i = 0; i < on->count && on->met < 0; i++) {
        double value;
        if (!find(step, on->rules[i].metric, &value))
            continue;
        on->rules[i].judged = true;
        if (!judge(&on->rules[i], value, step->step))
            continue;
        meet(on, i, value, step->step);
        if (!step->finished)
            log_info("%s: the next step is the last", on->why);
    }
    return ERR_OK;
}

static enum err on_finish_store(const void *self, json_t *state)
{
    const struct on_finish *on = self;
    if (on->count == 0)
        return ERR_OK;
    json_t *list = json_array();
    for (int i = 0; i < on->count && list != NULL; i++)
        json_array_append_new(
            list,
            json_pack("{s:s, s:o, s:I}", "metric", on->rules[i].metric, "best",
                      isfinite(on->rules[i].best) ? json_real(on->rules[i].best)
                                                  : json_null(),
                      "best_step", (json_int_t)on->rules[i].best_step));
    json_t *own = json_pack("{s:I, s:s, s:o, s:s}", "met", (json_int_t)on->met,
                            "list", on->run->settings.alone.finish, "rules",
                            list, "why", on->why);
    return run_put(state, KEY, own);
}

/* What other rules have seen says nothing to these; and a run that was ended and
 * is to go on begins to watch anew. */
static enum err on_finish_restore(void *self, const json_t *state)
{
    struct on_finish *on = self;
    const json_t *own = json_object_get(state, KEY);
    const json_t *list = json_object_get(own, "rules");
    const char *then_list = json_string_value(json_object_get(own, "list"));
    bool goes_on = json_object_get(state, "ended_early") != NULL &&
                   !on->run->position.ended_early;
    if (goes_on || then_list == NULL ||
        strcmp(then_list, on->run->settings.alone.finish) != 0 ||
        (int)json_array_size(list) != on->count)
        return ERR_OK;
    for (int i = 0; i < on->count; i++) {
        const json_t *then = json_array_get(list, (size_t)i);
        const char *metric = json_string_value(json_object_get(then, "metric"));
        const json_t *best = json_object_get(then, "best");
        if (metric == NULL || strcmp(metric, on->rules[i].metric) != 0)
            continue;
        on->rules[i].best =
            json_is_number(best) ? json_number_value(best) : NAN;
        on->rules[i].best_step =
            json_integer_value(json_object_get(then, "best_step"));
    }
    on->met = json_integer_value(json_object_get(own, "met"));
    const char *why = json_string_value(json_object_get(own, "why"));
    snprintf(on->why, sizeof on->why, "%s",
             why != NULL ? why : "a rule of finish was met");
    return ERR_OK;
}

const struct listener_ops on_finish_ops = {
    LISTENER_OF(struct on_finish), .create = on_finish_create,
    .destroy = on_finish_destroy,  .handle = on_finish_handle,
    .store = on_finish_store,      .restore = on_finish_restore
};
