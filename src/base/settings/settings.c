/* Loads settings from defaults, a file and overrides, and prints their help.
 * What settings a program has is a table of the program's (for a run
 * src/train/settings/train_settings.c).
 *
 * A setting is set up to three times: by the default of its row, by the file,
 * by the command line, and the last one holds. All of them go into a table of
 * values beside the caller's struct, each by the same check, so that a default
 * outside its own limits is found as well. Only when everything is right the
 * struct is filled: after an error it is what it was.
 *
 * Most errors are words. So a key that is not known is looked up among what
 * other programs call their settings, and then among ours by how few edits lie
 * between; and each value remembers where it was set, for what is found wrong
 * long afterwards (settings_blame()). */
#include "src/base/settings/settings_private.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

int settings_find(const struct settings_table *table, const char *key)
{
    for (int i = 0; i < table->count; i++)
        if (strcmp(table->schema[i].key, key) == 0)
            return i;
    return -1;
}

bool settings_is_group(const struct settings_table *table, const char *group)
{
    size_t bytes = strlen(group);
    for (int i = 0; i < table->count; i++) {
        const char *key = table->schema[i].key;
        if (strncmp(key, group, bytes) == 0 && key[bytes] == '.')
            return true;
    }
    return false;
}

enum err settings_unknown(const struct settings_table *table, const char *key,
                          const char *place)
{
    if (settings_is_group(table, key))
        return err_set(ERR_USAGE, "%s: '%s' is a group: name one of %s.*",
                       place, key, key);
    char near[SETTINGS_KEY_BYTES];
    const char *note = NULL;
    const struct setting *ours = settings_foreign(table, key, &note);
    if (ours != NULL && note[0] == '!')
        return err_set(ERR_USAGE, "%s: unknown setting '%s': %s", place, key,
                       note + 1);
    if (ours != NULL)
        return err_set(ERR_USAGE,
                       "%s: unknown setting '%s'; here it is '%s': %s", place,
                       key, ours->key, note);
    if (settings_nearest(table->schema, table->count, key, near) == NULL)
        return err_set(ERR_USAGE,
                       "%s: unknown setting '%s'; --help lists all settings",
                       place, key);
    return err_set(ERR_USAGE, "%s: unknown setting '%s'; did you mean '%s'?",
                   place, key, near);
}

/* What a programmer got wrong in a schema is found at its first use. */
static void settings_check_schema(const struct settings_table *table)
{
    for (int i = 0; i < table->count; i++) {
        const struct setting *setting = &table->schema[i];
        assert(setting->key != NULL && setting->help != NULL);
        assert(strlen(setting->key) < SETTINGS_KEY_BYTES);
        assert(setting->type != SETTING_CHOICE || setting->names != NULL);
        assert(setting->type != SETTING_LIST || setting->kinds != NULL);
        assert(setting->min <= setting->max);
        assert(settings_find(table, setting->key) == i);
        assert(!settings_is_group(table, setting->key));
    }
}

enum err settings_defaults(struct settings_table *table, const char *folder)
{
    for (int i = 0; i < table->count; i++) {
        const struct setting *setting = &table->schema[i];
        if (setting->preset == NULL)
            continue;
        enum err rc = settings_value_parse(setting, setting->preset, folder,
                                           "default", &table->values[i]);
        if (rc == ERR_USAGE)
            return err_prefix(ERR_INTERNAL, "schema");
        if (rc != ERR_OK)
            return rc;
    }
    return ERR_OK;
}

static const char command_line[] = "command line";

/* An argument that sets nothing. */
static enum err settings_no_override(const char *argument)
{
    const char *dot = strrchr(argument, '.');
    const char *advice = "";
    if (argument[0] == '-')
        advice = ", which is written without dashes";
    else if (dot != NULL && strcmp(dot, ".cfg") == 0)
        advice = ": there can be only one configuration, which may @include "
                 "others";
    else if (argument[0] != '\0')
        advice = ", without blanks";
    return err_set(ERR_USAGE, "%s: '%.100s' is not of the form key=value%s",
                   command_line, argument, advice);
}

