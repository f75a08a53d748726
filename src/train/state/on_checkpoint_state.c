/* A run's position and fixed settings as a checkpoint's state, and back.
 * Tensors are no part of it: the replica lists those. */
#include "src/train/state/on_checkpoint_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/jsontext.h"
#include "src/base/log.h"
#include "src/train/algorithms/algorithms_state.h"
#include "src/train/state/on_checkpoint_about.h"
#include "src/train/start/start_fixed.h"
#include "src/train/start/trainer_data.h"
#include "src/train/loop/trainer_fp8.h"
#include "src/train/start/trainer_groups.h"
#include "src/train/start/trainer_base.h"
#include "src/train/state/trainer_moments.h"
#include "src/train/start/trainer_weights.h"

/* What the run was to last. */
static json_t *duration_text(const struct trainer *trainer)
{
    char text[40];
    units_format(trainer->settings.train.max_duration, text, sizeof text);
    return json_string(text);
}

/* A run that has ended early goes on where it is to last longer than it was
 * then. */
static void restore_end(struct trainer *trainer, const json_t *state)
{
    json_t *now = duration_text(trainer);
    const json_t *then = json_object_get(state, "ended_early");
    const char *why = json_string_value(json_object_get(state, "ended_why"));
    trainer->ended_early = then != NULL && json_equal(then, now) != 0;
    if (trainer->ended_early)
        snprintf(trainer->record.why, sizeof trainer->record.why, "%s",
                 why != NULL ? why : "it was ended early");
    if (then != NULL && trainer->rank == 0)
        log_info(trainer->ended_early
                     ? "the run was ended early, at step %lld: change "
                       "train.max_duration to go on"
                     : "the run was ended early, at step %lld, and goes on, as "
                       "train.max_duration has changed",
                 (long long)trainer->step);
    json_decref(now);
}

enum err on_checkpoint_state_make(const struct trainer *trainer,
                                  json_t *arithmetics, json_t **out)
{
    char hash[65];
    enum err rc = train_settings_hash(&trainer->settings, hash);
    if (rc != ERR_OK)
        return rc;
    *out = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:i, s:O, s:o, s:o}",
        "run_uuid", trainer->run_uuid, "code_version", TESSERA_VERSION,
        "config_sha256", hash, "step", (json_int_t)trainer->step, "samples",
        (json_int_t)(trainer->step * trainer->settings.train.global_batch),
        "tokens", (json_int_t)trainer_tokens(trainer), "elapsed_s",
        trainer->elapsed_s, "lr0", trainer->lr0, "attempt", trainer->attempt,
        "arithmetic", arithmetics, "fixed", start_fixed_state(trainer), "about",
        on_checkpoint_about(trainer));
    if (*out != NULL && trainer->ended_early) {
        json_object_set_new(*out, "ended_early", duration_text(trainer));
        json_object_set_new(*out, "ended_why",
                            jsontext_string(trainer->record.why));
    }
    if (*out != NULL && trainer->choices != NULL)
        json_object_set_new(*out, "choices", json_string(trainer->choices));
    if (*out != NULL && trainer->eval_data != NULL)
        json_object_set_new(*out, "eval_set",
                            json_string(dataset_id(trainer->eval_data)));
    if (*out != NULL)
        rc = trainer_fp8_store(trainer->fp8, *out);
    if (*out != NULL && rc == ERR_OK)
        rc = rollback_store(&trainer->rollbacks, *out);
    if (*out != NULL && rc == ERR_OK)
        rc = trainer_data_store(trainer, *out);
    if (*out != NULL && rc == ERR_OK)
        rc = trainer_weights_store(trainer, *out);
    if (*out != NULL && rc == ERR_OK)
        rc = trainer_base_store(trainer, *out);
    if (*out != NULL && rc == ERR_OK)
        rc = trainer_moments_store(trainer, *out);
    if (*out != NULL && rc == ERR_OK)
        rc = trainer_groups_store(trainer, *out);
    if (*out != NULL && rc == ERR_OK)
        rc = algorithms_store(&trainer->algorithms, *out);
    if (*out != NULL && rc == ERR_OK)
        rc = events_store(&trainer->events, *out);
    return *out != NULL ? rc : err_set(ERR_MEMORY, "out of memory");
}

/* What the processor's results came from before they were the same everywhere:
 * "cpu/avx512 OpenBLAS 0.3.21 SkylakeX". */
static bool is_before_first(const char *arithmetic)
{
    return strncmp(arithmetic, "cpu/", 4) == 0;
}

static bool is_cpu(const char *arithmetic)
{
    return strncmp(arithmetic, "cpu", 3) == 0;
}

/* What gives the checkpoint's bits. */
static const char *arithmetic_remedy(const char *then, const char *now)
{
    if (is_before_first(then) || (is_cpu(then) && is_cpu(now)))
        return "finish the run with the version that began it";
    if (is_cpu(then) != is_cpu(now))
        return "set hardware.backend to match";
    return "go on with such GPUs and libraries";
}

