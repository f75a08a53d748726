/* Finds settings that were given and change nothing: tables of what settings
 * and items of lists need, and one loop over all settings. A row for a new
 * setting is all there is to add.
 *
 * Given means: by file or command line, and not as the default or the preset has
 * it. The first row that matches tells, so that a setting has one reason. What was
 * told at the attempt before is not told again as long as the setting is the same;
 * where the run's length has changed, what depends on it is looked at anew. */
#include "src/train/start/start_settings.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "src/base/globs.h"
#include "src/base/log.h"
#include "src/tracking/tracking_sink.h"

/* --- what settings need --- */

/* Whether intervals end together at a step before the last. */
static bool meet(const struct trainer_schedule *plan, struct duration a,
                 struct duration b)
{
    int64_t first = 0, second = 0;
    int64_t last = plan->max_steps >= 0 ? plan->max_steps : INT64_MAX;
    if (units_steps(a, &plan->rates, &first) != ERR_OK ||
        units_steps(b, &plan->rates, &second) != ERR_OK || second < 1)
        return false;
    int64_t common = first; /* their greatest common divisor */
    for (int64_t rest = second, next; rest > 0; rest = next) {
        next = common % rest;
        common = rest;
    }
    return first > 0 && first / common <= (last - 1) / second;
}

#define OR_HOOK(group, type, field, ...) || s->hooks.field[0] != '\0'
#define GIVEN(text) ((text)[0] != '\0')
#define MENDS(setting, ON)                                                     \
    ((setting) == ON##_SKIP || (setting) == ON##_ROLLBACK)

/* X(name, globs of keys, why they change nothing, unless): s are the settings,
 * `run` is all that is known. */
#define NEEDS(X)                                                               \
    X(eval, "eval.interval", "data.eval is empty", GIVEN(s->data.eval))        \
    X(tasks, "eval.tasks_*", "eval.tasks and eval.gauntlet are empty",         \
      GIVEN(s->eval.tasks) || GIVEN(s->eval.gauntlet))                         \
    X(gauntlet, "eval.tasks_data", "eval.gauntlet is empty",                   \
      GIVEN(s->eval.gauntlet) || !GIVEN(s->eval.tasks))                        \
    X(prompts, "generate.*", "generate.prompts is empty",                      \
      GIVEN(s->generate.prompts))                                              \
    X(batch_end, "hooks.interval", "hooks.on_batch_end is empty",              \
      GIVEN(s->hooks.on_batch_end))                                            \
    X(hooks, "hooks.timeout_s", "there is no hook",                            \
      false HOOK_COMMANDS(OR_HOOK))                                            \
    X(mlflow, "tracking.experiment tracking.mlflow_register",                  \
      "tracking.mlflow is empty", GIVEN(s->tracking.mlflow))                   \
    X(named, "tracking.run_name",                                              \
      "tracking.mlflow and tracking.prometheus are empty",                     \
      GIVEN(s->tracking.mlflow) || GIVEN(s->tracking.prometheus))              \
    X(tracks, "tracking.queue tracking.finish_s", "there is no tracker",       \
      tracking_wanted(&s->tracking))                                           \
    X(best, "checkpoint.keep_best", "data.eval is empty", GIVEN(s->data.eval)) \
    X(keeps, "checkpoint.keep_*", "checkpoint.keep = 0 keeps all",             \
      s->checkpoint.keep > 0)                                                  \
    X(meets, "checkpoint.keep_best",                                           \
      "only a step that is evaluated and saved can be the best, and "          \
      "eval.interval and checkpoint.interval meet at none before the last, "   \
      "unless by chance: make one a multiple of the other, in ba",             \
      run->plan == NULL ||                                                     \
          meet(run->plan, s->eval.interval, s->checkpoint.interval))           \
    X(mirror, "checkpoint.mirror_*", "checkpoint.mirror is empty",             \
      GIVEN(s->checkpoint.mirror))                                             \
    X(parity, "checkpoint.redundancy_group",                                   \
      "it is of checkpoint.redundancy = xor",                                  \
      s->checkpoint.redundancy == REDUNDANCY_XOR)                              \
    X(zero3, "parallel.prefetch", "it is of parallel.strategy = zero3",        \
      s->parallel.strategy == REPLICA_AUTO ||                                  \
          s->parallel.strategy == REPLICA_ZERO3)                               \
    X(gpu, "hardware.graphs hardware.fallback", "the processor computes",      \
      s->hardware.backend != BACKEND_CPU)                                      \
    X(begun, "data.change parallel.allow_arithmetic_change",                   \
      "the run begins here", run->plan == NULL || run->before != NULL)         \
    X(replaces, "watch.cooldown_s watch.replacements",                         \
      "watch.on_straggler is neither sweep nor replace",                       \
      s->watch.on_straggler >= WATCH_SWEEP)                                    \
    X(mends, "train.spike_budget train.spike_window",                          \
      "neither train.on_spike nor train.on_nan is skip or rollback",           \
      MENDS(s->train.on_spike, ON_SPIKE) || MENDS(s->train.on_nan, ON_NAN))    \
    X(spikes, "train.on_spike",                                                \
      "train.spike_loss and train.spike_norm are 0, so that nothing is a "     \
      "spike",                                                                 \
      s->train.spike_loss > 0 || s->train.spike_norm > 0)                      \
    X(rope, "model.rope_theta", "model.positions is not rope",                 \
      s->model.positions == POSITIONS_ROPE)                                    \
    X(alibi, "model.alibi_bias_max", "model.positions is not alibi",           \
      s->model.positions == POSITIONS_ALIBI)                                   \
    X(baseline, "model.init_std", "model.init is not baseline",                \
      s->model.init == MODEL_INIT_BASELINE)                                    \
    X(weights, "model.weights_tokenizer",                                      \
      "neither model.weights nor checkpoint.load is given",                    \
      GIVEN(train_settings_from(s).path))                                      \
    X(fresh, "model.init model.init_std model.init_embedding_std",             \
      "the weights are those of model.weights or checkpoint.load",             \
      !GIVEN(train_settings_from(s).path) ||                                   \
          GIVEN(train_settings_from(s).ignore))                                \
    X(width, "model.expansion_ratio", "model.ffn_width says another width",    \
      false)                                                                   \
    X(experts,                                                                 \
      "model.router_* model.balance_weight model.experts_top_k "               \
      "monitor.experts",                                                       \
      "model.experts is 0", s->model.experts > 0)

#define NEED_FUNCTION(name, keys, why, met)                                    \
    static bool has_##name(const struct start_idle *run,                       \
                           const struct train_settings *s)                     \
    {                                                                          \
        (void)run;                                                             \
        (void)s;                                                               \
        return met;                                                            \
    }
