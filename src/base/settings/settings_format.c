/* Writes settings as a libconfig file that reads back as the same values.
 *
 * Three things of the format have to be observed: a whole number of more than
 * 32 bits has the suffix L, a real one has a point or it is a whole one, and a
 * group may be opened only once, so that all of its members are written where
 * the first of them stands in the schema. */
#include "src/base/settings/settings_private.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct settings_writer {
    const struct setting *schema;
    int count;
    const void *values;
    FILE *stream;
};

static void settings_format_string(FILE *stream, const char *text)
{
    fputc('"', stream);
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0';
         p++) {
        if (*p == '"' || *p == '\\')
            fprintf(stream, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            fprintf(stream, "\\x%02x", *p);
        else
            fputc(*p, stream);
    }
    fputc('"', stream);
}

/* The fewest digits that read back as the same number. */
static void settings_format_digits(double number, char *text)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, 40, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
}

/* The value as on the command line. */
static void settings_format_plain(const struct setting *setting,
                                  const struct settings_value *value,
                                  char text[SETTINGS_VALUE_BYTES])
{
    assert(setting->type != SETTING_CHOICE || value->choice >= 0);
    switch (setting->type) {
    case SETTING_INT:
        snprintf(text, SETTINGS_VALUE_BYTES, "%lld", (long long)value->integer);
        break;
    case SETTING_FLOAT:
        settings_format_digits(value->number, text);
        break;
    case SETTING_BOOL:
        strcpy(text, value->truth ? "true" : "false");
        break;
    case SETTING_DURATION:
        units_format(value->duration, text, SETTINGS_VALUE_BYTES);
        break;
    case SETTING_BYTES:
        units_bytes_format(value->integer, text, SETTINGS_VALUE_BYTES);
        break;
    case SETTING_CHOICE:
        snprintf(text, SETTINGS_VALUE_BYTES, "%s",
                 setting->names[value->choice]);
        break;
    default:
        memcpy(text, value->text, SETTINGS_VALUE_BYTES);
        break;
    }
}

void settings_format_value(FILE *stream, const struct setting *setting,
                           const struct settings_value *value)
{
    char text[SETTINGS_VALUE_BYTES];
    settings_format_plain(setting, value, text);
    size_t mantissa = strcspn(text, "e");
    switch (setting->type) {
    case SETTING_INT:
        /* the suffix makes libconfig keep all 64 bits */
        fprintf(stream, "%s%s", text,
                value->integer < INT_MIN || value->integer > INT_MAX ? "L"
                                                                     : "");
        break;
    case SETTING_FLOAT:
        /* libconfig tells real numbers from whole ones by their point */
        fprintf(stream, "%.*s%s%s", (int)mantissa, text,
                strchr(text, '.') != NULL ? "" : ".0", text + mantissa);
        break;
    case SETTING_BOOL:
    case SETTING_LIST:
        fputs(text, stream);
        break;
    default:
        settings_format_string(stream, text);
        break;
    }
}

/* Settings of a group need not stand together in the schema, as each module adds its
 * own: so a group has been written if any setting before this one is of it.
 *
 * Whether a setting before `index` begins with the same `bytes` of its key. */
static bool settings_format_seen(const struct settings_writer *writer,
                                 int index, size_t bytes)
{
    const char *key = writer->schema[index].key;
    for (int i = 0; i < index; i++)
        if (strncmp(writer->schema[i].key, key, bytes) == 0)
            return true;
    return false;
}

/* Everything whose key begins with the first `bytes` of `prefix`. libconfig
 * does not allow a group to be opened twice, so a group is written whole where
 * its first member stands. */
static void settings_format_group(const struct settings_writer *writer,
                                  const char *prefix, size_t bytes, int depth)
{
    FILE *stream = writer->stream;
    for (int i = 0; i < writer->count; i++) {
        const struct setting *setting = &writer->schema[i];
        if (strncmp(setting->key, prefix, bytes) != 0)
            continue;
        const char *name = setting->key + bytes;
        size_t length = strcspn(name, ".");
        if (name[length] == '.') {
            size_t group_bytes = bytes + length + 1;
            if (settings_format_seen(writer, i, group_bytes))
                continue;
            fprintf(stream, "%*s%.*s: {\n", 4 * depth, "", (int)length, name);
            settings_format_group(writer, setting->key, group_bytes, depth + 1);
            fprintf(stream, "%*s};\n", 4 * depth, "");
            continue;
        }
        struct settings_value value;
        settings_value_fetch(setting, writer->values, &value);
        fprintf(stream, "%*s%s = ", 4 * depth, "", name);
        settings_format_value(stream, setting, &value);
        fputs(";\n", stream);
    }
}

void settings_text(const struct setting *setting, const void *values,
                   char out[SETTINGS_VALUE_BYTES])
{
    struct settings_value value;
    settings_value_fetch(setting, values, &value);
    settings_format_plain(setting, &value, out);
}

enum err settings_format(const struct setting *schema, int count,
                         const void *values, char **text)
{
    size_t bytes = 0;
    *text = NULL;
    FILE *stream = open_memstream(text, &bytes);
    if (stream == NULL)
        return err_set(ERR_MEMORY, "settings: no memory for the text");
    struct settings_writer writer = { schema, count, values, stream };
    settings_format_group(&writer, "", 0, 0);
    bool failed = ferror(stream) != 0;
    if (fclose(stream) != 0 || failed) {
        free(*text);
        *text = NULL;
        return err_set(ERR_MEMORY, "settings: no memory for the text");
    }
    return ERR_OK;
}
