/* The table of a training run's settings, and how they are read and completed
 * as far as they tell themselves. Its rows are in train_settings_rows.h and
 * src/model/model_config.h. start_settings.c completes them by the model and
 * judges whether they go together; src/base/settings/settings.c reads files and
 * overrides. */
#include "src/train/settings/train_settings.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/globs.h"
#include "src/base/new.h"
#include "src/parallel/optimizer/optimizer.h"

#define ROW(group, type, field, ...)                                           \
    SETTINGS_ROW(offsetof(struct train_settings, group.field),                 \
                 #group "." #field, type, __VA_ARGS__),
#define START_ROW(group, type, field, ...)                                     \
    SETTINGS_ROW(offsetof(struct train_settings, start.field),                 \
                 #group "." #field, type, __VA_ARGS__),
#define ALONE_ROW(field, type, ...)                                            \
    SETTINGS_ROW(offsetof(struct train_settings, alone.field), #field, type,   \
                 __VA_ARGS__),
const struct setting train_settings_schema[] = { TRAIN_GROUPS(
    ROW, START_ROW) ALONE_SETTINGS(ALONE_ROW) };

const int train_settings_count =
    sizeof train_settings_schema / sizeof train_settings_schema[0];

const struct setting *train_settings_setting(const char *key)
{
    for (int i = 0; i < train_settings_count; i++)
        if (strcmp(train_settings_schema[i].key, key) == 0)
            return &train_settings_schema[i];
    return NULL;
}

bool train_settings_given(const struct train_settings *s, const char *key)
{
    return settings_given(train_settings_schema, train_settings_count,
                          s->origins, key);
}

/* What is not given is as the optimizer has it, if it differs from AdamW. */
static void complete_optimizer(struct train_settings *s)
{
    const struct optimizer_ops *optimizer = optimizer_at(s->optimizer.name);
    const struct {
        const char *key;
        double *value, own;
    } list[] = {
        { "optimizer.lr", &s->optimizer.lr, optimizer->defaults.lr },
        { "optimizer.beta2", &s->optimizer.beta2, optimizer->defaults.beta2 },
        { "optimizer.outlier_threshold", &s->optimizer.outlier_threshold,
          optimizer->defaults.outlier_threshold },
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (list[i].own > 0 && !train_settings_given(s, list[i].key))
            *list[i].value = list[i].own;
}

/* The same of schedules: this one decays to 0, and does not rise from there. */
static void complete_schedule(struct train_settings *s)
{
    if (s->scheduler.name == SCHEDULE_INVERSE_SQRT &&
        !train_settings_given(s, "scheduler.alpha_final"))
        s->scheduler.alpha_final = 0.0;
}

/* The slots and microbatch that are left to us; memory.limit may have another
 * word (train_memory_auto()). Slots are powers of 2 up to 8, as far as they divide
 * the batch: as many ranks can share it, and it must not depend on how many there
 * are. */
static void complete_batch(struct train_settings *s)
{
    if (s->parallel.slots == 0) {
        s->parallel.slots = 1;
        while (s->parallel.slots < 8 &&
               s->train.global_batch % (2 * s->parallel.slots) == 0)
            s->parallel.slots *= 2;
    }
    s->microbatch_automatic = s->train.microbatch == 0;
    if (s->microbatch_automatic)
        s->train.microbatch = s->train.global_batch / s->parallel.slots;
    if (s->train.global_batch == 0 && s->train.microbatch == 0)
        s->train.microbatch = 1;
    assert(s->parallel.slots > 0);
}

/* What the site has chosen for who has chosen nothing. */
static void complete_site(struct train_settings *out)
{
    const char *mode = getenv("TESSERA_RUN_MODE");
    if (mode != NULL && out->run.mode[0] == '\0')
        snprintf(out->run.mode, sizeof out->run.mode, "%s", mode);
}

/* Whose default is not what it has. */
static void note_given(struct train_settings *s)
{
    for (int i = 0; i < train_settings_count; i++)
        s->given[i] = s->origins[i].place[0] != '\0' &&
                      train_settings_schema[i].preset != NULL &&
                      !train_settings_default(s, &train_settings_schema[i]);
}

/* Nothing is required: what is missing is empty or 0. */
static void require_none(struct setting *schema)
{
    for (int i = 0; i < train_settings_count; i++) {
        if (schema[i].preset != NULL)
            continue;
        schema[i].min = 0;
        schema[i].preset = schema[i].type == SETTING_INT        ? "0"
                           : schema[i].type == SETTING_DURATION ? "0ba"
                                                                : "";
    }
}

enum err train_settings_blame(const struct train_settings *s, enum err rc)
{
    return rc == ERR_OK
               ? ERR_OK
               : err_prefix(rc, "%s",
                            settings_blame(train_settings_schema,
                                           train_settings_count, s->origins,
                                           err_text(), s->source.place));
}

enum err train_settings_read(const char *path, char *const *overrides,
                             int override_count, bool partial,
                             struct train_settings *out)
{
    enum err rc = ERR_OK;
    struct setting *schema = NULL;
    TRY(new_room(&schema, (size_t)train_settings_count));
    memcpy(schema, train_settings_schema, sizeof train_settings_schema);
    if (partial)
        require_none(schema);
    assert(override_count == 0 || overrides != NULL);
    memset(out, 0, sizeof *out);
    out->partial = partial;
    snprintf(out->source.place, sizeof out->source.place, "%s",
             path != NULL ? path : "command line");
    TRY_OUT(settings_load(schema, train_settings_count, path, overrides,
                          override_count, out, out->origins));
    note_given(out);
    complete_site(out);
    complete_optimizer(out);
    complete_schedule(out);
    complete_batch(out);
    rc = train_settings_blame(out, train_groups_read(out, &out->groups));
out:
    free(schema);
    return rc;
}

enum err train_settings_print(const struct train_settings *settings,
                              const char *key, char **text)
{
    const struct setting *setting = train_settings_setting(key);
    if (setting == NULL)
        return settings_no_such(train_settings_schema, train_settings_count,
                                key, "--print");
    char value[SETTINGS_VALUE_BYTES];
    settings_text(setting, settings, value);
    if (setting->type == SETTING_FLOAT)
        snprintf(value, sizeof value, "%.17g",
                 *(const double *)(const void *)((const char *)settings +
                                                 setting->offset));
    *text = strdup(value);
    return *text != NULL ? ERR_OK : err_set(ERR_MEMORY, "out of memory");
}

bool train_settings_freezes(const struct train_settings *settings)
{
    char glob[GLOBS_GLOB_MAX];
    const char *rest = settings->start.freeze;
    assert(settings->lora.rank >= 0);
    return settings->lora.rank > 0 || globs_next(&rest, glob);
}

enum err train_settings_params(const struct train_settings *settings,
                               struct params **out)
{
    struct params_tuning tuning = { .freeze = settings->start.freeze,
                                    .targets = settings->lora.targets,
                                    .rank = settings->lora.rank };
    return train_settings_freezes(settings)
               ? params_create_tuned(&settings->model, &tuning, out)
               : params_create(&settings->model, out);
}

enum err train_settings_memory(const struct train_settings *settings,
                               struct model_memory *out)
{
    assert(settings->model.n_layers > 0); /* completed */
    out->packing = settings->memory.compression;
    return model_memory_parse(settings->memory.checkpoint,
                              settings->model.n_layers, out);
}

struct start_from train_settings_from(const struct train_settings *s)
{
    if (s->checkpoint.load[0] != '\0')
        return (struct start_from){ .key = "checkpoint.load",
                                    .path = s->checkpoint.load,
                                    .ignore = s->checkpoint.load_ignore,
                                    .state = !s->checkpoint.load_weights_only };
    return (struct start_from){ .key = "model.weights",
                                .path = s->start.weights,
                                .ignore = s->start.weights_ignore };
}

/* --- what decides the result, and the hash over it --- */

/* Equal hashes mean the same bits, as far as settings decide them. So the hash is
 * over those that do, key by key with its value as text, in the order of the table; a setting
 * that a later version has added counts only where it is not its default, or the
 * hashes of older runs would all be others. */
bool train_settings_decides(const struct setting *setting)
{
    return (setting->flags &
            (SETTING_DECIDES | SETTING_STAYS | TRAIN_STAYS_IF_GIVEN)) != 0;
}

bool train_settings_default(const struct train_settings *settings,
                            const struct setting *setting)
{
    char text[SETTINGS_VALUE_BYTES];
    assert(setting->preset != NULL);    /* what is required has no default */
    if (setting->type == SETTING_FLOAT) /* 1e-8 may be written 1e-08 */
        return *(const double *)(const void *)((const char *)settings +
                                               setting->offset) ==
               strtod(setting->preset, NULL);
    settings_text(setting, settings, text);
    if ((setting->flags & SETTING_AUTO) != 0 && strcmp(text, "0") == 0)
        return strcmp(setting->preset, "auto") == 0;
    return strcmp(text, setting->preset) == 0;
}

enum err train_settings_digest(const struct train_settings *settings,
                               train_settings_counts *counts, char hex[65])
{
    enum err rc = ERR_OK;
    struct digest *digest = NULL;
    char *text = NULL;
    TRY_OUT(digest_create(&digest));
    for (int i = 0; i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        const char *key = setting->key;
        if (!counts(settings, setting))
            continue;
        TRY_OUT(train_settings_print(settings, key, &text));
        TRY_OUT(digest_update(digest, key, strlen(key) + 1));
        TRY_OUT(digest_update(digest, text, strlen(text) + 1));
        free(text);
        text = NULL;
    }
    TRY_OUT(digest_finish(digest, hex));
out:
    free(text);
    digest_destroy(digest);
    return rc;
}

static bool decides_here(const struct train_settings *settings,
                         const struct setting *setting)
{
    return train_settings_decides(setting) &&
           ((setting->flags & TRAIN_STAYS_IF_GIVEN) == 0 ||
            !train_settings_default(settings, setting));
}

enum err train_settings_hash(const struct train_settings *settings,
                             char hex[65])
{
    return train_settings_digest(settings, decides_here, hex);
}

/* --- what users run, and what they tell it --- */

bool train_settings_secret(const char *key, const char *text)
{
    return strncmp(key, "hooks.", strlen("hooks.")) == 0 ||
           strncmp(key, "plugins", strlen("plugins")) == 0 ||
           (strcmp(key, "algorithms") == 0 &&
            strstr(text, "\"plugin\"") != NULL);
}

bool train_settings_any_secret(const struct train_settings *settings)
{
    char text[SETTINGS_VALUE_BYTES];
    for (int i = 0; i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        settings_text(setting, settings, text);
        if (train_settings_secret(setting->key, text) &&
            (setting->preset == NULL || strcmp(text, setting->preset) != 0))
            return true;
    }
    return false;
}
