/* Turns text and numbers into checked values of settings: types, limits,
 * choices, paths.
 *
 * libconfig's types are fewer than ours, and the command line has none at all.
 * So there is one function for each type that libconfig has, which asks whether
 * the setting may have that, and settings_value_parse(), which reads a text as
 * what the setting is and goes on by these. A number keeps both forms, whole
 * and real: limits are doubles, and every whole number that a limit is about is
 * exact in one.
 *
 * A path is made absolute at once, by the folder of whoever wrote it, because a
 * run may be continued from another place. It is not resolved: a link is
 * somebody's wish, and what it leads to may change. */
#include "src/base/clean.h"
#include "src/base/settings/settings_private.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(enum setting_type) == sizeof(int),
               "the field of a choice is copied as an int");

void settings_value_choices(const char *const *names,
                            char out[SETTINGS_TEXT_BYTES])
{
    out[0] = '\0';
    for (; *names != NULL; names++)
        clean_join(out, SETTINGS_TEXT_BYTES, "|", "%s", *names);
}

enum err settings_value_wrong(const struct setting *setting, const char *found,
                              const char *place)
{
    static const char *const wanted[] = {
        [SETTING_INT] = "a whole number",
        [SETTING_FLOAT] = "a number",
        [SETTING_BOOL] = "true or false",
        [SETTING_STRING] = "a string in quotes",
        [SETTING_PATH] = "a path in quotes",
        [SETTING_CHOICE] = "in quotes, one of ",
        [SETTING_DURATION] = "a duration in quotes, such as \"60ba\"",
        [SETTING_BYTES] = "a size in quotes, such as \"8GiB\"",
        [SETTING_LIST] = "a list of groups, ( { NAME = VALUE; }, ... )",
    };
    char choices[SETTINGS_TEXT_BYTES] = "";
    if (setting->type == SETTING_CHOICE)
        settings_value_choices(setting->names, choices);
    return err_set(ERR_USAGE, "%s: '%s' must be %s%s, not %s", place,
                   setting->key, wanted[setting->type], choices, found);
}

static enum err settings_value_check(const struct setting *setting,
                                     double number, const char *shown,
                                     const char *place)
{
    assert(setting->min <= setting->max);
    double min = setting->min;
    double max = setting->max;
    if ((min == 0 && max == 0) || (number >= min && number <= max))
        return ERR_OK;
    if (max >= SETTINGS_LARGE && number < min)
        return err_set(ERR_USAGE, "%s: '%s' must be at least %.16g, not %.40s",
                       place, setting->key, min, shown);
    if (max >= SETTINGS_LARGE || min <= -SETTINGS_LARGE)
        return err_set(ERR_USAGE, "%s: '%s' must be at most %.16g, not %.40s",
                       place, setting->key, max, shown);
    return err_set(ERR_USAGE, "%s: '%s' must be from %.15g to %.15g, not %.40s",
                   place, setting->key, min, max, shown);
}

enum err settings_value_integer(const struct setting *setting, int64_t integer,
                                const char *place, struct settings_value *out)
{
    if (setting->type != SETTING_INT && setting->type != SETTING_FLOAT &&
        setting->type != SETTING_BYTES)
        return settings_value_wrong(setting, "a whole number", place);
    char shown[32];
    snprintf(shown, sizeof shown, "%lld", (long long)integer);
    out->integer = integer;
    out->number = (double)integer;
    out->present = true;
    return settings_value_check(setting, out->number, shown, place);
}

enum err settings_value_number(const struct setting *setting, double number,
                               const char *place, struct settings_value *out)
{
    if (setting->type == SETTING_INT)
        return settings_value_wrong(
            setting, "a number with a decimal point or exponent", place);
    if (setting->type != SETTING_FLOAT)
        return settings_value_wrong(setting, "a decimal number", place);
    if (!isfinite(number))
        return settings_value_wrong(setting, "one beyond double precision",
                                    place);
    char shown[32];
    snprintf(shown, sizeof shown, "%.15g", number);
    out->number = number;
    out->present = true;
    return settings_value_check(setting, number, shown, place);
}

