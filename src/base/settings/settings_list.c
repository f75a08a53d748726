/* Lists of groups: from libconfig's nodes to text, and from text to the structs
 * of their kinds.
 *
 * The field of such a setting is text, and not an array of structs, because
 * everything else that is done with settings is done with text or bytes: they
 * are compared, hashed, copied, sent to other ranks and written into a run's
 * configuration. The text is a normal form: each item with all of its members,
 * defaults too, in the order of the schema, numbers by their fewest digits. So
 * two lists mean the same if their bytes are the same. Whoever needs the values
 * has the text read again, by the same functions, an item at a time. */
#include "src/base/settings/settings_list.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/base/settings/settings_private.h"

static bool has_names(const struct setting *setting)
{
    return setting->kinds[0].name != NULL;
}

static enum err no_such_kind(const struct setting *setting, const char *name,
                             const char *place)
{
    const char *names[65] = { NULL };
    for (int i = 0; i < 64 && setting->kinds[i].help != NULL; i++)
        names[i] = setting->kinds[i].name;
    return settings_value_no_choice(place, "name", names, name, NULL);
}

/* Which kind the group is of. */
static enum err find_kind(const struct setting *setting,
                          const config_setting_t *group, const char *place,
                          int *kind)
{
    *kind = 0;
    if (!has_names(setting))
        return ERR_OK;
    const config_setting_t *member = config_setting_get_member(group, "name");
    const char *name =
        member != NULL ? config_setting_get_string(member) : NULL;
    if (name == NULL)
        return err_set(ERR_USAGE,
                       "%s: has no name: write { name = \"%s\"; ... }", place,
                       setting->kinds[0].name);
    for (; setting->kinds[*kind].help != NULL; (*kind)++)
        if (strcmp(setting->kinds[*kind].name, name) == 0)
            return ERR_OK;
    return no_such_kind(setting, name, place);
}

static enum err read_member(struct settings_table *table,
                            const config_setting_t *node, const char *folder,
                            const char *place)
{
    const char *key = config_setting_name(node);
    int index = settings_find(table, key);
    if (index < 0)
        return settings_unknown(table, key, place);
    assert(table->schema[index].type != SETTING_LIST);
    return settings_node_value(&table->schema[index], node, folder, place,
                               &table->values[index]);
}

static enum err read_members(const struct setting *setting,
                             struct settings_table *table,
                             const config_setting_t *group, const char *folder,
                             const char *place)
{
    int members = config_setting_length(group);
    for (int i = 0; i < members; i++) {
        const config_setting_t *node =
            config_setting_get_elem(group, (unsigned)i);
        if (has_names(setting) &&
            strcmp(config_setting_name(node), "name") == 0)
            continue;
        TRY(read_member(table, node, folder, place));
    }
    return ERR_OK;
}

/* The values of one item into the table of its kind, which has room for them.
 */
static enum err read_item(const struct setting *setting,
                          struct settings_table *table,
                          const config_setting_t *item, const char *folder,
                          const char *place)
{
    TRY(settings_defaults(table, folder));
    if (config_setting_is_group(item))
        TRY(read_members(setting, table, item, folder, place));
    else
        TRY(settings_node_value(&table->schema[0], item, folder, place,
                                &table->values[0]));
    for (int i = 0; i < table->count; i++)
        if (!table->values[i].present)
            return err_set(ERR_USAGE, "%s: '%s' is missing (%s)", place,
                           table->schema[i].key, table->schema[i].help);
    return ERR_OK;
}

static void write_item(FILE *stream, const char *name,
                       const struct settings_table *table)
{
    fputc('{', stream);
    if (name != NULL)
        fprintf(stream, " name = \"%s\";", name);
    for (int i = 0; i < table->count; i++) {
        fprintf(stream, " %s = ", table->schema[i].key);
        settings_format_value(stream, &table->schema[i], &table->values[i]);
        fputc(';', stream);
    }
    fputs(" }", stream);
}

/* Item `index` of the list: as text to `stream`, or into the struct `out`,
 * where these are not NULL. */
static enum err take_item(const struct setting *setting,
                          const config_setting_t *list, int index,
                          const char *folder, const char *place, int *kind,
                          FILE *stream, void *out)
{
    enum err rc = ERR_OK;
    char item[SETTINGS_PLACE_BYTES + 64];
    const config_setting_t *group =
        config_setting_get_elem(list, (unsigned)index);
    snprintf(item, sizeof item, "%s: %s: item %d", place, setting->key,
             index + 1);
    if (!config_setting_is_group(group) &&
        (has_names(setting) || config_setting_is_aggregate(group)))
        return err_set(ERR_USAGE, "%s: is no group: write { %s = ...; }", item,
                       has_names(setting) ? "name"
                                          : setting->kinds[0].schema[0].key);
    TRY(find_kind(setting, group, item, kind));
    const struct settings_kind *of = &setting->kinds[*kind];
    if (of->name != NULL)
        snprintf(item, sizeof item, "%s: %s: item %d (%s)", place, setting->key,
                 index + 1, of->name);
    assert(of->count >= 0 && (of->count > 0 || of->name != NULL));
    struct settings_table table = { of->schema, of->count,
                                    calloc((size_t)of->count + 1,
                                           sizeof(struct settings_value)) };
    if (table.values == NULL)
        return err_set(ERR_MEMORY, "settings: no memory for %d values",
                       of->count);
    TRY_OUT(read_item(setting, &table, group, folder, item));
    if (stream != NULL)
        write_item(stream, of->name, &table);
    for (int i = 0; i < table.count && out != NULL; i++)
        settings_value_apply(&table.schema[i], &table.values[i], out);
out:
    free(table.values);
    return rc;
}

