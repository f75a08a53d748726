/* Tells of files in a checkpoint's folder that its manifest does not name, for
 * tessera-ckpt verify. They harm nothing, but somebody put them there. */
#include "checkpoint/tools/ckpt_tools.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/files/ckpt_index_private.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/new.h"

struct others {
    const char *dir;
    struct ckpt_named *files; /* of the checkpoint, sorted */
    size_t count;
    ckpt_read_damage other;
    void *arg;
};

static void add_file(struct others *others, const char *name)
{
    others->files[others->count++] = (struct ckpt_named){ .name = name };
}

static enum err list_files(const struct ckpt_manifest *manifest,
                           struct others *others)
{
    TRY(new_room(&others->files, (size_t)manifest->shard_count + 3));
    for (int s = 0; s < manifest->shard_count; s++)
        add_file(others, manifest->shards[s].file);
    add_file(others, CKPT_MANIFEST_FILE);
    add_file(others, CKPT_INDEX_PINNED);
    add_file(others, CKPT_VIEW_FILE);
    ckpt_named_sort(others->files, others->count);
    return ERR_OK;
}

/* Shards lie in folders of these names where there are many. */
static bool is_shard_folder(const char *path, const char *name)
{
    struct stat status;
    return (strcmp(name, "shards") == 0 ||
            fnmatch("shards/[0-9]*", name, FNM_PATHNAME) == 0) &&
           lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* `inside` is the folder's path in the checkpoint, "" or with a slash after it.
 */
static enum err walk(const struct others *others, const char *inside)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX], name[FSIO_PATH_MAX], text[FSIO_PATH_MAX + 64];
    TRY(fsio_path(path, "%s/%s", others->dir, inside));
    DIR *folder = opendir(path);
    if (folder == NULL)
        return err_errno("%s: open", path);
    for (struct dirent *entry; rc == ERR_OK && (entry = readdir(folder));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        rc = fsio_path(name, "%s%s", inside, entry->d_name);
        if (rc == ERR_OK)
            rc = fsio_path(path, "%s/%s", others->dir, name);
        if (rc != ERR_OK ||
            ckpt_named_find(others->files, others->count, name) >= 0)
            continue;
        if (is_shard_folder(path, name)) {
            rc = fsio_path(path, "%s/", name);
            rc = rc == ERR_OK ? walk(others, path) : rc;
        } else {
            snprintf(text, sizeof text, "%s: is no part of the checkpoint",
                     path);
            rc = others->other(others->arg, text);
        }
    }
    closedir(folder);
    return rc;
}

enum err ckpt_check_others(const char *checkpoint_dir,
                           const struct ckpt_manifest *manifest,
                           ckpt_read_damage other, void *arg)
{
    enum err rc = ERR_OK;
    struct others others = { .dir = checkpoint_dir,
                             .other = other,
                             .arg = arg };
    TRY_OUT(list_files(manifest, &others));
    TRY_OUT(walk(&others, ""));
out:
    free(others.files);
    return rc;
}