enum err settings_folder_current(char out[SETTINGS_TEXT_BYTES])
{
    if (getcwd(out, SETTINGS_TEXT_BYTES) == NULL)
        return err_set(ERR_USAGE, "the current folder: %s", strerror(errno));
    return ERR_OK;
}

/* FOLDER/.. goes, where that is a folder and no link to one. */
static void settings_fold(char path[SETTINGS_TEXT_BYTES])
{
    struct stat status;
    char *from = path, *up;
    while ((up = strstr(from, "/..")) != NULL) {
        from = up + 1;
        if (up[3] != '/' && up[3] != '\0')
            continue;
        *up = '\0';
        char *last = up == path ? path : strrchr(path, '/');
        bool folds = up == path ||
                     (last != NULL && strcmp(last, "/..") != 0 &&
                      lstat(path, &status) == 0 && S_ISDIR(status.st_mode));
        *up = '/';
        if (!folds)
            continue;
        memmove(last, up + 3, strlen(up + 3) + 1);
        from = last;
    }
    if (path[0] == '\0')
        memcpy(path, "/", 2);
}

/* folder/path, or path if that is absolute. */
static enum err settings_join(const char *folder, const char *path,
                              char out[SETTINGS_TEXT_BYTES])
{
    while (path[0] == '.' && path[1] == '/') {
        path += 2;
        path += strspn(path, "/");
    }
    int n;
    if (path[0] == '/')
        n = snprintf(out, SETTINGS_TEXT_BYTES, "%s", path);
    else if (path[0] == '\0' || strcmp(path, ".") == 0)
        n = snprintf(out, SETTINGS_TEXT_BYTES, "%s", folder);
    else
        n = snprintf(out, SETTINGS_TEXT_BYTES, "%s%s%s", folder,
                     strcmp(folder, "/") == 0 ? "" : "/", path);
    if (n < 0 || n >= SETTINGS_TEXT_BYTES)
        return err_set(ERR_USAGE, "path longer than %d bytes: %.100s...",
                       SETTINGS_TEXT_BYTES - 1, path);
    settings_fold(out);
    return ERR_OK;
}

enum err settings_folder_of(const char *path, char out[SETTINGS_TEXT_BYTES])
{
    char current[SETTINGS_TEXT_BYTES] = "";
    char parent[SETTINGS_TEXT_BYTES];
    const char *slash = strrchr(path, '/');
    size_t bytes = slash == NULL ? 0 : (size_t)(slash - path);
    if (bytes >= sizeof parent)
        return err_set(ERR_USAGE, "path longer than %d bytes: %.100s...",
                       SETTINGS_TEXT_BYTES - 1, path);
    memcpy(parent, path, bytes);
    parent[bytes] = '\0';
    if (slash == path)
        snprintf(parent, sizeof parent, "/");
    if (path[0] != '/')
        TRY(settings_folder_current(current));
    return settings_join(current, parent, out);
}

static bool settings_is_auto(const struct setting *setting, const char *text)
{
    return (setting->flags & SETTING_AUTO) != 0 && strcmp(text, "auto") == 0;
}

enum err settings_value_no_choice(const char *place, const char *key,
                                  const char *const *names, const char *text,
                                  const char *ours)
{
    char choices[SETTINGS_TEXT_BYTES], hint[SETTINGS_TEXT_BYTES] = "";
    const char *near = settings_nearest_choice(names, text);
    settings_value_choices(names, choices);
    if (ours != NULL)
        snprintf(hint, sizeof hint, "; here that is %s", ours);
    else if (near != NULL)
        snprintf(hint, sizeof hint, "; did you mean '%s'?", near);
    return err_set(ERR_USAGE, "%s: '%s' must be one of %s, not '%.40s'%s",
                   place, key, choices, text, hint);
}

