/* The table of a state's parts, and those of them that are the run's own: its
 * position, what it computes with, how it has ended. Tensors are no part of it:
 * the replica lists those. */
#include "src/train/state/state_parts.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/jsontext.h"
#include "src/base/log.h"
#include "src/data/set/dataset.h"
#include "src/train/algorithms/algorithms_state.h"
#include "src/train/start/start.h"

/* --- position --- */

static enum err position_store(const struct state_run *its, json_t *state)
{
    const struct run *run = its->run;
    char hash[65];
    assert(run->position.step >= 0 && run->position.elapsed_s >= 0.0);
    TRY(train_settings_hash(&run->settings, hash));
    json_t *all = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:i}", "run_uuid", run->uuid,
        "code_version", TESSERA_VERSION, "config_sha256", hash, "step",
        (json_int_t)run->position.step, "samples",
        (json_int_t)(run->position.step * run->settings.train.global_batch),
        "tokens", (json_int_t)run_tokens(run), "elapsed_s",
        run->position.elapsed_s, "lr0", run->position.lr0, "attempt",
        run->attempt);
    int failed = all == NULL || json_object_update(state, all) != 0;
    json_decref(all);
    return failed ? err_set(ERR_MEMORY, "out of memory") : ERR_OK;
}

static const char *uuid_of(const json_t *state)
{
    const char *uuid = json_string_value(json_object_get(state, "run_uuid"));
    return uuid != NULL ? uuid : "";
}

static enum err position_restore(struct state_run *its, const json_t *state)
{
    struct run *run = its->run;
    double elapsed_s = json_number_value(json_object_get(state, "elapsed_s"));
    if (elapsed_s < 0.0)
        return err_set(ERR_CHECKPOINT,
                       "the checkpoint's elapsed_s is %g: go on from another "
                       "one",
                       elapsed_s);
    snprintf(run->uuid, sizeof run->uuid, "%s", uuid_of(state));
    run->position.step = its->step;
    run->position.elapsed_s = elapsed_s;
    run->position.lr0 = json_number_value(json_object_get(state, "lr0"));
    return ERR_OK;
}

static enum err position_take(struct state_run *its, const json_t *state)
{
    (void)state;
    its->run->position.step = its->step;
    return ERR_OK;
}

/* --- what must not change --- */

static enum err fixed_store(const struct state_run *its, json_t *state)
{
    return run_put(state, "fixed", start_fixed_state(its->run));
}

/* Weights that tessera-hf has imported look like a run's first checkpoint, but
 * have neither settings nor an optimizer. */
static enum err check_run(const struct run *run, const json_t *state)
{
    const json_t *source = json_object_get(state, "source");
    const char *dir = run->settings.run.dir;
    const char *path = json_string_value(json_object_get(source, "path"));
    if (source == NULL)
        return ERR_OK;
    return err_set(ERR_CHECKPOINT,
                   "run.dir: %s holds imported weights (of %s), not a run: "
                   "name another run.dir, and start from these with "
                   "model.weights = %s",
                   dir, path != NULL ? path : "?", dir);
}

static enum err fixed_accept(struct state_run *its, const json_t *state)
{
    TRY(check_run(its->run, state));
    return start_fixed_check(its->run, state);
}

static enum err about_store(const struct state_run *its, json_t *state)
{
    return run_put(state, "about", on_checkpoint_about(its->run));
}

/* --- arithmetic --- */

static enum err arithmetic_store(const struct state_run *its, json_t *state)
{
    return run_put(state, "arithmetic", json_incref(its->arithmetics));
}

static enum err arithmetic_restore(struct state_run *its, const json_t *state)
{
    json_t *list = json_object_get(state, "arithmetic");
    json_decref(its->arithmetics);
    its->arithmetics =
        json_is_array(list) ? json_deep_copy(list) : json_array();
    return its->arithmetics != NULL ? ERR_OK
                                    : err_set(ERR_MEMORY, "out of memory");
}

static bool is_cpu(const char *arithmetic)
{
    return strncmp(arithmetic, "cpu", 3) == 0;
}

/* Where the version of sums stands, which older ones lack. */
static const char *sums_of(const char *arithmetic)
{
    const char *sums = strstr(arithmetic, ", sums ");
    return sums != NULL ? sums : "";
}

/* What gives the checkpoint's bits. */
static const char *arithmetic_remedy(const char *then, const char *now)
{
    if ((is_cpu(then) && is_cpu(now)) ||
        strcmp(sums_of(then), sums_of(now)) != 0)
        return "finish the run with the version that began it";
    if (is_cpu(then) != is_cpu(now))
        return "set hardware.backend to match";
    return "go on with such GPUs and libraries";
}

