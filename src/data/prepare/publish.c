/* Builds a data set's folder under a hidden name and puts it in its place, over
 * an older one only if that holds nothing but a data set.
 *
 * Linux can rename a folder so that nothing is replaced (RENAME_NOREPLACE), and
 * exchange two of them (RENAME_EXCHANGE): with these there is a whole set under
 * the name at every moment, the old or the new one. Some network file systems
 * know neither; there the old folder steps aside first.
 *
 * Replacing means removing what a user has, so it goes by names and never by
 * trees: before anything is built every name in the old folder must be one that
 * tokenizing makes; after the exchange only such names are removed, one by one.
 * A file that came in between stays, with its folder, and the error says where.
 */
#include "src/data/prepare/publish.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/output.h"
#include "src/data/mds/mds_index.h"
#include "src/data/set/sidecar.h"

static bool publish_is_shard(const char *name)
{
    static const char head[] = "shard.";
    size_t digits = strspn(name + sizeof head - 1, "0123456789");
    return strncmp(name, head, sizeof head - 1) == 0 && digits >= 5 &&
           strcmp(name + sizeof head - 1 + digits, ".mds") == 0;
}

enum publish_entry { PUBLISH_FILE, PUBLISH_PART };

/* What tokenizing makes; `top`: also its parts. */
static bool publish_is_ours(int folder, const char *name, bool top,
                            enum publish_entry *entry)
{
    struct stat status;
    if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return false;
    bool part = strcmp(name, "train") == 0 || strcmp(name, "eval") == 0;
    *entry = part ? PUBLISH_PART : PUBLISH_FILE;
    if (part)
        return top && S_ISDIR(status.st_mode);
    return S_ISREG(status.st_mode) &&
           (strcmp(name, MDS_INDEX_NAME) == 0 ||
            strcmp(name, SIDECAR_NAME) == 0 ||
            strcmp(name, TOKENIZER_COPY_NAME) == 0 || publish_is_shard(name));
}

static enum err publish_foreign(const char *path, const char *what)
{
    return err_set(ERR_USAGE,
                   "%s%s, so --force does not replace the folder; remove it "
                   "yourself or choose another one",
                   path, what);
}