static enum err settings_value_choice(const struct setting *setting,
                                      const char *text, const char *place,
                                      struct settings_value *out)
{
    for (out->choice = 0; setting->names[out->choice] != NULL; out->choice++)
        if (strcmp(setting->names[out->choice], text) == 0)
            return ERR_OK;
    return settings_value_no_choice(place, setting->key, setting->names, text,
                                    settings_foreign_choice(setting, text));
}

/* "WORD://...", where that may be. */
static bool settings_is_address(const struct setting *setting, const char *text)
{
    size_t word = strspn(text, "abcdefghijklmnopqrstuvwxyz"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
    return (setting->flags & SETTING_ADDRESS) != 0 && word > 0 &&
           strncmp(text + word, "://", 3) == 0;
}

/* What a shell or a library of paths would understand, but mkdir would make a
 * folder of. */
static enum err settings_value_path(const struct setting *setting,
                                    const char *text, const char *folder,
                                    const char *place,
                                    struct settings_value *out)
{
    const char *wrong = NULL;
    for (const char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            wrong = "has a line end or another control character";
    if (text[0] == '~')
        wrong = "begins with ~, which only a shell understands: write it out";
    else if (text[0] == '$')
        wrong = "begins with $, and variables are not filled in: write it out";
    else if (strstr(text, "://") != NULL && !settings_is_address(setting, text))
        wrong = "is an address: give a folder of this machine";
    if (wrong != NULL)
        return err_set(ERR_USAGE, "%s: '%s' %s", place, setting->key, wrong);
    if (text[0] == '\0')
        return ERR_OK;
    if (settings_is_address(setting, text)) {
        memcpy(out->text, text, strlen(text));
        return ERR_OK;
    }
    return err_prefix(settings_join(folder, text, out->text), "%s: '%s'", place,
                      setting->key);
}

enum err settings_value_string(const struct setting *setting, const char *text,
                               const char *folder, const char *place,
                               struct settings_value *out)
{
    enum err rc = ERR_OK;
    if (strlen(text) >= SETTINGS_TEXT_BYTES)
        return err_set(ERR_USAGE, "%s: '%s' is longer than %d bytes", place,
                       setting->key, SETTINGS_TEXT_BYTES - 1);
    memset(out->text, 0, SETTINGS_TEXT_BYTES);
    switch (setting->type) {
    case SETTING_INT:
        if (settings_is_auto(setting, text))
            return settings_value_integer(setting, 0, place, out);
        return settings_value_wrong(setting, "a string", place);
    case SETTING_FLOAT:
    case SETTING_BOOL:
    case SETTING_LIST:
        return settings_value_wrong(setting, "a string", place);
    case SETTING_CHOICE:
        TRY(settings_value_choice(setting, text, place, out));
        break;
    case SETTING_STRING:
        memcpy(out->text, text, strlen(text));
        break;
    case SETTING_PATH:
        TRY(settings_value_path(setting, text, folder, place, out));
        break;
    case SETTING_DURATION:
        if (settings_is_auto(setting, text))
            out->duration = (struct duration){ .unit = UNIT_AUTO };
        else
            rc = units_parse(text, &out->duration);
        break;
    case SETTING_BYTES:
        rc = units_bytes_parse(text, &out->integer);
        if (rc == ERR_OK)
            return settings_value_integer(setting, out->integer, place, out);
        break;
    }
    TRY(err_prefix(rc, "%s: '%s'", place, setting->key));
    out->present = true;
    return ERR_OK;
}

bool settings_vanishes(const char *text, const char *end, double number)
{
    size_t mantissa = strcspn(text, "eE");
    if (number != 0)
        return false;
    for (const char *p = text; p < end && p < text + mantissa; p++)
        if (*p >= '1' && *p <= '9')
            return true;
    return false;
}

/* The whole of `text` is a number, without blanks, hex floats, inf or nan. */
static bool settings_read_number(const char *text, double *number)
{
    if (text[0] == '\0' || text[strspn(text, "+-.0123456789eE")] != '\0')
        return false;
    char *end = NULL;
    *number = strtod(text, &end);
    return *end == '\0' && !settings_vanishes(text, end, *number);
}

static bool settings_read_integer(const char *text, int64_t *integer)
{
    if (text[0] == '\0' || isspace((unsigned char)text[0]))
        return false;
    char *end = NULL;
    errno = 0;
    *integer = strtoll(text, &end, 10);
    return *end == '\0' && errno == 0;
}

/* What a command line has no quotes for: everything is a text, and the setting says
 * what it has to be. */
enum err settings_value_parse(const struct setting *setting, const char *text,
                              const char *folder, const char *place,
                              struct settings_value *out)
{
    char shown[64];
    assert(setting->type <= SETTING_LIST && place[0] != '\0');
    snprintf(shown, sizeof shown, "'%.40s'", text);
    int64_t integer = 0;
    double number = 0;
    switch (setting->type) {
    case SETTING_INT:
        if (settings_is_auto(setting, text))
            return settings_value_integer(setting, 0, place, out);
        if (!settings_read_integer(text, &integer))
            return settings_value_wrong(setting, shown, place);
        return settings_value_integer(setting, integer, place, out);
    case SETTING_FLOAT:
        if (!settings_read_number(text, &number))
            return settings_value_wrong(setting, shown, place);
        return settings_value_number(setting, number, place, out);
    case SETTING_BOOL:
        out->truth = strcasecmp(text, "true") == 0;
        if (!out->truth && strcasecmp(text, "false") != 0)
            return settings_value_wrong(setting, shown, place);
        out->present = true;
        return ERR_OK;
    case SETTING_LIST:
        return settings_list_value(setting, text, folder, place, out);
    default:
        return settings_value_string(setting, text, folder, place, out);
    }
}

/* The member that holds a value of each type. As many bytes of it are the field
 * of the caller's struct, in the same form. */
#define HELD(member)                                                           \
    {                                                                          \
        offsetof(struct settings_value, member),                               \
            sizeof((struct settings_value *)NULL)->member                      \
    }
#define HELD_TEXT                                                              \
    {                                                                          \
        offsetof(struct settings_value, text), SETTINGS_TEXT_BYTES             \
    }
static const struct {
    size_t at, bytes;
} settings_held[] = {
    [SETTING_INT] = HELD(integer),       [SETTING_FLOAT] = HELD(number),
    [SETTING_BOOL] = HELD(truth),        [SETTING_STRING] = HELD_TEXT,
    [SETTING_PATH] = HELD_TEXT,          [SETTING_CHOICE] = HELD(choice),
    [SETTING_DURATION] = HELD(duration), [SETTING_BYTES] = HELD(integer),
    [SETTING_LIST] = HELD(text),
};

void settings_value_apply(const struct setting *setting,
                          const struct settings_value *value, void *out)
{
    assert(value->present);
    memcpy((char *)out + setting->offset,
           (const char *)value + settings_held[setting->type].at,
           settings_held[setting->type].bytes);
}

void settings_value_fetch(const struct setting *setting, const void *values,
                          struct settings_value *out)
{
    assert(setting->type >= SETTING_INT && setting->type <= SETTING_LIST);
    memset(out, 0, sizeof *out);
    out->present = true;
    memcpy((char *)out + settings_held[setting->type].at,
           (const char *)values + setting->offset,
           settings_held[setting->type].bytes);
    out->text[SETTINGS_VALUE_BYTES - 1] = '\0';
}

void settings_copy(const struct setting *setting, const void *from, void *to)
{
    struct settings_value value;
    settings_value_fetch(setting, from, &value);
    settings_value_apply(setting, &value, to);
}