static enum err arithmetic_accept(struct state_run *its, const json_t *state)
{
    const struct run *run = its->run;
    const struct train_settings *s = &run->settings;
    const json_t *list = json_object_get(state, "arithmetic");
    size_t count = json_array_size(list);
    const char *then =
        count > 0 ? json_string_value(json_array_get(list, count - 1)) : NULL;
    if (then != NULL && strcmp(then, run->engine.arithmetic) == 0)
        return ERR_OK;
    then = then != NULL ? then : "?";
    if (s->parallel.determinism == DETERMINISM_FAST ||
        s->parallel.allow_arithmetic_change) {
        if (run->rank == 0)
            log_warn("arithmetic changes from %s to %s: bits will differ "
                     "from an undisturbed run",
                     then, run->engine.arithmetic);
        return ERR_OK;
    }
    return err_set(
        ERR_CHECKPOINT,
        "the checkpoint was computed with %s, this start would use %s: %s, "
        "or parallel.allow_arithmetic_change=true to give up the promise of "
        "the same bits, which its checkpoints record",
        then, run->engine.arithmetic,
        arithmetic_remedy(then, run->engine.arithmetic));
}

/* --- the end --- */

/* What the run was to last. */
static json_t *duration_text(const struct run *run)
{
    char text[40];
    units_format(run->settings.train.max_duration, text, sizeof text);
    return json_string(text);
}

static enum err end_store(const struct state_run *its, json_t *state)
{
    const struct run *run = its->run;
    if (!run->position.ended_early)
        return ERR_OK;
    TRY(run_put(state, "ended_early", duration_text(run)));
    return run_put(state, "ended_why", jsontext_string(run->now.record.why));
}

/* A run that has ended early goes on where it is to last longer than it was
 * then. */
static enum err end_restore(struct state_run *its, const json_t *state)
{
    struct run *run = its->run;
    json_t *now = duration_text(run);
    const json_t *then = json_object_get(state, "ended_early");
    const char *why = json_string_value(json_object_get(state, "ended_why"));
    run->position.ended_early = then != NULL && json_equal(then, now) != 0;
    if (run->position.ended_early)
        snprintf(run->now.record.why, sizeof run->now.record.why, "%s",
                 why != NULL ? why : "it was ended early");
    if (then != NULL && run->rank == 0)
        log_info(run->position.ended_early
                     ? "the run was ended early, at step %lld: change "
                       "train.max_duration to go on"
                     : "the run was ended early, at step %lld, and goes on, as "
                       "train.max_duration has changed",
                 (long long)run->position.step);
    json_decref(now);
    return ERR_OK;
}

/* --- short texts --- */

static enum err choices_store(const struct state_run *its, json_t *state)
{
    const char *choices = its->run->engine.choices;
    return choices != NULL ? run_put(state, "choices", json_string(choices))
                           : ERR_OK;
}

static enum err choices_restore(struct state_run *its, const json_t *state)
{
    const char *choices = json_string_value(json_object_get(state, "choices"));
    free(its->run->engine.choices);
    its->run->engine.choices = choices != NULL ? strdup(choices) : NULL;
    return choices == NULL || its->run->engine.choices != NULL
               ? ERR_OK
               : err_set(ERR_MEMORY, "out of memory");
}

/* The loss, if the step was evaluated: for ckpt_index_best(). */
static enum err eval_store(const struct state_run *its, json_t *state)
{
    const struct dataset *data = its->run->inputs.eval_data;
    const struct step_eval *eval = &its->run->now.record.eval;
    if (data == NULL)
        return ERR_OK;
    TRY(run_put(state, "eval_set", json_string(dataset_id(data))));
    return eval->step == its->run->position.step
               ? run_put(state, "eval", step_eval_json(eval))
               : ERR_OK;
}

static enum err eval_restore(struct state_run *its, const json_t *state)
{
    struct run *run = its->run;
    const char *eval = json_string_value(json_object_get(state, "eval_set"));
    snprintf(run->inputs.eval_before, sizeof run->inputs.eval_before, "%s",
             eval != NULL ? eval : "");
    return ERR_OK;
}

/* --- those that others keep --- */

#define STORE(name, call)                                                      \
    static enum err name(const struct state_run *its, json_t *state)           \
    {                                                                          \
        return call;                                                           \
    }
#define RESTORE(name, call)                                                    \
    static enum err name(struct state_run *its, const json_t *state)           \
    {                                                                          \
        return call;                                                           \
    }

STORE(groups_store, trainer_groups_store(its->run, state))
RESTORE(groups_accept, trainer_groups_check(its->run, state))
RESTORE(groups_restore, (trainer_groups_restore(its->run, state), ERR_OK))
STORE(data_store, trainer_data_store(its->run, state))
RESTORE(data_restore, trainer_data_restore(its->run, its->step, state))
STORE(text_store, trainer_weights_store(its->run, state))
RESTORE(text_restore, trainer_weights_restore(its->run, state))
STORE(base_store, trainer_base_store(its->run, state))
RESTORE(base_restore, trainer_base_restore(its->run, state))
RESTORE(base_take, trainer_base_take(its->run, state, its->other))
STORE(moments_store, trainer_moments_store(its->run, state))
RESTORE(moments_restore, trainer_moments_restore(its->run, its->step, state))
STORE(fp8_store, trainer_fp8_store(its->run->engine.fp8, state))
RESTORE(fp8_restore, trainer_fp8_restore(its->run->engine.fp8, state))
STORE(methods_store, algorithms_store(&its->run->algorithms, state))
RESTORE(methods_restore, algorithms_restore(its->run, state))
RESTORE(methods_take,
        algorithms_take(its->run, state,
                        its->run->settings.checkpoint.load_ignore))
