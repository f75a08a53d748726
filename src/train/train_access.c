#include "src/train/train_access.h"

#include <errno.h>
#include <grp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODE_ALL 0777
#define MODE_OWNER 0700

/* Octal, with or without a leading 0, and the owner can do everything. */
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

enum err train_access_give(const struct train_settings *settings)
{
    enum err rc = ERR_OK;
    const char *dir = settings->run.dir;
    struct stat status;
    mode_t mode;
    gid_t gid;
    if (settings->run.mode[0] == '\0' && settings->run.group[0] == '\0')
        return ERR_OK;
    if (stat(dir, &status) != 0)
        return err_set(ERR_IO, "%s: %s", dir, strerror(errno));
    gid = status.st_gid;
    mode = status.st_mode & (MODE_ALL | S_ISGID);
    if (settings->run.mode[0] != '\0') {
        (void)read_mode(settings->run.mode, &mode);
        mode |= status.st_mode & S_ISGID;
    }
    if (settings->run.group[0] != '\0') {
        TRY(find_group(settings->run.group, &gid));
        mode |= S_ISGID;
    }
    if (gid != status.st_gid && chown(dir, (uid_t)-1, gid) != 0)
        return err_set(ERR_USAGE, "run.group = \"%s\": %s: %s",
                       settings->run.group, dir, strerror(errno));
    if (mode != (status.st_mode & (MODE_ALL | S_ISGID)) &&
        chmod(dir, mode) != 0)
        return err_set(ERR_USAGE, "run.mode: %s: %s", dir, strerror(errno));
out:
    return rc;
}
