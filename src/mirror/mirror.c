/* Names, shares and the order of things in a mirror.
 *
 * Nothing is ever put over anything: a folder's name tells its contents, so an
 * upload that begins again puts the same bytes, and who reads meets either a
 * checkpoint whole or none. Removing begins with MANIFEST.json. */
#include "src/mirror/mirror.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/base/new.h"

#define RUN_DIGITS 8
#define SAVE_DIGITS 12
#define DIGITS (1 + RUN_DIGITS + 1 + SAVE_DIGITS) /* "-RUN-SAVE" */

void mirror_step_free(struct mirror_step *step)
{
    ckpt_manifest_destroy(step->manifest);
    free(step->text);
    *step = (struct mirror_step){ .step = -1 };
}

static enum err run_digits(const char *uuid, char hex[65])
{
    TRY(digest_bytes(uuid, strlen(uuid), hex));
    hex[RUN_DIGITS] = '\0';
    return ERR_OK;
}

enum err mirror_step_of(const char *checkpoint_dir, struct mirror_step *out)
{
    enum err rc = ERR_OK;
    char run[65], hex[65], path[FSIO_PATH_MAX];
    *out = (struct mirror_step){ .step = -1 };
    TRY(fsio_path(path, "%s/" CKPT_MANIFEST_FILE, checkpoint_dir));
    TRY_OUT(
        fsio_read_file(path, STORE_BYTES_MAX, &out->text, &out->text_bytes));
    TRY_OUT(ckpt_manifest_parse_as(out->text, out->text_bytes, path, true,
                                   &out->manifest));
    const char *uuid =
        json_string_value(json_object_get(out->manifest->state, "run_uuid"));
    TRY_OUT(run_digits(uuid != NULL ? uuid : "", run));
    TRY_OUT(digest_bytes(out->text, out->text_bytes, hex));
    out->step = out->manifest->step;
    snprintf(out->folder, sizeof out->folder,
             CKPT_STEP_PREFIX "%0*lld-%.*s-%.*s", CKPT_STEP_DIGITS,
             (long long)out->step, RUN_DIGITS, run, SAVE_DIGITS, hex);
out:
    if (rc != ERR_OK)
        mirror_step_free(out);
    return rc;
}

/* What a name of the list says, "step-N-RUN-SAVE/". */
struct named {
    int64_t step; /* -1: it is none */
    char run[RUN_DIGITS + 1];
    char folder[64];
};

static void take_apart(const struct store_name *of, struct named *out)
{
    size_t length = strcspn(of->name, "/");
    *out = (struct named){ .step = -1 };
    if (of->bytes >= 0 || length <= DIGITS || length >= sizeof out->folder)
        return;
    const char *digits = of->name + length - DIGITS;
    if (digits[0] != '-' || digits[1 + RUN_DIGITS] != '-' ||
        strspn(digits, "-0123456789abcdef") != DIGITS)
        return;
    memcpy(out->folder, of->name, length);
    memcpy(out->run, digits + 1, RUN_DIGITS);
    out->step =
        ckpt_manifest_step_after(of->name, length - DIGITS, CKPT_STEP_PREFIX);
}

/* Whether the folder is a checkpoint. */
static enum err is_whole(struct store *store, const char *folder, bool *whole)
{
    char path[FSIO_PATH_MAX];
    int64_t bytes;
    TRY(fsio_path(path, "%.63s/" CKPT_MANIFEST_FILE, folder));
    TRY(store_size(store, path, &bytes));
    *whole = bytes > 0;
    return ERR_OK;
}

/* The newest of a run (NULL: of any) above a step, each once. */
static void pick(struct store_names *names, int64_t above, const char *run,
                 struct named *out)
{
    int newest = -1;
    *out = (struct named){ .step = -1 };
    for (int i = 0; i < names->count; i++) {
        struct named one;
        take_apart(&names->list[i], &one);
        if (one.step <= above || one.step <= out->step ||
            (run != NULL && strcmp(one.run, run) != 0))
            continue;
        *out = one;
        newest = i;
    }
    if (newest >= 0)
        names->list[newest].bytes = 0; /* no folder any more */
}

enum err mirror_newest(struct store *store, int64_t above, const char *uuid,
                       struct mirror_step *out)
{
    enum err rc = ERR_OK;
    char run[65];
    bool whole = false;
    struct store_names names;
    struct named one, other;
    *out = (struct mirror_step){ .step = -1 };
    TRY(run_digits(uuid, run));
    TRY(store_list(store, CKPT_STEP_PREFIX, true, &names));
    while (!whole) {
        pick(&names, above, uuid[0] != '\0' ? run : NULL, &one);
        if (one.step < 0)
            break;
        TRY_OUT(is_whole(store, one.folder, &whole));
        out->step = whole ? one.step : -1;
        memcpy(out->folder, one.folder, sizeof out->folder);
    }
    /* nobody's uploads that were cut off do not count */
    whole = false;
    for (int i = 0; i < names.count && uuid[0] == '\0' && !whole; i++) {
        take_apart(&names.list[i], &other);
        if (other.step > above && strcmp(one.run, other.run) != 0)
            TRY_OUT(is_whole(store, other.folder, &whole));
    }
    if (whole)
        rc = err_set(ERR_USAGE,
                     "%s has checkpoints of several runs, and this one has "
                     "none by which to tell: give a folder of one run",
                     store_address(store));
out:
    store_names_free(&names);
    return rc;
}

/* --- files --- */

/* The files of a checkpoint but MANIFEST.json: shards, then the view. */
static int file_count(const struct mirror_step *step)
{
    return step->manifest->shard_count + (step->manifest->view.bytes > 0);
}