#define NEED_ROW(name, keys, why, met) { keys, why, has_##name },
NEEDS(NEED_FUNCTION)
static const struct need {
    const char *keys, *why;
    bool (*met)(const struct start_idle *run, const struct train_settings *s);
} needs[] = { NEEDS(NEED_ROW) };

/* --- what optimizers and schedules do without --- */

/* Whether scheduler.FIELD changes nothing. */
static bool schedule_without(const struct train_settings *s, const char *field)
{
    return strcmp(field, "scale_warmup") == 0
               ? s->scheduler.scale == 1.0
               : !schedule_uses(s->scheduler.name, field);
}

/* The choice of the setting's group that goes without it; NULL: none. */
static const char *goes_without(const struct train_settings *s, const char *key)
{
    if (globs_match("optimizer.name optimizer.lr optimizer.weight_decay "
                    "optimizer.groups",
                    key))
        return NULL;
    if (strncmp(key, "optimizer.", 10) == 0 &&
        !optimizer_uses(optimizer_at(s->optimizer.name), key + 10) &&
        !train_groups_use(&s->groups, key + 10))
        return optimizer_names[s->optimizer.name];
    return strncmp(key, "scheduler.", 10) == 0 && schedule_without(s, key + 10)
               ? schedule_kind_names[s->scheduler.name]
               : NULL;
}

/* --- items of lists --- */

/* At or behind the last step, as far as that is known. */
static bool is_behind(const struct start_idle *run, struct duration at)
{
    int64_t steps = 0;
    return run->plan != NULL && run->plan->max_steps >= 0 &&
           units_steps(at, &run->plan->rates, &steps) == ERR_OK &&
           steps >= run->plan->max_steps;
}

static bool is_before(const struct start_idle *run, struct duration a,
                      struct duration b)
{
    int64_t first = 0, second = 0;
    return a.unit == b.unit
               ? a.value <= b.value
               : run->plan != NULL &&
                     units_steps(a, &run->plan->rates, &first) == ERR_OK &&
                     units_steps(b, &run->plan->rates, &second) == ERR_OK &&
                     first <= second;
}

