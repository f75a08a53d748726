#include "src/data/publish.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/data/mds_index.h"

static bool publish_is_empty(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL)
        return false;
    int entries = 0;
    while (entries < 3 && readdir(folder) != NULL)
        entries++;
    closedir(folder);
    return entries == 2; /* . and .. */
}

static bool publish_is_data(const char *path)
{
    static const char *const sets[] = { "", "train/", "eval/" };
    char index[FSIO_PATH_MAX];
    bool found[3] = { false };
    for (int i = 0; i < 3; i++)
        found[i] = fsio_path(index, "%s/%s%s", path, sets[i], MDS_INDEX_NAME) ==
                       ERR_OK &&
                   fsio_exists(index);
    return found[0] || (found[1] && found[2]);
}

static enum err publish_check(const char *path, bool replace)
{
    struct stat status;
    if (lstat(path, &status) != 0)
        return errno == ENOENT ? ERR_OK : err_errno("%s: stat", path);
    if (!replace)
        return err_set(ERR_USAGE,
                       "%s exists already; choose another folder, or replace "
                       "it with --force",
                       path);
    if (!S_ISDIR(status.st_mode) ||
        !(publish_is_empty(path) || publish_is_data(path)))
        return err_set(ERR_USAGE,
                       "%s is not a data set, so --force does not replace "
                       "it; remove it yourself or choose another folder",
                       path);
    return ERR_OK;
}

enum err publish_begin(struct publish *publish, const char *path, bool replace)
{
    enum err rc = ERR_OK;
    publish->building[0] = '\0';
    publish->replace = replace;
    TRY(fsio_path(publish->path, "%s", path));
    size_t length = strlen(publish->path);
    while (length > 1 && publish->path[length - 1] == '/')
        publish->path[--length] = '\0';
    const char *slash = strrchr(publish->path, '/');
    const char *name = slash != NULL ? slash + 1 : publish->path;
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return err_set(ERR_USAGE, "'%s' does not name a new folder", path);
    TRY(publish_check(publish->path, replace));
    TRY(fsio_path(publish->parent, "%.*s",
                  slash == NULL ? 1 : (int)(slash - publish->path) + 1,
                  slash == NULL ? "." : publish->path));
    TRY(fsio_mkdirs(publish->parent));
    char building[FSIO_PATH_MAX];
    TRY(fsio_path(building, "%s/.%s.tmp.%ld", publish->parent, name,
                  (long)getpid()));
    TRY(fsio_remove_tree(building));
    if (mkdir(building, 0777) != 0)
        return err_errno("%s: mkdir", building);
    memcpy(publish->building, building, sizeof building);
out:
    return rc;
}

/* Where the file system cannot exchange two names, the old folder steps aside
 * first; between the two renames there is none. */
static enum err publish_step_aside(struct publish *publish)
{
    enum err rc = ERR_OK;
    char old[FSIO_PATH_MAX];
    TRY(fsio_path(old, "%s.old", publish->building));
    TRY(fsio_remove_tree(old));
    if (rename(publish->path, old) != 0)
        return err_errno("%s: rename", publish->path);
    if (rename(publish->building, publish->path) != 0) {
        rc = err_errno("%s: rename", publish->building);
        (void)rename(old, publish->path);
        goto out;
    }
    publish->building[0] = '\0';
    TRY(fsio_remove_tree(old));
out:
    return rc;
}

static int publish_rename(const struct publish *publish, unsigned flags)
{
    return renameat2(AT_FDCWD, publish->building, AT_FDCWD, publish->path,
                     flags);
}

enum err publish_commit(struct publish *publish)
{
    enum err rc = ERR_OK;
    TRY(fsio_fsync_dir(publish->building));
    bool moved = publish_rename(publish, RENAME_NOREPLACE) == 0;
    /* Some network file systems know no flags. */
    if (!moved && errno != EEXIST && errno != EINVAL && errno != ENOSYS)
        return err_errno("%s: rename", publish->building);
    if (!moved && !fsio_exists(publish->path)) {
        if (rename(publish->building, publish->path) != 0)
            return err_errno("%s: rename", publish->building);
        moved = true;
    }
    if (moved)
        publish->building[0] = '\0';
    else if (!publish->replace)
        return err_set(ERR_USAGE,
                       "%s was made by another process meanwhile; choose "
                       "another folder",
                       publish->path);
    else if (publish_rename(publish, RENAME_EXCHANGE) != 0)
        TRY(publish_step_aside(publish));
    /* After an exchange `building` is the old folder: publish_end() removes
     * it. */
    TRY(fsio_fsync_dir(publish->parent));
out:
    return rc;
}

void publish_end(struct publish *publish)
{
    if (publish->building[0] != '\0')
        (void)fsio_remove_tree(publish->building);
    publish->building[0] = '\0';
}