static enum err check_arithmetic(const struct trainer *trainer,
                                 const json_t *state)
{
    const struct train_settings *s = &trainer->settings;
    const json_t *list = json_object_get(state, "arithmetic");
    size_t count = json_array_size(list);
    const char *then =
        count > 0 ? json_string_value(json_array_get(list, count - 1)) : NULL;
    if (then != NULL && strcmp(then, trainer->arithmetic) == 0)
        return ERR_OK;
    then = then != NULL ? then : "?";
    const char *before =
        is_before_first(then) ? ", Tessera's arithmetic before 1" : "";
    if (s->parallel.determinism == DETERMINISM_FAST ||
        s->parallel.allow_arithmetic_change) {
        if (trainer->rank == 0)
            log_warn("arithmetic changes from %s%s to %s: bits will differ "
                     "from an undisturbed run",
                     then, before, trainer->arithmetic);
        return ERR_OK;
    }
    return err_set(
        ERR_CHECKPOINT,
        "the checkpoint was computed with %s%s, this start would use %s: %s, "
        "or parallel.allow_arithmetic_change=true to give up the promise of "
        "the same bits, which its checkpoints record",
        then, before, trainer->arithmetic,
        arithmetic_remedy(then, trainer->arithmetic));
}

/* Weights that tessera-hf has imported look like a run's first checkpoint, but
 * have neither settings nor an optimizer. */
static enum err check_run(const struct trainer *trainer, const json_t *state)
{
    const json_t *source = json_object_get(state, "source");
    const char *dir = trainer->settings.run.dir;
    const char *path = json_string_value(json_object_get(source, "path"));
    if (source == NULL)
        return ERR_OK;
    return err_set(ERR_CHECKPOINT,
                   "run.dir: %s holds imported weights (of %s), not a run: "
                   "name another run.dir, and start from these with "
                   "model.weights = %s",
                   dir, path != NULL ? path : "?", dir);
}

enum err on_checkpoint_state_accept(void *arg, int64_t step,
                                    const json_t *state)
{
    struct trainer *trainer = arg;
    TRY(check_run(trainer, state));
    TRY(start_fixed_check(trainer, state));
    TRY(trainer_groups_check(trainer, state));
    TRY(check_arithmetic(trainer, state));
    const char *uuid = json_string_value(json_object_get(state, "run_uuid"));
    return rollback_restore(&trainer->rollbacks, step, state,
                            trainer->rollback_events, uuid != NULL ? uuid : "");
}

enum err on_checkpoint_state_restore(struct trainer *trainer, int64_t step,
                                     const json_t *state, json_t **arithmetics)
{
    char hash[65];
    enum err rc = train_settings_hash(&trainer->settings, hash);
    if (rc != ERR_OK)
        return rc;
    const char *uuid = json_string_value(json_object_get(state, "run_uuid"));
    const char *old =
        json_string_value(json_object_get(state, "config_sha256"));
    snprintf(trainer->run_uuid, sizeof trainer->run_uuid, "%s",
             uuid ? uuid : "");
    trainer->step = step;
    trainer->elapsed_s = json_number_value(json_object_get(state, "elapsed_s"));
    trainer->lr0 = json_number_value(json_object_get(state, "lr0"));
    trainer_groups_restore(trainer, state);
    restore_end(trainer, state);
    const char *eval = json_string_value(json_object_get(state, "eval_set"));
    snprintf(trainer->eval_before, sizeof trainer->eval_before, "%s",
             eval != NULL ? eval : "");
    const char *choices = json_string_value(json_object_get(state, "choices"));
    free(trainer->choices);
    trainer->choices = choices != NULL ? strdup(choices) : NULL;
    if (choices != NULL && trainer->choices == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    rc = trainer_data_restore(trainer, step, state);
    if (rc == ERR_OK)
        rc = trainer_weights_restore(trainer, state);
    if (rc == ERR_OK)
        rc = trainer_base_restore(trainer, state);
    if (rc == ERR_OK)
        rc = trainer_moments_restore(trainer, step, state);
    if (rc == ERR_OK)
        rc = trainer_fp8_restore(trainer->fp8, state);
    if (rc == ERR_OK)
        rc = algorithms_restore(trainer, state);
    if (rc == ERR_OK)
        rc = events_restore(&trainer->events, state);
    if (rc != ERR_OK)
        return rc;
    *arithmetics = json_deep_copy(json_object_get(state, "arithmetic"));
    if (trainer->rank == 0) {
        log_info("resumed at step %lld (attempt %d, %d ranks)", (long long)step,
                 trainer->attempt, trainer->ranks);
        if (old == NULL || strcmp(old, hash) != 0)
            log_warn("settings have changed since this checkpoint was saved: "
                     "ledger.jsonl tells which (event \"settings\")");
    }
    return ERR_OK;
}
