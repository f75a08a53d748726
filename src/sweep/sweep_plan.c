/* Reads the file of a sweep, makes its runs' names and command lines, and remembers
 * what their folders were made for.
 *
 * Nothing is listed: run `number` is a number in a system of mixed radix, whose
 * digits are the places of its values in the lists of the axes, the last axis
 * lowest. So ten thousand runs cost nothing, a job of an array needs its number
 * alone, and adding a value to the first axis leaves the numbers of all runs
 * before it as they were.
 *
 * A name has the values in it, for whoever looks into the folder. Values are
 * anybody's text: what no file should be called becomes "_", and a name that is
 * too long is cut and ends with a hash of all values (FNV-1a, each with its end),
 * so that two runs do not become one. The rest of its settings stands in the
 * configuration, which somebody may have edited since. So the folder has a SHA-256 of
 * all settings that count, each with its value as it is used, not the text of a file:
 * comments, order and what is written though it is the default change nothing. */
#include "src/sweep/sweep.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/train/settings/train_settings.h"
#include "src/train/start/start_settings.h"

static const struct setting axis_schema[] = {
    SETTINGS_ROW(offsetof(struct sweep_axis, key), "key", STRING, NULL, 0,
                 "a setting of tessera-train"),
    SETTINGS_ROW(offsetof(struct sweep_axis, values), "values", STRING, NULL, 0,
                 "its values, with | between"),
};
static const struct settings_kind axis_kinds[] = {
    { NULL, "a setting and its values", axis_schema, 2 },
    { 0 },
};

#define ROW(type, field, default_, help)                                       \
    SETTINGS_ROW(offsetof(struct sweep, settings.field), #field, type,         \
                 default_, 0, help),
static const struct setting schema[] = { SWEEP_SETTINGS(ROW) };
#define COUNT (int)(sizeof schema / sizeof schema[0])

void sweep_help(FILE *out)
{
    settings_help(schema, COUNT, NULL, out);
}

/* The text without blanks at its ends. */
static enum err add_value(struct sweep_axis *axis, const char *text,
                          size_t bytes)
{
    while (bytes > 0 && isspace((unsigned char)text[0])) {
        text++;
        bytes--;
    }
    while (bytes > 0 && isspace((unsigned char)text[bytes - 1]))
        bytes--;
    if (bytes == 0)
        return err_set(ERR_USAGE, "grid: %s has an empty value in \"%s\"",
                       axis->key, axis->values);
    char *value = NULL;
    TRY(new_text_part(&value, text, bytes));
    assert(axis->list[axis->count] == NULL);
    axis->list[axis->count++] = value;
    return ERR_OK;
}

/* "a | b" becomes the list, which has room for all. */
static enum err cut_values(struct sweep_axis *axis)
{
    size_t most = 1;
    for (const char *p = axis->values; *p != '\0'; p++)
        most += *p == '|';
    TRY(new_zeroed(&axis->list, most));
    for (const char *p = axis->values;; p++) {
        size_t bytes = strcspn(p, "|");
        TRY(add_value(axis, p, bytes));
        p += bytes;
        if (*p == '\0')
            return ERR_OK;
    }
}

static enum err read_axis(struct sweep *sweep, const struct setting *grid,
                          int index)
{
    int kind = 0;
    struct sweep_axis *axis = &sweep->axes[index];
    TRY(settings_list_item(grid, sweep->settings.grid, index, &kind, axis));
    sweep->axis_count = index + 1;
    for (int i = 0; i < index; i++)
        if (strcmp(sweep->axes[i].key, axis->key) == 0)
            return err_set(ERR_USAGE, "grid: %s stands there twice", axis->key);
    if (strcmp(axis->key, "run.dir") == 0)
        return err_set(ERR_USAGE, "grid: run.dir is set by the sweep");
    TRY(cut_values(axis));
    sweep->runs *= axis->count;
    if (sweep->runs > SWEEP_RUNS_MAX)
        return err_set(ERR_USAGE, "grid: more than %d runs", SWEEP_RUNS_MAX);
    return ERR_OK;
}

