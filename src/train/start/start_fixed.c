/* The settings that must stay what they were at the start of a run: stored in
 * every checkpoint, checked on every resume.
 *
 * Which these are is a flag of a setting's row. A row that is younger than some
 * runs is stored only where it is not its default, which is how older runs had it;
 * so what a checkpoint lacks is compared with the default, in both directions.
 * What decides the order of samples may change under data.change, and the
 * microbatch where the settings leave it to the program. Everything else that
 * differs is an error that names one setting and both values. */
#include "src/train/start/start.h"
#include "src/base/jsontext.h"
#include "src/data/set/dataset.h"
#include "src/formats/weights_ckpt_config.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The settings that have the flag, by their names. */
static json_t *add(json_t *fixed, const struct train_settings *settings,
                   unsigned flag)
{
    for (int i = 0; i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        if ((setting->flags & flag) != 0 &&
            ((flag & TRAIN_STAYS_IF_GIVEN) == 0 ||
             !train_settings_default(settings, setting)))
            jsontext_set(&fixed, setting->key,
                         weights_ckpt_config_value(setting, settings));
    }
    return fixed;
}

json_t *start_fixed_state(const struct run *run)
{
    const struct train_settings *s = &run->settings;
    json_t *fixed =
        json_pack("{s:s, s:s}", "data.train", run->inputs.train_id, "tokenizer",
                  dataset_sidecar(run->inputs.train_data[0])->tokenizer_sha256);
    fixed = add(fixed, s, SETTING_STAYS);
    fixed = add(fixed, s, SETTING_STAYS_ADDED);
    fixed = add(fixed, s, TRAIN_STAYS_OF_ORDER);
    if (s->memory.compression != PACKING_NONE)
        fixed = add(fixed, s, TRAIN_STAYS_IF_PACKED);
    if (s->parallel.determinism == DETERMINISM_RUN) {
        json_object_set_new(fixed, "ranks", json_integer(run->ranks));
        fixed = add(fixed, s, TRAIN_STAYS_IF_RUN);
    }
    return fixed;
}

static bool has_flag(const char *key, unsigned flag)
{
    const struct setting *setting = train_settings_setting(key);
    return setting != NULL && (setting->flags & flag) != 0;
}

/* Whether a member of "fixed" says what is read in which order. */
static bool is_of_order(const char *key)
{
    return strcmp(key, "data.train") == 0 ||
           has_flag(key, TRAIN_STAYS_OF_ORDER);
}

/* The first member of the order that is in one and differs in the other; NULL:
 * none. */
static const char *order_differs(json_t *one, json_t *other)
{
    const char *key;
    json_t *value;
    json_object_foreach(one, key, value)
    {
        if (is_of_order(key) && !json_equal(value, json_object_get(other, key)))
            return key;
    }
    return NULL;
}

bool start_fixed_order_changed(const struct run *run, const json_t *state)
{
    json_t *now = start_fixed_state(run);
    json_t *then = json_object_get(state, "fixed");
    assert(run->inputs.train_count > 0);
    bool changed =
        order_differs(now, then) != NULL || order_differs(then, now) != NULL;
    json_decref(now);
    return changed;
}

static enum err refuse(const struct run *run, const char *key,
                       const json_t *old, const json_t *value)
{
    char *was = json_dumps(old, JSON_ENCODE_ANY);
    char *is = json_dumps(value, JSON_ENCODE_ANY);
    enum err rc = err_set(
        ERR_CHECKPOINT,
        "the run in %s was started with %s = %s, now it is %s: use the old "
        "value, or another run.dir for a new run%s",
        run->settings.run.dir, key, was ? was : "its default",
        is ? is : "its default",
        is_of_order(key)
            ? "; or go on with other data from here: data.change = continue"
            : "");
    free(was);
    free(is);
    return rc;
}

enum err start_fixed_check(const struct run *run, const json_t *state)
{
    enum err rc = ERR_OK;
    json_t *now = start_fixed_state(run);
    json_t *then = json_object_get(state, "fixed");
    bool goes_on = run->settings.data.change == CHANGE_CONTINUE;
    const char *key;
    json_t *value;
    if (now == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "out of memory"));
    json_object_foreach(now, key, value)
    {
        const json_t *old = json_object_get(then, key);
        if (json_equal(value, old) || (goes_on && is_of_order(key)))
            continue;
        if (strcmp(key, "train.microbatch") == 0 &&
            start_fixed_microbatch(run, state) > 0)
            continue;
        TRY_OUT(refuse(run, key, old, value));
    }
    /* what has its default again */
    json_object_foreach(then, key, value)
    {
        if (json_object_get(now, key) != NULL ||
            !(has_flag(key, SETTING_STAYS_ADDED) ||
              (!goes_on && is_of_order(key))))
            continue;
        TRY_OUT(refuse(run, key, value, NULL));
    }
out:
    json_decref(now);
    return rc;
}

int64_t start_fixed_microbatch(const struct run *run, const json_t *state)
{
    const struct train_settings *s = &run->settings;
    const json_t *stored =
        json_object_get(json_object_get(state, "fixed"), "train.microbatch");
    assert(s->parallel.slots > 0 && s->train.microbatch > 0);
    int64_t slot = s->train.global_batch / s->parallel.slots;
    int64_t now = s->train.microbatch;
    int64_t then = json_integer_value(stored);
    bool elastic = s->parallel.determinism == DETERMINISM_ELASTIC;
    if (then < 1 || slot % then != 0)
        return 0;
    if (then == now || (!elastic && then > now && run->engine.shrunk))
        return now;
    if (s->microbatch_automatic || (!elastic && then < now))
        return then;
    return 0;
}