/* Quotes are taken off, since a shell leaves those that stand within other quotes,
 * as in 'run.name="a"', and a text out of a file is written with them. */
static enum err settings_override(struct settings_table *table,
                                  const char *override, const char *folder)
{
    static const char *const place = command_line;
    const char *equals = strchr(override, '=');
    if (equals == NULL || equals == override)
        return settings_no_override(override);
    char key[SETTINGS_KEY_BYTES];
    int n =
        snprintf(key, sizeof key, "%.*s", (int)(equals - override), override);
    if (n < 0 || n >= (int)sizeof key)
        return err_set(ERR_USAGE, "%s: unknown setting '%.60s...'", place, key);
    int i = settings_find(table, key);
    if (i < 0 && settings_is_group(table, key))
        return err_set(ERR_USAGE, "%s: '%s' is a group: give %s.name=value",
                       place, key, key);
    if (i < 0)
        return settings_unknown(table, key, place);

    char text[SETTINGS_VALUE_BYTES];
    const char *value = equals + 1;
    size_t bytes = strlen(value);
    if (bytes >= 2 && value[0] == '"' && value[bytes - 1] == '"') {
        value++;
        bytes -= 2;
    }
    if (bytes >= sizeof text)
        return err_set(ERR_USAGE, "%s: '%s' is longer than %d bytes", place,
                       key, SETTINGS_VALUE_BYTES - 1);
    memcpy(text, value, bytes);
    text[bytes] = '\0';
    snprintf(table->values[i].place, SETTINGS_PLACE_BYTES, "%s", place);
    return settings_value_parse(&table->schema[i], text, folder, place,
                                &table->values[i]);
}

static enum err settings_check_required(const struct settings_table *table,
                                        const char *path)
{
    for (int i = 0; i < table->count; i++) {
        const struct setting *setting = &table->schema[i];
        if (table->values[i].present)
            continue;
        return err_set(ERR_USAGE, "%s: required setting '%s' is missing (%s)",
                       path == NULL ? command_line : path, setting->key,
                       setting->help);
    }
    return ERR_OK;
}

enum err settings_load(const struct setting *schema, int count,
                       const char *path, char *const *overrides,
                       int override_count, void *out,
                       struct settings_origin *origins)
{
    enum err rc = ERR_OK;
    assert(count > 0);
    char folder[SETTINGS_TEXT_BYTES];
    struct settings_table table = {
        schema, count, calloc((size_t)count, sizeof(struct settings_value))
    };
    if (table.values == NULL)
        return err_set(ERR_MEMORY, "settings: no memory for %d values", count);
    settings_check_schema(&table);
    TRY_OUT(settings_folder_current(folder));
    TRY_OUT(settings_defaults(&table, folder));
    if (path != NULL)
        TRY_OUT(settings_file_read(path, &table));
    for (int i = 0; i < override_count; i++)
        TRY_OUT(settings_override(&table, overrides[i], folder));
    TRY_OUT(settings_check_required(&table, path));
    for (int i = 0; i < count; i++) {
        settings_value_apply(&schema[i], &table.values[i], out);
        if (origins != NULL)
            memcpy(origins[i].place, table.values[i].place,
                   sizeof origins[i].place);
    }
out:
    free(table.values);
    return rc;
}

bool settings_given(const struct setting *schema, int count,
                    const struct settings_origin *origins, const char *key)
{
    const struct settings_table table = { schema, count, NULL };
    int i = settings_find(&table, key);
    assert(i >= 0);
    return origins[i].place[0] != '\0';
}

/* Whether the text has the key as a whole word: train.seed is not in
 * "train.seed_eval", but it is in "'train.seed'" and at the end of a sentence. */