enum err sweep_load(const char *path, struct sweep *sweep)
{
    int axes = 0;
    const struct setting *grid = &schema[COUNT - 1];
    memset(sweep, 0, sizeof *sweep);
    TRY(settings_load(schema, COUNT, path, NULL, 0, sweep, NULL));
    TRY(settings_list_count(grid, sweep->settings.grid, &axes));
    if (axes < 1 || axes > SWEEP_AXES_MAX)
        return err_set(ERR_USAGE, "%s: grid has %d settings: give 1 to %d",
                       path, axes, SWEEP_AXES_MAX);
    sweep->runs = 1;
    for (int i = 0; i < axes; i++) {
        TRY(err_prefix(read_axis(sweep, grid, i), "%s", path));
    }
    return ERR_OK;
}

void sweep_free(struct sweep *sweep)
{
    for (int a = 0; a < sweep->axis_count; a++) {
        for (int i = 0; i < sweep->axes[a].count; i++)
            free(sweep->axes[a].list[i]);
        free(sweep->axes[a].list);
    }
    sweep->axis_count = 0;
}

const char *sweep_value(const struct sweep *sweep, int64_t number, int axis)
{
    assert(number >= 0 && number < sweep->runs && axis >= 0 &&
           axis < sweep->axis_count);
    for (int a = sweep->axis_count - 1; a > axis; a--)
        number /= sweep->axes[a].count;
    return sweep->axes[axis].list[number % sweep->axes[axis].count];
}

void sweep_name(const struct sweep *sweep, int64_t number,
                char name[SWEEP_NAME_BYTES])
{
    assert(number >= 0 && number < sweep->runs);
    size_t used =
        (size_t)snprintf(name, SWEEP_NAME_BYTES, "%03lld", (long long)number);
    for (int a = 0; a < sweep->axis_count && used < SWEEP_NAME_BYTES; a++)
        used +=
            (size_t)snprintf(name + used, SWEEP_NAME_BYTES - used, "-%s=%s",
                             sweep->axes[a].key, sweep_value(sweep, number, a));
    if (used >=
        SWEEP_NAME_BYTES) { /* cut: a hash of the whole tells it apart */
        uint64_t hash = 0xcbf29ce484222325;
        for (int a = 0; a < sweep->axis_count; a++)
            for (const char *p = sweep_value(sweep, number, a);; p++) {
                hash = (hash ^ (unsigned char)*p) * 0x100000001b3;
                if (*p == '\0')
                    break;
            }
        snprintf(name + SWEEP_NAME_BYTES - 18, 18, "-%016llx",
                 (unsigned long long)hash);
    }
    for (char *p = name; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && strchr(".-_=+", *p) == NULL)
            *p = '_';
}

