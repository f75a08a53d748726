/* The settings that a run had: its config.cfg, which the program has written
 * (settings_format()): a group's name and brace, a setting a line. The file is
 * not loaded as settings, for it may be of another version, and it must not be
 * able to include another one. Commands and options of plug-ins stay out, for
 * what is read here goes into pages that people pass on. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/array.h"
#include "src/base/new.h"
#include "src/report/run_history_impl.h"
#include "src/train/settings/train_settings.h"

#define CONFIG_BYTES_MAX ((size_t)1 << 20)

static char *config_trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t bytes = strlen(text);
    while (bytes > 0 && isspace((unsigned char)text[bytes - 1]))
        text[--bytes] = '\0';
    return text;
}

/* Secrets by their names or by what they look like are shown as such, not left
 * out: that one was set is no secret. */
static enum err config_keep(struct run_history *history, const char *group,
                            const char *name, const char *value)
{
    size_t bytes = strlen(value);
    struct run_setting setting = { NULL, NULL };
    if (history->setting_count == RUN_SETTINGS_MAX)
        return ERR_OK;
    TRY(array_room(&history->settings, &history->reader->rooms.settings,
                   history->setting_count + 1));
    if (bytes > 0 && value[bytes - 1] == ';')
        bytes--;
    if (asprintf(&setting.key, "%s%s%s", group, group[0] != '\0' ? "." : "",
                 name) < 0)
        return err_set(ERR_MEMORY, "out of memory");
    setting.value = train_settings_secret(setting.key, value)
                        ? strdup("(not shown)")
                        : strndup(value, bytes);
    history->settings[history->setting_count++] = setting;
    return setting.value != NULL ? ERR_OK
                                 : err_set(ERR_MEMORY, "out of memory");
}

/* Three kinds of lines matter: "name: {" and "}" open and close a group, and
 * "name = value;" is a setting of it. `group` holds the name of the group that is
 * open, or nothing. */
static enum err take_line(struct run_history *history, char *line,
                          char group[RUN_TEXT_BYTES])
{
    line = config_trim(line);
    size_t bytes = strlen(line);
    if (line[0] == '}') {
        group[0] = '\0';
        return ERR_OK;
    }
    char *equals = strchr(line, '=');
    if (equals != NULL) {
        *equals = '\0';
        return config_keep(history, group, config_trim(line),
                           config_trim(equals + 1));
    }
    if (bytes > 1 && line[bytes - 1] == '{') {
        line[strcspn(line, ": {")] = '\0';
        run_reader_text(group, RUN_TEXT_BYTES, line);
    }
    return ERR_OK;
}

struct reading {
    struct run_history *history;
    size_t bytes;               /* so far */
    char group[RUN_TEXT_BYTES]; /* that is open, or nothing */
};

static enum err too_large(const struct reading *reading)
{
    return err_set(ERR_DATA, "%s/config.cfg: more than %zu bytes",
                   reading->history->dir, CONFIG_BYTES_MAX);
}

static enum err take_bytes(void *arg, const char *line, size_t bytes)
{
    struct reading *reading = arg;
    reading->bytes += bytes;
    if (reading->bytes > CONFIG_BYTES_MAX)
        return too_large(reading);
    char *text = NULL;
    TRY(new_text_part(&text, line, bytes));
    enum err rc = take_line(reading->history, text, reading->group);
    free(text);
    return rc;
}

void run_config_forget(struct run_history *history)
{
    while (history->setting_count > 0) {
        const struct run_setting *last =
            &history->settings[--history->setting_count];
        free(last->key);
        free(last->value);
    }
}

/* It is replaced, never changed: another file is another inode. lstat(), since a
 * link is not followed (line_tail.h), and a missing file is all zeros, which is
 * as good a state as any. */
static bool is_as_read(struct stat *was, const char *path)
{
    struct stat is = { .st_ino = 0 };
    (void)lstat(path, &is);
    bool same = is.st_ino == was->st_ino && is.st_size == was->st_size &&
                is.st_mtim.tv_sec == was->st_mtim.tv_sec &&
                is.st_mtim.tv_nsec == was->st_mtim.tv_nsec;
    *was = is;
    return same;
}

enum err run_config_read(struct run_history *history)
{
    struct reading reading = { .history = history };
    struct line_tail tail = { .offset = 0 };
    TRY(fsio_path(tail.path, "%s/config.cfg", history->dir));
    if (is_as_read(&history->reader->config, tail.path))
        return ERR_OK;
    run_config_forget(history);
    enum err rc = line_tail_read(&tail, take_bytes, &reading);
    if (rc == ERR_OK && tail.too_long > 0)
        rc = too_large(&reading);
    else if (rc == ERR_OK && tail.held > 0) /* the last line has no end */
        rc = take_bytes(&reading, tail.data, tail.held);
    line_tail_free(&tail);
    return rc;
}

const char *run_history_setting(const struct run_history *run, const char *key)
{
    for (size_t i = 0; i < run->setting_count; i++)
        if (strcmp(run->settings[i].key, key) == 0)
            return run->settings[i].value;
    return "";
}
