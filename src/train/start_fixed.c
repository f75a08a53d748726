/* The settings that must stay what they were at the start of a run: stored in
 * every checkpoint, checked on every resume. */
#include "src/train/start_fixed.h"

#include <stdlib.h>
#include <string.h>

/* A setting's value as JSON, a number as a number. */
static json_t *value_json(const struct train_settings *settings,
                          const struct setting *setting)
{
    const void *at = (const char *)settings + setting->offset;
    char *text = NULL;
    switch (setting->type) {
    case SETTING_INT:
        return json_integer(*(const int64_t *)at);
    case SETTING_FLOAT:
        return json_real(*(const double *)at);
    case SETTING_BOOL:
        return json_boolean(*(const bool *)at);
    default:
        break;
    }
    json_t *string =
        train_settings_print(settings, setting->key, &text) == ERR_OK
            ? json_string(text)
            : NULL;
    free(text);
    return string;
}

/* The first checkpoints had every value as its text. */
static bool is_same(const struct train_settings *settings, const char *key,
                    const json_t *now, const json_t *then)
{
    char *text = NULL;
    bool same = json_equal(now, then);
    if (!same && json_is_string(then) && !json_is_string(now) &&
        train_settings_print(settings, key, &text) == ERR_OK)
        same = strcmp(text, json_string_value(then)) == 0;
    free(text);
    return same;
}

/* The settings that have the flag, by their names. */
static json_t *add(json_t *fixed, const struct train_settings *settings,
                   unsigned flag)
{
    for (int i = 0; fixed != NULL && i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        if ((setting->flags & flag) == 0)
            continue;
        if (json_object_set_new(fixed, setting->key,
                                value_json(settings, setting)) != 0) {
            json_decref(fixed);
            fixed = NULL;
        }
    }
    return fixed;
}

json_t *start_fixed_state(const struct trainer *trainer)
{
    const struct train_settings *s = &trainer->settings;
    json_t *fixed =
        json_pack("{s:s, s:s}", "data.train", trainer->train_id, "tokenizer",
                  dataset_tokenizer_sha256(trainer->train_data[0]));
    fixed = add(fixed, s, SETTING_STAYS);
    if (s->memory.compression != PACKING_NONE)
        fixed = add(fixed, s, TRAIN_STAYS_IF_PACKED);
    if (s->parallel.determinism == DETERMINISM_RUN) {
        json_object_set_new(fixed, "ranks", json_integer(trainer->ranks));
        fixed = add(fixed, s, TRAIN_STAYS_IF_RUN);
    }
    return fixed;
}

enum err start_fixed_check(const struct trainer *trainer, const json_t *state)
{
    enum err rc = ERR_OK;
    json_t *now = start_fixed_state(trainer);
    const json_t *then = json_object_get(state, "fixed");
    const char *key;
    json_t *value;
    if (now == NULL) {
        rc = err_set(ERR_MEMORY, "out of memory");
        goto out;
    }
    json_object_foreach(now, key, value)
    {
        const json_t *old = json_object_get(then, key);
        if (is_same(&trainer->settings, key, value, old))
            continue;
        if (strcmp(key, "train.microbatch") == 0 &&
            start_fixed_microbatch(trainer, state) > 0)
            continue;
        char *was = json_dumps(old, JSON_ENCODE_ANY);
        char *is = json_dumps(value, JSON_ENCODE_ANY);
        rc = err_set(ERR_CHECKPOINT,
                     "the run in %s was started with %s = %s, now it is %s: "
                     "use the old value, or another run.dir for a new run",
                     trainer->settings.run.dir, key, was ? was : "nothing",
                     is ? is : "nothing");
        free(was);
        free(is);
        goto out;
    }
out:
    json_decref(now);
    return rc;
}

int64_t start_fixed_microbatch(const struct trainer *trainer,
                               const json_t *state)
{
    const struct train_settings *s = &trainer->settings;
    const json_t *stored =
        json_object_get(json_object_get(state, "fixed"), "train.microbatch");
    int64_t slot = s->train.global_batch / s->parallel.slots;
    int64_t now = s->train.microbatch;
    int64_t then = json_is_string(stored)
                       ? strtoll(json_string_value(stored), NULL, 10)
                       : json_integer_value(stored);
    bool elastic = s->parallel.determinism == DETERMINISM_ELASTIC;
    if (then < 1 || slot % then != 0)
        return 0;
    if (then == now || (then > now && trainer->shrunk))
        return now;
    if (s->microbatch_automatic || (!elastic && then < now))
        return then;
    return 0;
}