static enum err add_word(char **words, int *count, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static enum err add_word(char **words, int *count, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int bytes = vasprintf(&words[*count], format, arguments);
    va_end(arguments);
    if (bytes < 0) {
        words[*count] = NULL;
        return err_set(ERR_MEMORY, "out of memory");
    }
    (*count)++;
    return ERR_OK;
}

/* The words of `command`, then the run's own. */
static enum err add_words(const struct sweep *sweep, int64_t number,
                          char **words)
{
    char name[SWEEP_NAME_BYTES];
    int count = 0;
    for (const char *p = sweep->settings.command; *p != '\0';) {
        size_t bytes = strcspn(p, " \t\n");
        if (bytes > 0)
            TRY(add_word(words, &count, "%.*s", (int)bytes, p));
        p += bytes + (p[bytes] != '\0');
    }
    if (count == 0)
        return err_set(ERR_USAGE, "command is empty");
    sweep_name(sweep, number, name);
    TRY(add_word(words, &count, "%s", sweep->settings.config));
    TRY(add_word(words, &count, "run.dir=%s/%s", sweep->settings.dir, name));
    for (int a = 0; a < sweep->axis_count; a++)
        TRY(add_word(words, &count, "%s=%s", sweep->axes[a].key,
                     sweep_value(sweep, number, a)));
    return ERR_OK;
}

enum err sweep_command(const struct sweep *sweep, int64_t number, char ***out)
{
    assert(number >= 0 && number < sweep->runs);
    size_t most = strlen(sweep->settings.command) + SWEEP_AXES_MAX + 4;
    char **words = NULL;
    TRY(new_zeroed(&words, most));
    enum err rc = add_words(sweep, number, words);
    if (rc != ERR_OK)
        sweep_command_free(words);
    *out = rc == ERR_OK ? words : NULL;
    return rc;
}

void sweep_command_free(char **command)
{
    for (char **word = command; word != NULL && *word != NULL; word++)
        free(*word);
    free(command);
}

/* --- whose a run's folder is --- */

static bool counts(const struct train_settings *settings,
                   const struct setting *setting)
{
    return strcmp(setting->key, "run.dir") != 0 &&
           strncmp(setting->key, "hooks.", 6) != 0 &&
           (setting->preset == NULL ||
            !train_settings_default(settings, setting));
}

/* Digest of run `number`'s settings; "": it has none, which its start will
 * tell. */
static enum err digest_run(const struct sweep *sweep, int64_t number,
                           char hex[65])
{
    assert(number >= 0 && number < sweep->runs);
    enum err rc = ERR_OK;
    char **command = NULL;
    int count = 0;
    struct train_settings *settings = NULL;
    hex[0] = '\0';
    TRY(new_zeroed(&settings, 1));
    TRY_OUT(sweep_command(sweep, number, &command));
    while (command[count] != NULL)
        count++;
    /* what stands last are its run.dir and the values of the grid */
    int own = 1 + sweep->axis_count;
    assert(count > own);
    if (start_settings_load(sweep->settings.config, command + count - own, own,
                            settings) == ERR_OK)
        TRY_OUT(train_settings_digest(settings, counts, hex));
out:
    sweep_command_free(command);
    free(settings);
    return rc;
}

static enum err folder_path(const struct sweep *sweep, int64_t number,
                            const char *file, char path[FSIO_PATH_MAX])
{
    char name[SWEEP_NAME_BYTES];
    assert(number >= 0 && number < sweep->runs);
    sweep_name(sweep, number, name);
    return fsio_path(path, "%s/%s/%s", sweep->settings.dir, name, file);
}

enum err sweep_folder_other(const struct sweep *sweep, int64_t number,
                            bool *other)
{
    char path[FSIO_PATH_MAX], now[65], *then = NULL;
    size_t bytes = 0;
    *other = false;
    TRY(folder_path(sweep, number, "ledger.jsonl", path));
    if (!fsio_exists(path))
        return ERR_OK;
    TRY(folder_path(sweep, number, SWEEP_FOLDER_DIGEST, path));
    if (!fsio_exists(path))
        return ERR_OK;
    TRY(fsio_read_file(path, 4096, &then, &bytes));
    enum err rc = digest_run(sweep, number, now);
    *other = rc == ERR_OK && now[0] != '\0' && strncmp(then, now, 64) != 0;
    free(then);
    return rc;
}

enum err sweep_folder_check(const struct sweep *sweep, int64_t number)
{
    bool other = false;
    char path[FSIO_PATH_MAX];
    TRY(folder_path(sweep, number, "", path));
    TRY(sweep_folder_other(sweep, number, &other));
    return other ? err_set(ERR_USAGE,
                           "%s has a run of other settings than this sweep has "
                           "now: name another dir for these, or move it away",
                           path)
                 : ERR_OK;
}

enum err sweep_folder_take(const struct sweep *sweep, int64_t number)
{
    char path[FSIO_PATH_MAX], now[65];
    TRY(sweep_folder_check(sweep, number));
    TRY(digest_run(sweep, number, now));
    if (now[0] == '\0')
        return ERR_OK;
    TRY(folder_path(sweep, number, "", path));
    TRY(fsio_mkdirs(path));
    TRY(folder_path(sweep, number, SWEEP_FOLDER_DIGEST, path));
    now[64] = '\n';
    return fsio_write_atomic(path, now, sizeof now);
}
