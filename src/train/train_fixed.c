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

/* What must be the same for the whole run, by the names of the settings. */
json_t *train_fixed_state(const struct trainer *trainer)
{
    const struct train_settings *s = &trainer->settings;
    json_t *fixed =
        json_pack("{s:s, s:s}", "data.train", dataset_id(trainer->train_data),
                  "tokenizer", dataset_tokenizer_sha256(trainer->train_data));
    for (int i = 0; fixed != NULL && i < train_settings_count; i++) {
        const char *key = train_settings_schema[i].key;
        char *text = NULL;
        if (!stays(key))
            continue;
        if (train_settings_print(s, key, &text) != ERR_OK ||
            json_object_set_new(fixed, key, json_string(text)) != 0) {
            json_decref(fixed);
            fixed = NULL;
        }
        free(text);
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
        if (json_equal(value, old))
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
    const char *text = json_string_value(
        json_object_get(json_object_get(state, "fixed"), "train.microbatch"));
    int64_t slot = s->train.global_batch / s->parallel.slots;
    int64_t now = s->train.microbatch;
    int64_t then = text != NULL ? strtoll(text, NULL, 10) : 0;
    bool elastic = strcmp(s->parallel.determinism, "elastic") == 0;
    if (then < 1 || slot % then != 0)
        return 0;
    if (then == now || (then > now && trainer->shrunk))
        return now;
    if (s->train.microbatch_automatic || (!elastic && then < now))
        return then;
    return 0;
}
