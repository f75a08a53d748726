/* Reads a model's settings from a checkpoint's state by the table of settings
 * that runs are started with, so that limits and names are the same: each
 * becomes a KEY=VALUE as on a command line. A setting that is younger than the
 * checkpoint has its default there, which is by rule what older versions did.
 */
#include "src/formats/weights_ckpt_config.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/jsontext.h"

#define ROW(group, type, field, ...)                                           \
    SETTINGS_ROW(offsetof(struct model_config, field), #group "." #field,      \
                 type, __VA_ARGS__),
static const struct setting schema[] = { MODEL_SETTINGS(ROW) };

#define COUNT ((int)(sizeof schema / sizeof schema[0]))

/* "model.n_heads=12" of the value, malloc'ed. The first checkpoints had every
 * value as its text. */
static enum err make_override(const char *key, const json_t *value, char **out)
{
    char *text = json_is_string(value) ? strdup(json_string_value(value))
                                       : json_dumps(value, JSON_ENCODE_ANY);
    bool made = text != NULL && asprintf(out, "%s=%s", key, text) >= 0;
    free(text);
    return made ? ERR_OK : err_set(ERR_MEMORY, "%s: out of memory", key);
}

enum err weights_ckpt_config_read(const json_t *state, const char *where,
                                  struct model_config *out)
{
    assert(where != NULL && out != NULL);
    enum err rc = ERR_OK;
    const json_t *fixed = json_object_get(state, "fixed");
    char *overrides[COUNT];
    int count = 0;
    for (int i = 0; i < COUNT; i++) {
        const json_t *value = json_object_get(fixed, schema[i].key);
        if (value == NULL)
            continue;
        TRY_OUT(make_override(schema[i].key, value, &overrides[count]));
        count++;
    }
    if (json_object_get(fixed, "model.d_model") == NULL)
        TRY_OUT(err_set(ERR_CHECKPOINT,
                        "%s: its state does not say what model it is: was it "
                        "saved by tessera-train?",
                        where));
    rc = settings_load(schema, COUNT, NULL, overrides, count, out, NULL);
    if (rc == ERR_OK)
        rc = model_config_check(out);
    rc = err_prefix(rc == ERR_USAGE ? ERR_CHECKPOINT : rc,
                    "%s: the model in its state", where);
out:
    for (int i = 0; i < count; i++)
        free(overrides[i]);
    return rc;
}

json_t *weights_ckpt_config_value(const struct setting *setting,
                                  const void *values)
{
    const void *at = (const char *)values + setting->offset;
    char text[SETTINGS_VALUE_BYTES];
    switch (setting->type) {
    case SETTING_INT:
        return json_integer(*(const int64_t *)at);
    case SETTING_FLOAT:
        return json_real(*(const double *)at);
    case SETTING_BOOL:
        return json_boolean(*(const bool *)at);
    default:
        settings_text(setting, values, text);
        return json_string(text);
    }
}

/* Settings of later versions are told where they are not the default. */
static bool is_told(const struct setting *setting,
                    const struct model_config *config)
{
    char text[SETTINGS_VALUE_BYTES];
    if ((setting->flags & SETTING_STAYS_ADDED) == 0)
        return (setting->flags & SETTING_STAYS) != 0;
    settings_text(setting, config, text);
    return strcmp(text, setting->preset) != 0;
}

json_t *weights_ckpt_config_fixed(const struct model_config *config)
{
    json_t *fixed = json_object();
    for (int i = 0; i < COUNT; i++)
        if (is_told(&schema[i], config))
            jsontext_set(&fixed, schema[i].key,
                         weights_ckpt_config_value(&schema[i], config));
    return fixed;
}

json_t *weights_ckpt_config_text(int64_t vocab, int64_t bos, int64_t eos,
                                 const struct weights_about *about)
{
    json_t *text = json_pack("{s:I, s:I, s:I}", "vocab_size", (json_int_t)vocab,
                             "bos", (json_int_t)bos, "eos", (json_int_t)eos);
    if (about == NULL)
        return text;
    if (about->pad >= 0)
        jsontext_set(&text, "pad", json_integer(about->pad));
    if (about->generation != NULL)
        jsontext_set(&text, "generation", jsontext_string(about->generation));
    if (about->chat_template != NULL)
        jsontext_set(&text, "chat_template",
                     jsontext_string(about->chat_template));
    return text;
}
