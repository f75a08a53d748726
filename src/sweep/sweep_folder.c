/* Resolves a run's settings as tessera-train will, and remembers them.
 *
 * A run's folder is named after its values of the grid, so that the same command
 * finds it again and goes on. But the rest of its settings stands in the
 * configuration, which somebody may have edited since: the folder would then hold
 * a run of other settings under the same name, and a comparison would be of two
 * different things. So the folder has a SHA-256 of all settings that count, each
 * with its value as it is used, not the text of a file: comments, order and what
 * is written though it is the default change nothing. */
#include "src/sweep/sweep.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/train/settings/train_settings.h"
#include "src/train/start/start_settings.h"

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