STORE(listeners_store, events_store(&its->run->events, state))
RESTORE(listeners_restore, events_restore(&its->run->events, state))

STORE(rollbacks_store, rollback_store(&its->run->position.rollbacks, state))
/* The ledger's are those of the run that goes on. */
RESTORE(rollbacks_accept,
        rollback_restore(&its->run->position.rollbacks, its->step, state,
                         its->run->position.rollback_events,
                         its->other != NULL ? its->run->uuid : uuid_of(state)))

/* --- the table --- */

/* What others keep is judged behind what must not change, and restored behind
 * the position; the base behind the text, which names it. */
static const struct state_part parts[] = {
    { "position", STATE_ANEW, position_store, NULL, position_restore,
      position_take },
    { "fixed", STATE_REFUSED, fixed_store, fixed_accept, NULL, NULL },
    { "about", STATE_ANEW, about_store, NULL, NULL, NULL },
    { "groups", STATE_ANEW, groups_store, groups_accept, groups_restore, NULL },
    { "arithmetic", STATE_REFUSED, arithmetic_store, arithmetic_accept,
      arithmetic_restore, NULL },
    { "ended_early", STATE_ANEW, end_store, NULL, end_restore, NULL },
    { "choices", STATE_ANEW, choices_store, NULL, choices_restore, NULL },
    { "eval_set", STATE_ANEW, eval_store, NULL, eval_restore, NULL },
    { "fp8", STATE_REFUSED, fp8_store, NULL, fp8_restore, fp8_restore },
    { "rollbacks", STATE_ANEW, rollbacks_store, rollbacks_accept,
      rollbacks_accept, rollbacks_accept },
    { "data", STATE_ANEW, data_store, NULL, data_restore, data_restore },
    { "text", STATE_ANEW, text_store, NULL, text_restore, text_restore },
    { "base", STATE_REFUSED, base_store, NULL, base_restore, base_take },
    { "moments", STATE_ANEW, moments_store, NULL, moments_restore,
      moments_restore },
    { "algorithms", STATE_REFUSED, methods_store, NULL, methods_restore,
      methods_take },
    { "listeners", STATE_ANEW, listeners_store, NULL, listeners_restore,
      listeners_restore },
};

#define PARTS (int)(sizeof parts / sizeof parts[0])

const struct state_part *state_parts(int *count)
{
    *count = PARTS;
    return parts;
}

enum err state_parts_store(const struct state_run *its, json_t **out)
{
    enum err rc = ERR_OK;
    assert(json_is_array(its->arithmetics));
    json_t *state = json_object();
    for (int i = 0; i < PARTS; i++)
        TRY_OUT(parts[i].store(its, state));
    *out = json_incref(state);
out:
    json_decref(state);
    return rc;
}

enum err state_parts_accept(void *arg, int64_t step, const json_t *state)
{
    struct state_run *its = arg;
    assert(its->arithmetics == NULL); /* judged before it is restored */
    its->step = step;
    for (int i = 0; i < PARTS; i++)
        if (parts[i].accept != NULL &&
            (its->other == NULL || parts[i].take != NULL))
            TRY(parts[i].accept(its, state));
    return ERR_OK;
}

/* Whether the settings are those of the state: the user is told where changes
 * are told. */
static enum err tell_changes(const struct run *run, const json_t *state)
{
    char hash[65];
    const char *old =
        json_string_value(json_object_get(state, "config_sha256"));
    TRY(train_settings_hash(&run->settings, hash));
    if (run->rank == 0 && (old == NULL || strcmp(old, hash) != 0))
        log_warn("settings have changed since this checkpoint was saved: "
                 "ledger.jsonl tells which (event \"settings\")");
    return ERR_OK;
}

enum err state_parts_restore(struct state_run *its, int64_t step,
                             const json_t *state)
{
    const struct run *run = its->run;
    assert(step >= 0);
    its->step = step;
    for (int i = 0; i < PARTS; i++) {
        enum err (*call)(struct state_run *, const json_t *) =
            its->other != NULL ? parts[i].take : parts[i].restore;
        if (call != NULL)
            TRY(call(its, state));
    }
    if (its->other != NULL)
        return ERR_OK;
    if (run->rank == 0)
        log_info("resumed at step %lld (attempt %d, %d ranks)", (long long)step,
                 run->attempt, run->ranks);
    return tell_changes(run, state);
}
