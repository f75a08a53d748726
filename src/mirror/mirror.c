/* Names, shares and the order of things in a mirror.
 *
 * Nothing is ever put over anything: a folder's name tells its contents, so an
 * upload that begins again puts the same bytes, and who reads meets either a
 * checkpoint whole or none. Removing begins with MANIFEST.json. */
#include "src/mirror/mirror.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/files/ckpt_read.h"
#include "src/base/array.h"
#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/base/new.h"

#define RUN_DIGITS 8
#define SAVE_DIGITS 12
#define STEPS_END ((int64_t)1000000000) /* as many as have CKPT_STEP_DIGITS */
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
    out->loss = ckpt_index_loss(checkpoint_dir, out->manifest->state, out->of);
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

/* What a name of the list says, "step-N-RUN-SAVE/" or, copied from a run directory,
 * "step-N/". */
struct named {
    int64_t step; /* -1: it is none */
    char run[RUN_DIGITS + 1];
    char folder[64];
};

static void take_apart(const struct store_name *of, struct named *out)
{
    size_t length = strcspn(of->name, "/");
    *out = (struct named){ .step = -1 };
    if (of->bytes >= 0 || length >= sizeof out->folder)
        return;
    memcpy(out->folder, of->name, length);
    out->step = ckpt_manifest_step_after(of->name, length, CKPT_STEP_PREFIX);
    if (out->step >= 0 || length <= DIGITS)
        return;
    const char *digits = of->name + length - DIGITS;
    if (digits[0] != '-' || digits[1 + RUN_DIGITS] != '-' ||
        strspn(digits, "-0123456789abcdef") != DIGITS)
        return;
    memcpy(out->run, digits + 1, RUN_DIGITS);
    out->step =
        ckpt_manifest_step_after(of->name, length - DIGITS, CKPT_STEP_PREFIX);
}

int64_t mirror_names_step(const char *name)
{
    struct named named;
    take_apart(&(struct store_name){ .name = (char *)name, .bytes = -1 },
               &named);
    return named.step;
}

bool mirror_names_go_together(const char *a, const char *b)
{
    struct named one, two;
    take_apart(&(struct store_name){ .name = (char *)a, .bytes = -1 }, &one);
    take_apart(&(struct store_name){ .name = (char *)b, .bytes = -1 }, &two);
    return strcmp(one.run, two.run) == 0 &&
           (one.step != two.step || strcmp(one.folder, two.folder) == 0);
}

enum err mirror_is_whole(struct store *store, const char *folder, bool *whole)
{
    char path[FSIO_PATH_MAX];
    int64_t bytes;
    TRY(fsio_path(path, "%.63s/" CKPT_MANIFEST_FILE, folder));
    TRY(store_size(store, path, &bytes));
    *whole = bytes > 0;
    return ERR_OK;
}

/* The names of steps above one, or of so many only that they are in one page, the
 * last: the store tells by each page whether others follow. Then *first is the step
 * above which they are. Names come in the order of steps, since these have leading
 * zeros. */
static enum err list_last(struct store *store, int64_t above, int64_t *first,
                          struct store_names *names)
{
    char after[40] = "";
    bool more;
    int64_t end = STEPS_END;
    for (*first = above;; *first += (end - *first) / 2) {
        if (*first >= 0) /* behind all of it: '0' comes after '-' and '/' */
            snprintf(after, sizeof after, CKPT_STEP_PREFIX "%0*lld0",
                     CKPT_STEP_DIGITS, (long long)*first);
        TRY(store_list_page(store, CKPT_STEP_PREFIX, true, after, names,
                            &more));
        if (!more && (names->count > 0 || *first == above))
            return ERR_OK;
        store_names_free(names);
        if (more)
            above = *first;
        else
            end = *first;
        *first = above;
        if (end - above < 2)
            break;
    }
    return store_list(store, CKPT_STEP_PREFIX, true, names);
}