static enum err write_list(const struct setting *setting,
                           const config_setting_t *list, const char *folder,
                           const char *place, FILE *stream)
{
    int count = config_setting_length(list), kind = 0;
    fputc('(', stream);
    for (int i = 0; i < count; i++) {
        fputs(i > 0 ? ", " : " ", stream);
        TRY(take_item(setting, list, i, folder, place, &kind, stream, NULL));
    }
    fputs(count > 0 ? " )" : ")", stream);
    return ERR_OK;
}

enum err settings_list_node(const struct setting *setting,
                            const config_setting_t *node, const char *folder,
                            const char *place, struct settings_value *value)
{
    if (!config_setting_is_list(node) &&
        (has_names(setting) || !config_setting_is_array(node)))
        return settings_value_wrong(setting, "this", place);
    snprintf(value->place, sizeof value->place, "%s", place);
    memset(value->text, 0, sizeof value->text);
    assert(setting->type == SETTING_LIST && setting->kinds != NULL);
    FILE *stream = fmemopen(value->text, sizeof value->text, "w");
    if (stream == NULL)
        return err_set(ERR_MEMORY, "settings: no memory for a list");
    enum err rc = write_list(setting, node, folder, place, stream);
    long bytes = ftell(stream);
    bool fits = fclose(stream) == 0 && bytes >= 0 &&
                (size_t)bytes < sizeof value->text - 1;
    if (rc == ERR_OK && !fits)
        rc = err_set(ERR_USAGE,
                     "%s: '%s' is longer than %zu bytes with all that its "
                     "items have by default",
                     place, setting->key, sizeof value->text - 2);
    value->present = rc == ERR_OK;
    return rc;
}

/* `config`, which the caller destroys, gets the text as its one member. A text that
 * closes the list and goes on with a setting of its own would have two. */
static enum err parse_text(const struct setting *setting, const char *text,
                           const char *place, config_t *config,
                           const config_setting_t **list)
{
    char *line = NULL;
    TRY(new_room(&line, strlen(text) + sizeof "list = ;"));
    sprintf(line, "list = %s;", text);
    enum err rc = settings_scan_memory(line, place);
    if (rc == ERR_OK && config_read_string(config, line) != CONFIG_TRUE)
        rc = err_set(ERR_USAGE,
                     "%s: '%s': %s: '%.60s' is no list of groups, "
                     "({ NAME = VALUE; }, ...)",
                     place, setting->key, config_error_text(config), text);
    free(line);
    if (rc != ERR_OK)
        return rc;
    *list = config_lookup(config, "list");
    if (*list == NULL ||
        config_setting_length(config_root_setting(config)) != 1)
        return settings_value_wrong(setting, "this", place);
    return ERR_OK;
}

enum err settings_list_value(const struct setting *setting, const char *text,
                             const char *folder, const char *place,
                             struct settings_value *out)
{
    enum err rc = ERR_OK;
    const config_setting_t *list = NULL;
    config_t config;
    config_init(&config);
    TRY_OUT(parse_text(setting, text, place, &config, &list));
    TRY_OUT(settings_list_node(setting, list, folder, place, out));
out:
    config_destroy(&config);
    return rc;
}

static const char of_list[] = "list";

enum err settings_list_count(const struct setting *setting, const char *text,
                             int *count)
{
    enum err rc = ERR_OK;
    const config_setting_t *list = NULL;
    config_t config;
    config_init(&config);
    TRY_OUT(parse_text(setting, text, of_list, &config, &list));
    *count = config_setting_length(list);
out:
    config_destroy(&config);
    return rc;
}

enum err settings_list_item(const struct setting *setting, const char *text,
                            int index, int *kind, void *out)
{
    enum err rc = ERR_OK;
    const config_setting_t *list = NULL;
    config_t config;
    config_init(&config);
    TRY_OUT(parse_text(setting, text, of_list, &config, &list));
    assert(index >= 0 && index < config_setting_length(list));
    TRY_OUT(take_item(setting, list, index, "", of_list, kind, NULL, out));
out:
    config_destroy(&config);
    return rc;
}
