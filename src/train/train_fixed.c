/* The settings that must stay what they were at the start of a run: stored in
 * every checkpoint, checked on every resume. */
#include "src/train/train_fixed.h"

#include <stdlib.h>
#include <string.h>

/* Settings that must stay what they were when the run was started. */
static bool stays(const char *key)
{
    static const char *const keys[] = {
        "data.seq_len",         "train.global_batch",       "train.microbatch",
        "train.seed",           "memory.compression",       "parallel.slots",
        "parallel.determinism", "parallel.sequence_chunks", "train.precision",
        "optimizer.name",
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return strncmp(key, "model.", 6) == 0 && strcmp(key, "model.preset") != 0;
}

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

/* What must be the same for the whole run, by the names of the settings. */
json_t *train_fixed_state(const struct trainer *trainer)
{
    const struct train_settings *s = &trainer->settings;
    json_t *fixed =
        json_pack("{s:s, s:s}", "data.train", dataset_id(trainer->train_data),
                  "tokenizer", dataset_tokenizer_sha256(trainer->train_data));
    for (int i = 0; fixed != NULL && i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        if (!stays(setting->key))
            continue;
        if (json_object_set_new(fixed, setting->key,
                                value_json(s, setting)) != 0) {
            json_decref(fixed);
            fixed = NULL;
        }
    }
    /* what is computed again is exact, what is packed is not */
    if (fixed != NULL && strcmp(s->memory.compression, "none") != 0) {
        json_object_set_new(fixed, "memory.checkpoint",
                            json_string(s->memory.checkpoint));
        json_object_set_new(fixed, "parallel.expert_degree",
                            json_integer(s->parallel.expert_degree));
    }
    /* "run" promises the same bits on the same topology only */
    if (fixed != NULL && strcmp(s->parallel.determinism, "run") == 0) {
        json_object_set_new(fixed, "ranks", json_integer(trainer->ranks));
        json_object_set_new(fixed, "parallel.strategy",
                            json_string(s->parallel.strategy));
        json_object_set_new(fixed, "parallel.expert_degree",
                            json_integer(s->parallel.expert_degree));
        json_object_set_new(fixed, "parallel.sequence_degree",
                            json_integer(s->parallel.sequence_degree));
        json_object_set_new(fixed, "parallel.reduce_precision",
                            json_string(s->parallel.reduce_precision));
    }
    return fixed;
}

enum err train_fixed_check(const struct trainer *trainer, const json_t *state)
{
    enum err rc = ERR_OK;
    json_t *now = train_fixed_state(trainer);
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
            train_fixed_microbatch(trainer, state) > 0)
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

int64_t train_fixed_microbatch(const struct trainer *trainer,
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
    bool elastic = strcmp(s->parallel.determinism, "elastic") == 0;
    if (then < 1 || slot % then != 0)
        return 0;
    if (then == now || (then > now && trainer->shrunk))
        return now;
    if (s->train.microbatch_automatic || (!elastic && then < now))
        return then;
    return 0;
}
