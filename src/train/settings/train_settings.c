/* The table of a training run's settings, and how they are loaded and
 * completed. Its rows are in train_settings_rows.h and
 * src/model/model_config.h. Whether they go together is checked in
 * start_settings.c; files and overrides are read by src/base/settings/settings.c.
 */
#include "src/train/settings/train_settings.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/globs.h"
#include "src/base/new.h"
#include "src/parallel/optimizer/optimizer.h"
#include "src/train/plan/train_memory.h"
#include "src/train/run/algorithm.h"
#include "src/train/start/start_settings.h"
#include "src/train/start/start_weights.h"

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

static bool is_given(const struct settings_origin *origins, const char *key)
{
    return settings_given(train_settings_schema, train_settings_count, origins,
                          key);
}

/* What is not given is as the optimizer has it, if it differs from AdamW. */
static void complete_optimizer(struct train_settings *s,
                               const struct settings_origin *origins)
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
        if (list[i].own > 0 && !is_given(origins, list[i].key))
            *list[i].value = list[i].own;
}

/* The same of schedules: this one decays to 0, and does not rise from there. */
static void complete_schedule(struct train_settings *s,
                              const struct settings_origin *origins)
{
    if (s->scheduler.name == SCHEDULE_INVERSE_SQRT &&
        !is_given(origins, "scheduler.alpha_final"))
        s->scheduler.alpha_final = 0.0;
}

/* The shape that model.preset names, or that of the weights which the run
 * starts from. */
static enum err find_shape(const struct train_settings *s, bool preset_given,
                           struct model_config *shape)
{
    bool own = preset_given && s->model.preset != model_preset_weights;
    if (own || train_settings_from(s).path[0] == '\0')
        return model_config_preset(model_preset_names[s->model.preset], shape);
    return start_weights_shape(s, shape);
}

/* Adapters are of a model: where none is said, model.weights was forgotten. */
static enum err check_adapted(const struct train_settings *s, bool preset_given,
                              const struct settings_origin *origins)
{
    if (s->lora.rank == 0 || preset_given ||
        train_settings_from(s).path[0] != '\0' ||
        settings_given(train_settings_schema, train_settings_count, origins,
                       "model.d_model"))
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "lora.rank is %lld and model.weights is empty: give the "
                   "weights that get adapters; for fresh ones, give "
                   "model.preset",
                   (long long)s->lora.rank);
}

/* Whether both widths of the MLP were given, and are two. */
static bool two_widths(const struct train_settings *s,
                       const struct model_config *shape)
{
    int64_t d = s->model.d_model > 0 ? s->model.d_model : shape->d_model;
    return s->model.ffn_width > 0 && s->model.expansion_ratio > 0.0 &&
           llround(s->model.expansion_ratio * (double)d) != s->model.ffn_width;
}

/* What of the given is neither the default nor the preset's. */
static void note_given(struct train_settings *s,
                       const struct settings_origin *origins,
                       const struct train_settings *preset)
{
    char value[SETTINGS_VALUE_BYTES], theirs[SETTINGS_VALUE_BYTES];
    for (int i = 0; i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        s->given[i] = origins[i].place[0] != '\0' && setting->preset != NULL &&
                      !train_settings_default(s, setting);
        if (!s->given[i] || strncmp(setting->key, "model.", 6) != 0)
            continue;
        settings_text(setting, s, value);
        settings_text(setting, preset, theirs);
        s->given[i] = strcmp(value, theirs) != 0;
        if (strcmp(setting->key, "model.expansion_ratio") == 0)
            s->given[i] = two_widths(s, &preset->model);
    }
}

/* Model settings that were not given, or given as 0 where 0 says so, become the
 * preset's; those that follow from others are left to them, but for a preset
 * from which nothing may differ. */
static enum err complete_model(struct train_settings *s,
                               const struct settings_origin *origins)
{
    struct train_settings preset = { 0 };
    bool given = settings_given(train_settings_schema, train_settings_count,
                                origins, "model.preset");
    TRY(check_adapted(s, given, origins));
    TRY(find_shape(s, given, &preset.model));
    note_given(s, origins, &preset);
    const struct model_config shape = preset.model;
    if (shape.preset != model_preset_weights) {
        preset.model.n_kv_heads = 0;
        preset.model.ffn_width = 0;
    } else if (settings_given(train_settings_schema, train_settings_count,
                              origins, "model.expansion_ratio")) {
        preset.model.ffn_width = 0;
    }
    for (int i = 0; i < train_settings_count; i++)
        if (origins[i].place[0] == '\0' &&
            strncmp(train_settings_schema[i].key, "model.", 6) == 0)
            settings_copy(&train_settings_schema[i], &preset, s);
    model_config_complete(&s->model, &shape);
    return ERR_OK;
}

/* Fills in the automatic values. */
static void settings_complete(struct train_settings *s)
{
    if (s->data.seq_len == 0)
        s->data.seq_len = s->model.max_seq_len;
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
}

/* What the site has chosen for who has chosen nothing. */
static void complete_site(struct train_settings *out)
{
    const char *mode = getenv("TESSERA_RUN_MODE");
    if (mode != NULL && out->run.mode[0] == '\0')
        snprintf(out->run.mode, sizeof out->run.mode, "%s", mode);
}

static enum err load(const struct setting *schema, const char *path,
                     char *const *overrides, int override_count, bool partial,
                     struct train_settings *out)
{
    enum err rc = ERR_OK;
    int count = train_settings_count;
    struct settings_origin *origins = NULL;
    TRY(new_zeroed(&origins, (size_t)count));
    TRY_OUT(settings_load(schema, count, path, overrides, override_count, out,
                          origins));
    complete_site(out);
    rc = complete_model(out, origins);
    if (rc == ERR_OK) {
        complete_optimizer(out, origins);
        complete_schedule(out, origins);
        rc = train_groups_read(out, &out->groups);
    }
    if (rc == ERR_OK) {
        settings_complete(out);
        rc = algorithm_needs(out, &out->needs);
    }
    if (rc == ERR_OK)
        rc = start_settings(out, partial);
    if (rc == ERR_OK && out->microbatch_automatic &&
        out->train.global_batch > 0)
        rc = train_memory_auto(out, &out->train.microbatch);
    if (rc != ERR_OK)
        rc = err_prefix(rc, "%s",
                        settings_blame(schema, count, origins, err_text(),
                                       path != NULL ? path : "command line"));
out:
    free(origins);
    return rc;
}

enum err train_settings_load(const char *path, char *const *overrides,
                             int override_count, struct train_settings *out)
{
    return load(train_settings_schema, path, overrides, override_count, false,
                out);
}

enum err train_settings_load_partial(const char *path, char *const *overrides,
                                     int override_count,
                                     struct train_settings *out)
{
    struct setting *schema = malloc(sizeof train_settings_schema);
    if (schema == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    memcpy(schema, train_settings_schema, sizeof train_settings_schema);
    for (int i = 0; i < train_settings_count; i++) {
        if (schema[i].preset != NULL)
            continue;
        schema[i].min = 0;
        schema[i].preset = schema[i].type == SETTING_INT        ? "0"
                           : schema[i].type == SETTING_DURATION ? "0ba"
                                                                : "";
    }
    enum err rc = load(schema, path, overrides, override_count, true, out);
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
