/* Reads a libconfig file into the table of settings, and says where an error
 * is.
 *
 * libconfig makes a tree of nodes with the file and line of each. The tree is
 * walked with the dotted key as the only state: a node whose key is a setting's
 * is its value, one whose key is a group's has members, and the rest is
 * unknown. What is unknown is told of at its innermost member, since
 * `optimizer: { adamw: { lr = 1; }; }` is better answered at `lr`. */
#include "src/base/settings/settings_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings_file {
    const char *path;
    char folder[SETTINGS_TEXT_BYTES];
    struct settings_table *table;
};

/* --- by libconfig, after a look through it --- */

/* Where a node or an error is: libconfig tells an included file by the name that
 * stands in the @include, which is relative to the first file's folder. */
static enum err settings_parse_source(const char *path, const char *folder,
                                      const char *source,
                                      char out[SETTINGS_TEXT_BYTES])
{
    int n;
    if (source == NULL || strcmp(source, path) == 0)
        n = snprintf(out, SETTINGS_TEXT_BYTES, "%s", path);
    else
        n = snprintf(out, SETTINGS_TEXT_BYTES, "%s/%s", folder, source);
    if (n < 0 || n >= SETTINGS_TEXT_BYTES)
        return err_set(ERR_USAGE, "path longer than %d bytes: %.100s...",
                       SETTINGS_TEXT_BYTES - 1, out);
    return ERR_OK;
}

/* libconfig's error, with what may be behind it. */
static enum err settings_parse_syntax(const char *path, int line,
                                      const char *error)
{
    enum err rc = ERR_OK;
    char *text = NULL;
    size_t bytes = 0;
    char hint[SETTINGS_PLACE_BYTES] =
        "it is set twice; a group is opened once, with all that is in it";
    TRY_OUT(settings_scan_read(path, SETTINGS_SCAN_BYTES_MAX, &text, &bytes));
    if (strcmp(error, "duplicate setting name") != 0)
        settings_hint_line(text, line, hint);
    rc = err_set(ERR_USAGE, "%s:%d: %s: %s", path, line, error, hint);
out:
    free(text);
    return rc;
}

enum err settings_parse(const char *path, char folder[SETTINGS_TEXT_BYTES],
                        config_t *config)
{
    char source[SETTINGS_TEXT_BYTES];
    TRY(settings_folder_of(path, folder));
    TRY(settings_scan_file(path, folder));
    config_set_include_dir(config, folder);
    if (config_read_file(config, path) == CONFIG_TRUE)
        return ERR_OK;
    const char *text = config_error_text(config);
    if (config_error_type(config) == CONFIG_ERR_FILE_IO)
        return err_set(ERR_USAGE, "configuration file %s: %s", path, text);
    TRY(settings_parse_source(path, folder, config_error_file(config), source));
    return settings_parse_syntax(source, config_error_line(config), text);
}

/* --- values --- */

static const char *settings_file_kind(const config_setting_t *node)
{
    switch (config_setting_type(node)) {
    case CONFIG_TYPE_GROUP:
        return "a group";
    case CONFIG_TYPE_ARRAY:
        return "an array";
    case CONFIG_TYPE_LIST:
        return "a list";
    case CONFIG_TYPE_BOOL:
        return "true or false without quotes";
    default:
        return "this";
    }
}

/* By libconfig's type first, and then by ours: 1 may be a number that is real here,
 * but "1" is a string and no number. */
enum err settings_node_value(const struct setting *setting,
                             const config_setting_t *node, const char *folder,
                             const char *place, struct settings_value *value)
{
    if (setting->type == SETTING_LIST)
        return settings_list_node(setting, node, folder, place, value);
    snprintf(value->place, sizeof value->place, "%s", place);
    switch (config_setting_type(node)) {
    case CONFIG_TYPE_INT:
    case CONFIG_TYPE_INT64:
        return settings_value_integer(setting, config_setting_get_int64(node),
                                      place, value);
    case CONFIG_TYPE_FLOAT:
        return settings_value_number(setting, config_setting_get_float(node),
                                     place, value);
    case CONFIG_TYPE_STRING:
        TRY(settings_value_string(setting, config_setting_get_string(node),
                                  folder, place, value));
        break;
    case CONFIG_TYPE_BOOL:
        if (setting->type == SETTING_BOOL) {
            value->truth = config_setting_get_bool(node) != 0;
            value->present = true;
            break;
        }
        return settings_value_wrong(setting, settings_file_kind(node), place);
    default:
        return settings_value_wrong(setting, settings_file_kind(node), place);
    }
    return ERR_OK;
}

/* One setting, or one group with what it holds. The depth is bounded by the
 * length of the dotted key. */
static enum err settings_file_node(const struct settings_file *file,
                                   const config_setting_t *node,
                                   const char *prefix)
{
    char key[SETTINGS_KEY_BYTES];
    char source[SETTINGS_TEXT_BYTES];
    char place[SETTINGS_PLACE_BYTES];
    TRY(settings_parse_source(file->path, file->folder,
                              config_setting_source_file(node), source));
    snprintf(place, sizeof place, "%.240s:%u", source,
             config_setting_source_line(node));
    int n = snprintf(key, sizeof key, "%s%s%s", prefix,
                     prefix[0] == '\0' ? "" : ".", config_setting_name(node));
    if (n < 0 || n >= (int)sizeof key)
        return err_set(ERR_USAGE, "%s: unknown setting '%.60s...'", place, key);

    int index = settings_find(file->table, key);
    if (index >= 0) {
        char folder[SETTINGS_TEXT_BYTES];
        TRY(settings_folder_of(source, folder));
        return settings_node_value(&file->table->schema[index], node, folder,
                                   place, &file->table->values[index]);
    }
    int members =
        config_setting_is_group(node) ? config_setting_length(node) : 0;
    if (settings_is_group(file->table, key)) {
        if (!config_setting_is_group(node)) {
            return err_set(ERR_USAGE,
                           "%s: '%s' is a group: write %s: { name = value; }",
                           place, key, config_setting_name(node));
        }
    } else if (members == 0) {
        return settings_unknown(file->table, key, place);
    }
    /* an unknown group is reported by its first member, which tells more */
    for (int i = 0; i < members; i++)
        TRY(settings_file_node(file, config_setting_get_elem(node, (unsigned)i),
                               key));
    return ERR_OK;
}

enum err settings_file_read(const char *path, struct settings_table *table)
{
    enum err rc = ERR_OK;
    struct settings_file file = { .path = path, .table = table };
    config_t config;
    config_init(&config);
    TRY_OUT(settings_parse(path, file.folder, &config));
    const config_setting_t *root = config_root_setting(&config);
    int members = config_setting_length(root);
    for (int i = 0; i < members; i++)
        TRY_OUT(settings_file_node(
            &file, config_setting_get_elem(root, (unsigned)i), ""));
out:
    config_destroy(&config);
    return rc;
}
