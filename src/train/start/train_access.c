/* Gives the run directory and what is made in it the permissions of run.mode
 * and the group of run.group.
 *
 * New files get theirs from the umask and, by the folder's set-group-ID bit, from
 * its group, so nobody who writes has to think of them. A folder is opened before
 * it is looked at and changed by that descriptor: what stands at its path later is
 * left alone. */
#include "src/train/start/start.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/log.h"

#define MODE_ALL 0777
#define MODE_OWNER 0700

/* Reads an octal mode, with or without a leading 0, in which the owner can do
 * everything. */
static bool read_mode(const char *text, mode_t *mode)
{
    char *end;
    if (text[0] < '0' || text[0] > '7' || strlen(text) > 4)
        return false;
    *mode = (mode_t)strtoul(text, &end, 8);
    return *end == '\0' && *mode <= MODE_ALL &&
           (*mode & MODE_OWNER) == MODE_OWNER;
}

static enum err find_group(const char *name, gid_t *gid)
{
    errno = 0;
    const struct group *group = getgrnam(name);
    if (group == NULL)
        return err_set(ERR_USAGE, "run.group = \"%s\": %s", name,
                       errno != 0 ? strerror(errno) : "no such group");
    *gid = group->gr_gid;
    return ERR_OK;
}

enum err train_access_check(const struct train_settings *settings)
{
    mode_t mode;
    const char *text = settings->run.mode;
    if (text[0] != '\0' && !read_mode(text, &mode))
        return err_set(ERR_USAGE,
                       "run.mode = \"%s\": permissions of a folder such as "
                       "\"0750\" are wanted, with 7 for the owner",
                       text);
    return ERR_OK;
}

void train_access_mask(const struct train_settings *settings)
{
    mode_t mode;
    if (read_mode(settings->run.mode, &mode))
        umask(MODE_ALL & ~mode);
}

/* The mode and group that a folder is to have, by the settings and by what it
 * has. */
static enum err find_access(const struct train_settings *settings,
                            const struct stat *status, mode_t *mode, gid_t *gid)
{
    *gid = status->st_gid;
    *mode = status->st_mode & (MODE_ALL | S_ISGID);
    if (settings->run.mode[0] != '\0') {
        (void)read_mode(settings->run.mode, mode);
        *mode |= status->st_mode & S_ISGID;
    }
    if (settings->run.group[0] != '\0') {
        TRY(find_group(settings->run.group, gid));
        *mode |= S_ISGID;
    }
    return ERR_OK;
}

static enum err give_open(const struct train_settings *settings, int fd,
                          const char *path, bool own_only)
{
    struct stat status;
    mode_t mode;
    gid_t gid;
    assert(fd >= 0);
    if (fstat(fd, &status) != 0)
        return err_errno("%s", path);
    TRY(find_access(settings, &status, &mode, &gid));
    bool regroup = gid != status.st_gid;
    bool remode = mode != (status.st_mode & (MODE_ALL | S_ISGID));
    if ((regroup || remode) && own_only && status.st_uid != geteuid())
        return err_set(ERR_USAGE,
                       "%s: run.mode and run.group: it is another user's",
                       path);
    if (regroup && fchown(fd, (uid_t)-1, gid) != 0)
        return err_set(ERR_USAGE, "run.group = \"%s\": %s: %s",
                       settings->run.group, path, strerror(errno));
    if (remode && fchmod(fd, mode) != 0)
        return err_set(ERR_USAGE, "run.mode: %s: %s", path, strerror(errno));
    return ERR_OK;
}

/* A folder of the run that an earlier start has made; what is a link, or no
 * folder, was not. */
static enum err give_inner(const struct train_settings *settings, int run,
                           const char *name)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/%s", settings->run.dir, name));
    int fd = openat(run, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return ERR_OK;
    if (fd < 0)
        return err_errno("%s: run.mode and run.group: open", path);
    enum err rc = give_open(settings, fd, path, true);
    close(fd);
    return rc;
}

enum err train_access_give(const struct train_settings *settings)
{
    static const char *const inner[] = { "checkpoints", "reasons", "health" };
    const char *dir = settings->run.dir;
    if (settings->run.mode[0] == '\0' && settings->run.group[0] == '\0')
        return ERR_OK;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno("%s: open", dir);
    enum err rc = give_open(settings, fd, dir, false);
    for (size_t i = 0; i < sizeof inner / sizeof inner[0] && rc == ERR_OK; i++)
        if (give_inner(settings, fd, inner[i]) != ERR_OK)
            log_warn("%s", err_text());
    close(fd);
    return rc;
}