#define BEHIND "it starts behind the run's end"
/* X(list, kind, number, why it changes nothing, if): `a` are the item's
 * settings. */
#define IDLE_ITEMS(X)                                                          \
    X(algorithm, ema, 1, BEHIND, is_behind(run, a->start))                     \
    X(algorithm, swa, 1, BEHIND, is_behind(run, a->start))                     \
    X(algorithm, swa, 2, "it ends before it starts",                           \
      is_before(run, a->end, a->start))                                        \
    X(algorithm, label_smoothing, 1, "smoothing is 0", a->smoothing == 0)      \
    X(algorithm, z_loss, 1, "weight is 0", a->weight == 0)                     \
    X(algorithm, layer_freezing, 1, BEHIND, is_behind(run, a->start))          \
    X(algorithm, gradient_noise, 1, "eta is 0", a->eta == 0)                   \
    X(algorithm, seq_length_warmup, 1, "min_seq_len is all of max_seq_len",    \
      a->min_seq_len ==                                                        \
          (a->max_seq_len > 0 ? a->max_seq_len : run->settings->data.seq_len)) \
    X(algorithm, stochastic_depth, 1, "drop_rate is 0", a->drop_rate == 0)     \
    X(algorithm, sam, 1, "rho is 0", a->rho == 0)                              \
    X(algorithm, sam, 2, "interval is longer than the run",                    \
      run->plan != NULL && run->plan->max_steps >= 0 &&                        \
          a->interval > run->plan->max_steps)                                  \
    X(algorithm, selective_backprop, 1, BEHIND, is_behind(run, a->start))      \
    X(algorithm, selective_backprop, 2, "it ends before it starts",            \
      is_before(run, a->end, a->start))                                        \
    X(algorithm, selective_backprop, 3, "keep is 1", a->keep == 1)             \
    X(algorithm, embedding_scaling, 1, "gradient is 1", a->gradient == 1)      \
    X(finish, early_stop, 1, "patience is longer than the run",                \
      is_behind(run, a->patience))

#define ITEM_FUNCTION(list, kind, number, why, idle)                           \
    static bool is_idle_##kind##_##number(const struct start_idle *run,        \
                                          const void *item)                    \
    {                                                                          \
        const struct list##_##kind *a = item;                                  \
        (void)run;                                                             \
        return idle;                                                           \
    }