/* The newest of a list that is whole. Nobody's uploads that were cut off count. */
static enum err newest_of(struct store *store, const struct store_names *names,
                          int64_t above, int64_t below, const char *uuid,
                          struct mirror_step *out)
{
    char run[65];
    bool whole, any = uuid[0] == '\0';
    struct named one;
    TRY(run_digits(uuid, run));
    for (int i = names->count; i-- > 0 && (any || out->step < 0);) {
        take_apart(&names->list[i], &one);
        bool its = strcmp(one.run, run) == 0;
        if (one.step <= above || one.step >= below ||
            (any ? out->step >= 0 && its : !its))
            continue;
        TRY(mirror_is_whole(store, one.folder, &whole));
        if (!whole)
            continue;
        if (out->step >= 0)
            return err_set(ERR_USAGE,
                           "%s has checkpoints of several runs, and this one "
                           "has none by which to tell: give a folder of one",
                           store_address(store));
        out->step = one.step;
        memcpy(out->folder, one.folder, sizeof out->folder);
        memcpy(run, one.run, sizeof one.run);
    }
    return ERR_OK;
}

enum err mirror_newest(struct store *store, int64_t above, int64_t below,
                       const char *uuid, struct mirror_step *out)
{
    int64_t first;
    struct store_names names = { 0 };
    *out = (struct mirror_step){ .step = -1 };
    TRY(list_last(store, above, &first, &names));
    enum err rc = newest_of(store, &names, above, below, uuid, out);
    store_names_free(&names);
    if (rc != ERR_OK || out->step >= 0 || first == above)
        return rc;
    TRY(store_list(store, CKPT_STEP_PREFIX, true, &names));
    rc = newest_of(store, &names, above, below, uuid, out);
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

/* --- which stay --- */

void mirror_known_free(struct mirror_known *known)
{
    free(known->list);
    *known = (struct mirror_known){ .listed = false };
}

enum err mirror_known_add(struct mirror_known *known,
                          const struct mirror_step *step, enum mirror_is is)
{
    int i = 0, order = 1;
    while (i < known->count &&
           (order = strcmp(step->folder, known->list[i].folder)) > 0)
        i++;
    if (i < known->count && order == 0) {
        if (is != MIRROR_UNSEEN)
            known->list[i].is = is;
        return ERR_OK;
    }
    TRY(array_room(&known->list, &known->capacity, known->count + 1));
    memmove(known->list + i + 1, known->list + i,
            (size_t)(known->count++ - i) * sizeof *known->list);
    known->list[i] = (struct mirror_folder){ .step = step->step,
                                             .is = is,
                                             .loss = step->loss };
    memcpy(known->list[i].of, step->of, sizeof step->of);
    memcpy(known->list[i].folder, step->folder, sizeof step->folder);
    return ERR_OK;
}

static enum err list_known(struct store *store, const struct mirror_step *step,
                           struct mirror_known *known)
{
    enum err rc = ERR_OK;
    struct store_names names;
    struct named own, one;
    TRY(store_list(store, CKPT_STEP_PREFIX, true, &names));
    take_apart(
        &(struct store_name){ .name = (char *)step->folder, .bytes = -1 },
        &own);
    for (int i = 0; i < names.count && rc == ERR_OK; i++) {
        take_apart(&names.list[i], &one);
        struct mirror_step found = { .step = one.step, .loss = NAN };
        memcpy(found.folder, one.folder, sizeof one.folder);
        if (one.step >= 0 && strcmp(one.run, own.run) == 0)
            rc = mirror_known_add(known, &found, MIRROR_UNSEEN);
    }
    known->listed = rc == ERR_OK;
    store_names_free(&names);
    return rc;
}

/* Looks at those that may go for another reason than that they are later, and finds the
 * best of them. */
static enum err look_at_all(struct store *store, const struct mirror_step *step,
                            int64_t keep_every, const char *run_dir,
                            bool keep_best, struct mirror_known *known)
{
    struct mirror_folder *best = NULL;
    double least = INFINITY;
    char newest[CKPT_INDEX_OF_BYTES] = "";
    for (int i = known->count; i-- > 0;) {
        struct mirror_folder *one = &known->list[i];
        one->best = false;
        if (one->step >= step->step && strcmp(one->folder, step->folder) != 0)
            continue;
        if (keep_every == 0 || one->step % keep_every != 0)
            TRY(mirror_look(store, run_dir, keep_best, one));
        if (keep_best && one->is == MIRROR_WHOLE &&
            ckpt_index_better(one->loss, one->of, &least, newest))
            best = one;
    }
    if (best != NULL)
        best->best = true;
    return ERR_OK;
}

/* With keep 0 what is below a whole one was looked at when that came. */
enum err mirror_retain(struct store *store, const struct mirror_step *step,
                       int64_t keep, int64_t keep_every, bool later,
                       const char *run_dir, bool keep_best,
                       struct mirror_known *known)
{
    int64_t kept = 1;
    char first[FSIO_PATH_MAX], prefix[FSIO_PATH_MAX];
    if (!known->listed)
        TRY(list_known(store, step, known));
    if (keep > 0)
        TRY(look_at_all(store, step, keep_every, run_dir, keep_best, known));
    for (int i = known->count; i-- > 0;) {
        struct mirror_folder *one = &known->list[i];
        bool after = one->step >= step->step;
        bool always =
            keep == 0 || (keep_every > 0 && one->step % keep_every == 0);
        if (strcmp(one->folder, step->folder) == 0 || (after && !later))
            continue;
        bool newest = kept < (keep == 0 ? 2 : keep);
        if (!after && !newest && always)
            continue; /* looked at when it was one of the newest */
        bool stays = !after && (newest || one->best || one->pinned);
        if (stays && one->is == MIRROR_UNSEEN)
            TRY(mirror_look(store, run_dir, false, one));
        if (stays && one->is == MIRROR_WHOLE) {
            kept += newest;
            continue;
        }
        TRY(fsio_path(prefix, "%.63s/", one->folder));
        TRY(fsio_path(first, "%s" CKPT_MANIFEST_FILE, prefix));
        TRY(store_remove(store, first, prefix));
        memmove(one, one + 1, (size_t)(--known->count - i) * sizeof *one);
    }
    return ERR_OK;
}

/* --- both ways --- */

enum err mirror_get_manifest(struct store *store, const char *folder,
                             const char *to)
{
    static const char *const files[] = { CKPT_MANIFEST_FILE,
                                         CKPT_INDEX_PINNED };
    char name[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    int64_t bytes = -1;
    for (int i = 0; i < 2; i++) {
        TRY(fsio_path(name, "%.63s/%s", folder, files[i]));
        TRY(fsio_path(path, "%s/%s", to, files[i]));
        if (i > 0)
            TRY(store_size(store, name, &bytes));
        if (i == 0 || bytes >= 0)
            TRY(store_get(store, name, path, -1, &bytes));
    }
    return ERR_OK;
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

enum err mirror_files(struct store *store, const struct mirror_step *step,
                      const char *dir, int rank, int ranks, bool back)
{
    enum err rc = ERR_OK;
    struct ckpt_manifest *manifest = NULL;
    struct ckpt_read *reader = NULL;
    for (int i = 0; i < file_count(step); i++) {
        char name[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
        int64_t bytes, there;
        const char *file = file_of(step, i, &bytes);
        /* neighbours in the order of ranks wrote neighbours in that of files */
        if ((int64_t)i * ranks / file_count(step) != rank)
            continue;
        TRY_OUT(fsio_path(name, "%s/%s", step->folder, file));
        TRY_OUT(fsio_path(path, "%s/%s", dir, file));
        if (!back) {
            TRY_OUT(store_size(store, name, &there));
            if (there != bytes)
                TRY_OUT(store_put_file(store, name, path, bytes));
            continue;
        }
        TRY_OUT(get_file(store, name, path, bytes));
        if (reader == NULL) {
            TRY_OUT(ckpt_manifest_read(dir, NULL, NULL, &manifest));
            TRY_OUT(ckpt_read_create(dir, manifest, &reader));
        }
        if (i < manifest->shard_count)
            TRY_OUT(ckpt_read_all(reader, i, NULL, NULL));
    }
out:
    ckpt_read_destroy(reader);
    ckpt_manifest_destroy(manifest);
    return rc;
}