/* The next name in a folder but . and ..; NULL: there is none. */
static const char *publish_next(DIR *folder)
{
    const struct dirent *entry = NULL;
    while ((entry = readdir(folder)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            return entry->d_name;
    return NULL;
}

/* A sidecar that tokenizing wrote is what tells a folder of ours. */
static enum err publish_check_sidecar(const char *path)
{
    struct sidecar sidecar;
    enum err rc = sidecar_read(path, &sidecar);
    if (rc == ERR_MEMORY || rc == ERR_IO)
        return rc;
    if (rc != ERR_OK)
        return publish_foreign(path, " is not a data set of tessera-data "
                                     "tokenize");
    bool adopted = sidecar.adopted;
    sidecar_release(&sidecar);
    return adopted ? publish_foreign(path, " was written by another program "
                                           "(tessera-data adopt described it)")
                   : ERR_OK;
}

/* Empty, or nothing but what tokenizing makes. */
static enum err publish_check_folder(const char *path, bool top)
{
    enum err rc = ERR_OK;
    char inner[FSIO_PATH_MAX];
    const char *name = NULL;
    bool any_file = false;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return err_errno("%s: open", path);
    while ((name = publish_next(folder)) != NULL) {
        enum publish_entry entry = PUBLISH_FILE;
        TRY_OUT(fsio_path(inner, "%s/%s", path, name));
        if (!publish_is_ours(dirfd(folder), name, top, &entry))
            TRY_OUT(publish_foreign(inner, " is not a file of a data set"));
        if (entry == PUBLISH_PART)
            TRY_OUT(publish_check_folder(inner, false));
        any_file = any_file || entry == PUBLISH_FILE;
    }
    if (any_file)
        TRY_OUT(publish_check_sidecar(path));
out:
    closedir(folder);
    return rc;
}

/* Remove a folder that publish_check_folder() allowed, by the names that it
 * allows, so that what came to it meanwhile stays. */
static enum err publish_remove(const char *path, bool top)
{
    enum err rc = ERR_OK;
    char inner[FSIO_PATH_MAX];
    const char *name = NULL;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return err_errno("%s: open", path);
    while ((name = publish_next(folder)) != NULL) {
        enum publish_entry entry = PUBLISH_FILE;
        if (!publish_is_ours(dirfd(folder), name, top, &entry))
            continue;
        TRY_OUT(fsio_path(inner, "%s/%s", path, name));
        if (entry == PUBLISH_PART)
            TRY_OUT(publish_remove(inner, false));
        else if (unlink(inner) != 0 && errno != ENOENT) {
            TRY_OUT(err_errno("%s: remove", inner));
        }
    }
    if (rmdir(path) != 0)
        rc = err_set(ERR_DATA,
                     "%s: the folder that was replaced has files that are not "
                     "of a data set, so it was not removed",
                     path);
out:
    closedir(folder);
    return rc;
}

static enum err publish_check(const char *path, bool replace)
{
    struct stat status;
    if (lstat(path, &status) != 0)
        return errno == ENOENT ? ERR_OK : err_errno("%s: stat", path);
    if (!replace)
        return err_set(ERR_USAGE,
                       "%s exists already; choose another folder (tokenize "
                       "replaces its own with --force)",
                       path);
    if (!S_ISDIR(status.st_mode))
        return publish_foreign(path, " is not a folder");
    return publish_check_folder(path, true);
}

/* A folder that nobody has yet. */
static enum err publish_make(struct publish *publish)
{
    char building[FSIO_PATH_MAX];
    TRY(output_temporary(publish->path, building));
    if (mkdir(building, 0777) != 0)
        return err_errno("%s: mkdir", building);
    memcpy(publish->building, building, sizeof building);
    return ERR_OK;
}

enum err publish_name(struct publish *publish, const char *path)
{
    *publish = (struct publish){ .replace = false };
    TRY(fsio_path(publish->path, "%s", path));
    size_t length = strlen(publish->path);
    while (length > 1 && publish->path[length - 1] == '/')
        publish->path[--length] = '\0';
    const char *name = basename(publish->path);
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return err_set(ERR_USAGE, "'%s' does not name a new folder", path);
    TRY(fsio_parent(publish->path, publish->parent));
    return fsio_path(publish->work, "%s/.%s.tokenize", publish->parent, name);
}

enum err publish_begin(struct publish *publish, const char *path, bool replace)
{
    TRY(publish_name(publish, path));
    publish->replace = replace;
    TRY(publish_check(publish->path, replace));
    TRY(fsio_mkdirs(publish->parent));
    return publish_make(publish);
}

enum err publish_again(struct publish *publish, bool replace)
{
    assert(publish->work[0] != '\0');
    publish->replace = replace;
    publish->again = true;
    TRY(publish_check(publish->path, replace));
    TRY(fsio_path(publish->building, "%s/set", publish->work));
    return fsio_mkdirs(publish->building);
}

/* Where the file system cannot exchange two names, the old folder steps aside
 * first; between the two renames there is none. */
static enum err publish_step_aside(struct publish *publish,
                                   char old[FSIO_PATH_MAX])
{
    assert(publish->replace);
    enum err rc = ERR_OK;
    TRY(fsio_path(old, "%s.old", publish->building));
    if (rename(publish->path, old) != 0)
        return err_errno("%s: rename", publish->path);
    if (rename(publish->building, publish->path) != 0) {
        rc = err_errno("%s: rename", publish->building);
        (void)rename(old, publish->path);
        return rc;
    }
    publish->building[0] = '\0';
    return rc;
}

static int publish_rename(const struct publish *publish, unsigned flags)
{
    return renameat2(AT_FDCWD, publish->building, AT_FDCWD, publish->path,
                     flags);
}

enum err publish_commit(struct publish *publish)
{
    char old[FSIO_PATH_MAX] = ""; /* what was replaced */
    assert(publish->building[0] != '\0');
    TRY(fsio_fsync_dir(publish->building));
    bool moved = publish_rename(publish, RENAME_NOREPLACE) == 0;
    /* Some network file systems know no flags. */
    if (!moved && errno != EEXIST && errno != EINVAL && errno != ENOSYS)
        return err_errno("%s: rename", publish->building);
    /* no flags here, and nothing in the way: a plain rename, which replaces at
     * most an empty folder that came this moment */
    if (!moved && !fsio_exists(publish->path)) {
        if (rename(publish->building, publish->path) != 0)
            return err_errno("%s: rename", publish->building);
        moved = true;
    }
    if (!moved && !publish->replace)
        return err_set(ERR_USAGE,
                       "%s was made by another process meanwhile; choose "
                       "another folder",
                       publish->path);
    if (!moved)
        TRY(publish_check(publish->path, true)); /* as at the beginning */
    if (!moved && publish_rename(publish, RENAME_EXCHANGE) == 0)
        memcpy(old, publish->building, sizeof old);
    else if (!moved)
        TRY(publish_step_aside(publish, old));
    publish->building[0] = '\0';
    TRY(fsio_fsync_dir(publish->parent));
    if (old[0] == '\0')
        return ERR_OK;
    publish->keep = true; /* what is not of a data set */
    TRY(publish_remove(old, true));
    publish->keep = false;
    return ERR_OK;
}

void publish_end(struct publish *publish)
{
    struct err_kept kept; /* why it ends is told, not what stays */
    err_keep(&kept, ERR_INTERNAL);
    if (publish->again && !publish->keep)
        (void)fsio_remove_tree(publish->work);
    else if (publish->building[0] != '\0' && !publish->again)
        (void)fsio_remove_tree(publish->building);
    publish->building[0] = '\0';
    (void)err_again(&kept);
}