static bool settings_names(const char *text, const char *key)
{
    size_t bytes = strlen(key);
    for (const char *p = strstr(text, key); p != NULL; p = strstr(p + 1, key))
        if ((p == text || !isalnum((unsigned char)p[-1])) &&
            !isalnum((unsigned char)p[bytes]) && p[bytes] != '_')
            return true;
    return false;
}

/* A check of two settings names both, and either may be the wrong one. What was typed
 * last is the more likely one: the command line, then the file's first. */
const char *settings_blame(const struct setting *schema, int count,
                           const struct settings_origin *origins,
                           const char *text, const char *otherwise)
{
    const char *place = otherwise;
    for (int i = 0; i < count; i++) {
        if (origins[i].place[0] == '\0' || !settings_names(text, schema[i].key))
            continue;
        if (place == otherwise || strcmp(origins[i].place, command_line) == 0)
            place = origins[i].place;
    }
    return place;
}

enum err settings_no_such(const struct setting *schema, int count,
                          const char *key, const char *place)
{
    const struct settings_table table = { schema, count, NULL };
    return settings_unknown(&table, key, place);
}

/* What a required setting has as long as nobody has set it. */
static bool settings_is_nothing(const char *text)
{
    return text[0] == '\0' || strcmp(text, "0") == 0 ||
           strcmp(text, "0ba") == 0;
}

/* What stands in the column of values. */
static void settings_help_value(const struct setting *setting,
                                const void *values, FILE *out)
{
    char text[SETTINGS_VALUE_BYTES] = "";
    if (values != NULL)
        settings_text(setting, values, text);
    else if (setting->preset != NULL)
        snprintf(text, sizeof text, "%s", setting->preset);
    if (setting->preset == NULL && settings_is_nothing(text))
        fprintf(out, "%-10s", "(required)");
    else
        fprintf(out, "[%s]%*s", text, 8 - (int)strnlen(text, 8), "");
}

static void settings_help_row(const struct setting *setting, const char *key,
                              int key_width, const void *values, FILE *out)
{
    static const char *const types[] = {
        [SETTING_INT] = "whole",         [SETTING_FLOAT] = "number",
        [SETTING_BOOL] = "true|false",   [SETTING_STRING] = "string",
        [SETTING_PATH] = "path",         [SETTING_CHOICE] = "",
        [SETTING_DURATION] = "duration", [SETTING_BYTES] = "size",
        [SETTING_LIST] = "list",
    };
    char choices[SETTINGS_TEXT_BYTES];
    const char *type = types[setting->type];
    if (setting->type == SETTING_CHOICE) {
        settings_value_choices(setting->names, choices);
        type = choices;
    }
    fprintf(out, "  %-*s  %-10s  ", key_width, key, type);
    settings_help_value(setting, values, out);
    fprintf(out, "  %s\n", setting->help);
}

/* What may be in a list, and the members of each. */
static void settings_help_kinds(const struct setting *setting, FILE *out)
{
    for (const struct settings_kind *kind = setting->kinds; kind->help != NULL;
         kind++) {
        if (kind->name != NULL)
            fprintf(out, "    { name = \"%s\"; }  %s\n", kind->name,
                    kind->help);
        for (int i = 0; i < kind->count; i++) {
            char member[SETTINGS_KEY_BYTES];
            snprintf(member, sizeof member, "      %s", kind->schema[i].key);
            settings_help_row(&kind->schema[i], member, 24, NULL, out);
        }
    }
}

void settings_help(const struct setting *schema, int count, const void *values,
                   FILE *out)
{
    int key_width = 0;
    for (int i = 0; i < count; i++) {
        int width = (int)strlen(schema[i].key);
        key_width = width > key_width ? width : key_width;
    }
    for (int i = 0; i < count; i++) {
        settings_help_row(&schema[i], schema[i].key, key_width, values, out);
        if (schema[i].type == SETTING_LIST)
            settings_help_kinds(&schema[i], out);
    }
}