static const char *file_of(const struct mirror_step *step, int i,
                           int64_t *bytes)
{
    const struct ckpt_manifest *manifest = step->manifest;
    bool view = i == manifest->shard_count;
    *bytes = view ? manifest->view.bytes : manifest->shards[i].bytes;
    return view ? CKPT_VIEW_FILE : manifest->shards[i].file;
}

/* Neighbours in the order of ranks wrote neighbours in that of files. */
static bool is_share(int file, int files, int rank, int ranks)
{
    return (int64_t)file * ranks / files == rank;
}

enum err mirror_put(struct store *store, const struct mirror_step *step,
                    const char *checkpoint_dir, int rank, int ranks)
{
    for (int i = 0; i < file_count(step); i++) {
        char name[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
        int64_t bytes, there;
        if (!is_share(i, file_count(step), rank, ranks))
            continue;
        const char *file = file_of(step, i, &bytes);
        TRY(fsio_path(name, "%s/%s", step->folder, file));
        TRY(fsio_path(path, "%s/%s", checkpoint_dir, file));
        TRY(store_size(store, name, &there));
        if (there != bytes)
            TRY(store_put_file(store, name, path, bytes));
    }
    return ERR_OK;
}

enum err mirror_missing(struct store *store, const struct mirror_step *step,
                        int *count, char file[CKPT_FILE_BYTES])
{
    enum err rc = ERR_OK;
    char prefix[sizeof step->folder + 1];
    struct store_names names = { 0 };
    struct ckpt_named *sorted = NULL;
    *count = 0;
    snprintf(prefix, sizeof prefix, "%s/", step->folder);
    TRY_OUT(store_list(store, prefix, false, &names));
    TRY_OUT(new_room(&sorted, (size_t)names.count + 1));
    for (int i = 0; i < names.count; i++)
        sorted[i] =
            (struct ckpt_named){ names.list[i].name + strlen(prefix), i };
    ckpt_named_sort(sorted, (size_t)names.count);
    for (int i = file_count(step); i-- > 0;) {
        int64_t bytes;
        const char *name = file_of(step, i, &bytes);
        int at = ckpt_named_find(sorted, (size_t)names.count, name);
        if (at >= 0 && names.list[at].bytes == bytes)
            continue;
        snprintf(file, CKPT_FILE_BYTES, "%s", name);
        ++*count;
    }
out:
    free(sorted);
    store_names_free(&names);
    return rc;
}

enum err mirror_commit(struct store *store, const struct mirror_step *step)
{
    char name[FSIO_PATH_MAX];
    TRY(fsio_path(name, "%s/" CKPT_MANIFEST_FILE, step->folder));
    return store_put(store, name, step->text, step->text_bytes);
}

static enum err remove_folder(struct store *store, const char *folder)
{
    char first[FSIO_PATH_MAX], prefix[FSIO_PATH_MAX];
    TRY(fsio_path(prefix, "%.63s/", folder));
    TRY(fsio_path(first, "%s" CKPT_MANIFEST_FILE, prefix));
    return store_remove(store, first, prefix);
}

/* Names come in the order of steps, since these have leading zeros. */
enum err mirror_retain(struct store *store, const struct mirror_step *step,
                       int64_t keep, int64_t keep_every, bool later)
{
    enum err rc = ERR_OK;
    struct store_names names;
    struct named own, one;
    int64_t kept = 1;
    TRY(store_list(store, CKPT_STEP_PREFIX, true, &names));
    take_apart(&(struct store_name){ (char *)step->folder, -1 }, &own);
    for (int i = names.count; i-- > 0;) {
        bool whole = false;
        take_apart(&names.list[i], &one);
        bool after = one.step >= own.step;
        bool always = keep_every > 0 && one.step % keep_every == 0;
        if (one.step < 0 || strcmp(one.run, own.run) != 0 ||
            strcmp(one.folder, own.folder) == 0 || (after && !later))
            continue;
        bool newest = keep == 0 || kept < keep;
        if (!after && !newest && always)
            continue; /* looked at when it was one of the newest */
        if (!after && newest)
            TRY_OUT(is_whole(store, one.folder, &whole));
        kept += whole;
        if (!whole)
            TRY_OUT(remove_folder(store, one.folder));
    }
out:
    store_names_free(&names);
    return rc;
}

/* --- back --- */

enum err mirror_get_manifest(struct store *store, const char *folder,
                             const char *to)
{
    char name[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    int64_t bytes;
    TRY(fsio_path(name, "%.63s/" CKPT_MANIFEST_FILE, folder));
    TRY(fsio_path(path, "%s/" CKPT_MANIFEST_FILE, to));
    return store_get(store, name, path, -1, &bytes);
}

/* Durable, since a rename will make a checkpoint of it. */
static enum err get_file(struct store *store, const char *name,
                         const char *path, int64_t bytes)
{
    char parent[FSIO_PATH_MAX];
    TRY(fsio_parent(path, parent));
    TRY(fsio_mkdirs(parent));
    TRY(store_get(store, name, path, bytes, &bytes));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    enum err rc = fd >= 0 && fsync(fd) == 0 ? ERR_OK : err_errno("%s", path);
    fsio_close(fd);
    return rc == ERR_OK ? fsio_fsync_dir(parent) : rc;
}

enum err mirror_get(struct store *store, const struct mirror_step *step,
                    const char *to, int rank, int ranks)
{
    for (int i = 0; i < file_count(step); i++) {
        char name[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
        int64_t bytes;
        if (!is_share(i, file_count(step), rank, ranks))
            continue;
        const char *file = file_of(step, i, &bytes);
        TRY(fsio_path(name, "%s/%s", step->folder, file));
        TRY(fsio_path(path, "%s/%s", to, file));
        TRY(get_file(store, name, path, bytes));
    }
    return ERR_OK;
}