#define ITEM_ROW(list, kind, number, why, idle)                                \
    { list##_kinds, #kind, why, is_idle_##kind##_##number },
IDLE_ITEMS(ITEM_FUNCTION)
static const struct idle_item {
    const struct settings_kind *kinds;
    const char *kind, *why;
    bool (*idle)(const struct start_idle *run, const void *item);
} idle_items[] = { IDLE_ITEMS(ITEM_ROW) };

/* --- the loop --- */

static void warn(void *arg, const char *text)
{
    (void)arg;
    log_warn("%s", text);
}

struct teller {
    const struct start_idle *run;
    start_idle_tell tell;
    void *arg;
};

static void tell(const struct teller *teller, const char *what, const char *why)
{
    char text[512];
    snprintf(text, sizeof text, "%s is given, but changes nothing: %s", what,
             why);
    teller->tell(teller->arg, text);
}

/* Whether it was told by the attempt before. */
static bool is_told(const struct start_idle *run, const struct setting *setting)
{
    char was[SETTINGS_VALUE_BYTES], is[SETTINGS_VALUE_BYTES];
    if (run->before == NULL)
        return false;
    settings_text(setting, run->before, was);
    settings_text(setting, run->settings, is);
    return strcmp(was, is) == 0;
}

static void look_at(const struct teller *teller, const struct setting *setting)
{
    char why[96];
    const struct train_settings *s = teller->run->settings;
    const char *without = goes_without(s, setting->key);
    if (without != NULL) {
        snprintf(why, sizeof why, "%s does not use it", without);
        tell(teller, setting->key, why);
        return;
    }
    for (size_t n = 0; n < sizeof needs / sizeof needs[0]; n++)
        if (globs_match(needs[n].keys, setting->key) &&
            !needs[n].met(teller->run, s)) {
            tell(teller, setting->key, needs[n].why);
            return;
        }
}

static void look_at_items(const struct teller *teller,
                          const struct setting *setting)
{
    _Alignas(max_align_t) char item[4 * SETTINGS_TEXT_BYTES]; /* any kind's */
    int count = 0, kind = 0;
    const char *text = (const char *)teller->run->settings + setting->offset;
    assert(setting->type == SETTING_LIST && setting->kinds != NULL);
    if (settings_list_count(setting, text, &count) != ERR_OK)
        return;
    for (int i = 0; i < count; i++) {
        if (settings_list_item(setting, text, i, &kind, item) != ERR_OK)
            return;
        for (size_t n = 0; n < sizeof idle_items / sizeof idle_items[0]; n++) {
            const struct idle_item *row = &idle_items[n];
            char what[96];
            if (row->kinds != setting->kinds ||
                strcmp(row->kind, setting->kinds[kind].name) != 0 ||
                !row->idle(teller->run, item))
                continue;
            snprintf(what, sizeof what, "%s: %s", setting->key, row->kind);
            tell(teller, what, row->why);
        }
    }
}

static bool is_there(const struct params *params, const char *glob)
{
    for (int p = 0; p < params->count; p++)
        if (globs_match(glob, params->list[p].name))
            return true;
    return false;
}

/* An item with a glob that matches is fine, of which the others may be
 * misspelt. */
static void look_at_globs(const struct teller *teller)
{
    char text[GLOBS_GLOB_MAX + 96], glob[GLOBS_GLOB_MAX];
    struct params *params = NULL;
    const struct train_groups *groups = &teller->run->settings->groups;
    if (groups->count == 0 ||
        train_settings_params(teller->run->settings, &params) != ERR_OK)
        return;
    for (int i = 0; i < groups->count; i++)
        for (const char *rest = groups->list[i].match;
             globs_next(&rest, glob);) {
            snprintf(text, sizeof text,
                     "optimizer.groups: item %d: no tensor that trains is "
                     "named %s",
                     i + 1, glob);
            if (!is_there(params, glob))
                teller->tell(teller->arg, text);
        }
    params_destroy(params);
}

/* Groups of tensors: what their own optimizers do without. */
static void look_at_groups(const struct teller *teller)
{
    const struct train_groups *groups = &teller->run->settings->groups;
    look_at_globs(teller);
    for (int i = 0; i < groups->count; i++) {
        char what[96], why[96];
        if (groups->own[i].unused == NULL)
            continue;
        snprintf(what, sizeof what, "optimizer.groups: item %d: %s", i + 1,
                 groups->own[i].unused);
        snprintf(why, sizeof why, "%s does not use it",
                 groups->list[i].optimizer->name);
        tell(teller, what, why);
    }
}

/* Drops of the rate that never come. */
static void look_at_schedule(const struct teller *teller)
{
    const struct trainer_schedule *plan = teller->run->plan;
    char text[160];
    if (plan == NULL || plan->max_steps < 0)
        return;
    const struct schedule *schedule = &plan->schedule;
    if (schedule->warmup >= plan->max_steps) {
        snprintf(text, sizeof text,
                 "scheduler.warmup is %lld steps and the run has %lld: the "
                 "learning rate never reaches optimizer.lr",
                 (long long)schedule->warmup, (long long)plan->max_steps);
        teller->tell(teller->arg, text);
    }
    for (int i = 0; i < schedule->milestone_count; i++) {
        bool late = schedule->milestones[i] >= plan->max_steps;
        if (!late &&
            (i == 0 || schedule->milestones[i] > schedule->milestones[i - 1]))
            continue;
        snprintf(text, sizeof text,
                 "scheduler.milestones: number %d (step %lld) is %s", i + 1,
                 (long long)schedule->milestones[i],
                 late ? "not before the run's end: the rate does not drop there"
                      : "not behind the one before it");
        teller->tell(teller->arg, text);
    }
}

void start_idle(const struct start_idle *run, start_idle_tell tell_it,
                void *arg)
{
    const struct teller teller = { run, tell_it != NULL ? tell_it : warn, arg };
    const struct setting *length = train_settings_setting("train.max_duration");
    assert(run->settings != run->before);
    bool as_long = is_told(run, length);
    for (int i = 0; i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        bool told = is_told(run, setting);
        if (setting->type == SETTING_LIST && (!told || !as_long))
            look_at_items(&teller, setting);
        else if (run->settings->given[i] && !told)
            look_at(&teller, setting);
    }
    if (!is_told(run, train_settings_setting("optimizer.groups")))
        look_at_groups(&teller);
    if (!as_long)
        look_at_schedule(&teller);
}
