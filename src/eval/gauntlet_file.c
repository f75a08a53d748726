/* Reads groups of libconfig.
 *
 * A gauntlet is no setting of a run, so it is not in the settings' tables; but it
 * is held to the same rule: what is misspelt must not be taken for something that
 * was left out, or a score would be another one without a word. So each group has
 * a table of all its members, and every member of the file is looked up in it,
 * also those that the caller reads by itself (GAUNTLET_FILE_OTHER). */
#include "src/eval/gauntlet_file.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum err gauntlet_file_wrong(const config_setting_t *at, const char *format,
                             ...)
{
    char text[ERR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return err_set(ERR_USAGE, "line %u: %s", config_setting_source_line(at),
                   text);
}

static bool is_whole(const config_setting_t *value)
{
    int type = config_setting_type(value);
    return type == CONFIG_TYPE_INT || type == CONFIG_TYPE_INT64;
}

static enum err read_field(const config_setting_t *value,
                           const struct gauntlet_file_field *field, void *out)
{
    int type = config_setting_type(value);
    void *to = (char *)out + field->offset;
    switch (field->type) {
    case GAUNTLET_FILE_TEXT:
        if (type != CONFIG_TYPE_STRING)
            return gauntlet_file_wrong(value, "'%s' has to be a text in quotes",
                                       field->name);
        *(const char **)to = config_setting_get_string(value);
        return ERR_OK;
    case GAUNTLET_FILE_WHOLE:
        if (!is_whole(value) || config_setting_get_int64(value) < 0)
            return gauntlet_file_wrong(
                value, "'%s' has to be a whole number from 0 on", field->name);
        *(int64_t *)to = config_setting_get_int64(value);
        return ERR_OK;
    case GAUNTLET_FILE_NUMBER:
        if (type != CONFIG_TYPE_FLOAT && !is_whole(value))
            return gauntlet_file_wrong(value, "'%s' has to be a number",
                                       field->name);
        *(double *)to = is_whole(value)
                            ? (double)config_setting_get_int64(value)
                            : config_setting_get_float(value);
        return ERR_OK;
    case GAUNTLET_FILE_TRUTH:
        if (type != CONFIG_TYPE_BOOL)
            return gauntlet_file_wrong(value, "'%s' has to be true or false",
                                       field->name);
        *(bool *)to = config_setting_get_bool(value) != 0;
        return ERR_OK;
    default:
        return ERR_OK;
    }
}

enum err gauntlet_file_group(const config_setting_t *group,
                             const struct gauntlet_file_field *fields,
                             int count, void *out)
{
    assert(count > 0 && out != NULL);
    if (config_setting_type(group) != CONFIG_TYPE_GROUP)
        return gauntlet_file_wrong(group, "a group in braces is expected");
    for (int i = 0; i < config_setting_length(group); i++) {
        const config_setting_t *value =
            config_setting_get_elem(group, (unsigned)i);
        const char *name = config_setting_name(value);
        int f = 0;
        while (f < count && strcmp(fields[f].name, name) != 0)
            f++;
        if (f == count)
            return gauntlet_file_wrong(value, "'%s' is not known here", name);
        TRY(read_field(value, &fields[f], out));
    }
    /* a member that is known may still be absent */
    for (int f = 0; f < count; f++)
        if (fields[f].needed &&
            config_setting_get_member(group, fields[f].name) == NULL)
            return gauntlet_file_wrong(group, "'%s' is missing",
                                       fields[f].name);
    return ERR_OK;
}

enum err gauntlet_file_list(const config_setting_t *group, const char *name,
                            const config_setting_t **list, int *count)
{
    *list = config_setting_get_member(group, name);
    *count = 0;
    if (*list == NULL)
        return ERR_OK;
    int type = config_setting_type(*list);
    if (type != CONFIG_TYPE_LIST && type != CONFIG_TYPE_ARRAY)
        return gauntlet_file_wrong(*list, "'%s' has to be a list", name);
    *count = config_setting_length(*list);
    return ERR_OK;
}
