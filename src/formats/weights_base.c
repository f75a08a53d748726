/* Checks what a state says of its base, and finds where that is.
 *
 * A checkpoint may come from anybody, and its state is JSON that was written by
 * some version of some program, so each member is looked at before it is used
 * as a path, a rank or a list. A run's folder is often moved or copied together
 * with what it was trained from; the way from one to the other is in the state
 * beside the path, and is tried where the path leads nowhere. */
#include "src/formats/weights_tuned.h"

#include <assert.h>
#include <string.h>

#include "src/base/settings/settings.h"

#define SHA256_CHARS 64
#define RANK_MAX 65536
#define ALPHA_MAX 1e6 /* of the setting */

static enum err refuse(const char *where, const char *member,
                       const char *wanted)
{
    return err_set(ERR_CHECKPOINT,
                   "%s has a part of its model, and its state's base.%s is not "
                   "%s",
                   where, member, wanted);
}

/* NULL is none. */
static bool is_text(const json_t *value, size_t least, size_t most)
{
    size_t length = json_string_length(value);
    return value == NULL ||
           (json_is_string(value) && length >= least && length <= most &&
            strlen(json_string_value(value)) == length);
}

static bool is_within(const json_t *value, double least, double most)
{
    double number = json_number_value(value);
    return json_is_number(value) && number >= least && number <= most;
}

static enum err check_lora(const json_t *lora, const char *where)
{
    const json_t *rank = json_object_get(lora, "rank");
    const json_t *dropout = json_object_get(lora, "dropout");
    if (!json_is_object(lora))
        return refuse(where, "lora", "an object");
    if (!json_is_integer(rank) || !is_within(rank, 1, RANK_MAX))
        return refuse(where, "lora.rank", "a rank of adapters");
    if (!is_within(json_object_get(lora, "alpha"), 1e-6, ALPHA_MAX))
        return refuse(where, "lora.alpha", "a number between 1e-6 and 1e6");
    if (dropout != NULL && !is_within(dropout, 0.0, 0.99))
        return refuse(where, "lora.dropout", "a number between 0 and 0.99");
    if (!is_text(json_object_get(lora, "targets"), 0, SETTINGS_TEXT_BYTES))
        return refuse(where, "lora.targets", "a list of globs");
    return ERR_OK;
}

enum err weights_base_check(const json_t *base, const char *where)
{
    assert(where != NULL);
    const json_t *path = json_object_get(base, "path");
    const json_t *sha256 = json_object_get(base, "sha256");
    const json_t *seed = json_object_get(base, "seed");
    const json_t *lora = json_object_get(base, "lora");
    const json_t *sums = json_object_get(base, "crc32c");
    if (path == NULL && seed == NULL)
        return err_set(ERR_CHECKPOINT,
                       "%s has a part of its model, and its state does not say "
                       "what the rest is",
                       where);
    if (seed != NULL && !json_is_integer(seed))
        return refuse(where, "seed", "a seed");
    if (!is_text(path, 1, FSIO_PATH_MAX - 1))
        return refuse(where, "path", "a path");
    if (!is_text(json_object_get(base, "from_run"), 0, FSIO_PATH_MAX - 1))
        return refuse(where, "from_run", "a path");
    if ((path != NULL && sha256 == NULL) ||
        !is_text(sha256, SHA256_CHARS, SHA256_CHARS))
        return refuse(where, "sha256", "a digest");
    if (!is_text(json_object_get(base, "ignore"), 0, SETTINGS_TEXT_BYTES))
        return refuse(where, "ignore", "a list of globs");
    if (sums != NULL && !json_is_object(sums))
        return refuse(where, "crc32c", "an object of checksums");
    return lora != NULL ? check_lora(lora, where) : ERR_OK;
}

bool weights_base_moved(const json_t *base, const char *run_dir,
                        char out[FSIO_PATH_MAX])
{
    assert(run_dir != NULL && out != NULL);
    const char *path = json_string_value(json_object_get(base, "path"));
    const char *way = json_string_value(json_object_get(base, "from_run"));
    return path != NULL && way != NULL && !fsio_exists(path) &&
           fsio_path(out, "%s/%s", run_dir, way) == ERR_OK && fsio_exists(out);
}
