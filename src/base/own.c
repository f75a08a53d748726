/* Walks paths by descriptors, and agrees with this user's other processes on a
 * folder where names are anybody's.
 *
 * In /tmp whoever is first has a name, so a name that can be foretold cannot be
 * relied on, and a random one cannot be found by the next process. Both at
 * once: each process looks for folders STEM.UID.RANDOM that are the user's own
 * and closed to others. Where there is none it makes one, and looks again.
 * Where there are several, as after a race, they are locked in the order of
 * their names, which all processes share, so nobody waits in a circle. If a
 * second look shows the same set, the one with the sticky bit is it, or the
 * first, which gets that bit; the others, which are empty, go. If not, all
 * begins again. So once a folder has been taken every later process takes it,
 * and one that was made meanwhile is seen by the second look of whoever holds
 * the locks, or its maker sees the bit. */
#include "src/base/own.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clean.h"
#include "src/base/new.h"

#define OWN_LINKS_MAX 40
#define OWN_RACES_MAX 100
#define OWN_NAMES_MAX 32 /* of ours for one path: more than one is a race */
#define OWN_FOLDER (O_PATH | O_DIRECTORY | O_CLOEXEC)
#define OWN_OTHERS (S_IWGRP | S_IWOTH)
/* The one that was agreed on. It means nothing else on a folder that only its
 * owner may write to. */
#define OWN_TAKEN S_ISVTX

/* --- what is ours --- */

/* NULL: only we, and root, can put something there. */
static const char *own_wrong(const struct stat *status)
{
    return S_ISLNK(status->st_mode)              ? "is a link"
           : !S_ISDIR(status->st_mode)           ? "is no folder"
           : status->st_uid != geteuid()         ? "belongs to another user"
           : (status->st_mode & OWN_OTHERS) != 0 ? "can be written to by others"
                                                 : NULL;
}

/* What is ours, or the administrator's, whoever may write to it. */
static bool own_may_pass(const struct stat *status)
{
    return own_wrong(status) == NULL ||
           (S_ISDIR(status->st_mode) && status->st_uid == 0);
}

static enum err own_refuse(const char *path, const char *name,
                           const struct stat *status)
{
    const char *wrong = own_wrong(status);
    return err_set(ERR_SPACE,
                   "%s%s%s: %s, so nothing is put there; name a folder of your "
                   "own that is closed to others (chmod go-w)",
                   path, name[0] != '\0' ? "/" : "", name, wrong);
}

static bool own_is(int parent, const char *name, struct stat *status)
{
    return fstatat(parent, name, status, AT_SYMLINK_NOFOLLOW) == 0 &&
           own_wrong(status) == NULL;
}

/* --- one among ours --- */

struct own_names {
    char name[OWN_NAMES_MAX][NAME_MAX + 1];
    int fd[OWN_NAMES_MAX];
    int count, strangers;
};

static int own_compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* What is called `stem`, and is not ours, or stem.UID.*. */
static enum err own_scan(int parent, const char *stem, struct own_names *names)
{
    char prefix[NAME_MAX + 1];
    struct stat status;
    const struct dirent *entry;
    names->count = names->strangers = 0;
    memset(names->name, 0, sizeof names->name);
    int length = snprintf(prefix, sizeof prefix, "%s.%lu.", stem,
                          (unsigned long)geteuid());
    if (length > NAME_MAX - 16)
        return err_set(ERR_USAGE, "%s: the name is too long", stem);
    int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        enum err rc = err_errno("%s: look for it", stem);
        fsio_close(fd);
        return rc;
    }
    while ((entry = readdir(dir)) != NULL) {
        bool like = strncmp(entry->d_name, prefix, (size_t)length) == 0;
        if (!like && strcmp(entry->d_name, stem) != 0)
            continue;
        if (!own_is(parent, entry->d_name, &status))
            names->strangers++;
        else if (like && names->count < OWN_NAMES_MAX)
            strcpy(names->name[names->count++], entry->d_name);
        else if (like && (status.st_mode & OWN_TAKEN) != 0)
            strcpy(names->name[OWN_NAMES_MAX - 1], entry->d_name);
    }
    closedir(dir);
    qsort(names->name, (size_t)names->count, sizeof names->name[0],
          own_compare);
    return ERR_OK;
}

static enum err own_make_random(int parent, const char *stem)
{
    unsigned long long random;
    char name[NAME_MAX + 1];
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_errno("getrandom");
    snprintf(name, sizeof name, "%.200s.%lu.%016llx", stem,
             (unsigned long)geteuid(), random);
    if (mkdirat(parent, name, 0700) != 0 && errno != EEXIST)
        return err_errno("%s: create folder", name);
    return ERR_OK;
}

static bool own_lock(int parent, struct own_names *names)
{
    bool all = true;
    for (int i = 0; i < names->count; i++) {
        names->fd[i] = openat(parent, names->name[i],
                              O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        all &= names->fd[i] >= 0;
        if (names->fd[i] >= 0)
            (void)flock(names->fd[i], LOCK_EX);
    }
    return all;
}

/* All are locked, in the order of their names, and nobody has made another
 * before the look that followed: so of two processes that get here the later one
 * sees what the earlier one has taken. Whoever lost a race has an empty folder
 * less. */
static int own_take(int parent, struct own_names *names)
{
    struct stat status;
    int taken = 0;
    for (int i = 0; i < names->count; i++)
        if (fstat(names->fd[i], &status) == 0 &&
            (status.st_mode & OWN_TAKEN) != 0) {
            taken = i;
            break;
        }
    (void)fchmod(names->fd[taken], 0700 | OWN_TAKEN);
    for (int i = 0; i < names->count; i++)
        if (i != taken)
            (void)unlinkat(parent, names->name[i], AT_REMOVEDIR);
    return taken;
}

static enum err own_agree(int parent, const char *stem, char *name,
                          int *strangers)
{
    enum err rc = ERR_OK;
    bool done = false;
    struct own_names *now = NULL;
    TRY(new_zeroed(&now, 2));
    struct own_names *again = now + 1;
    while (!done) {
        TRY_OUT(own_scan(parent, stem, now));
        if (now->count == 0) {
            TRY_OUT(own_make_random(parent, stem));
            continue;
        }
        bool all = own_lock(parent, now);
        rc = own_scan(parent, stem, again);
        done = rc == ERR_OK && all &&
               memcmp(now->name, again->name, sizeof now->name) == 0;
        if (done)
            strcpy(name, now->name[own_take(parent, now)]);
        *strangers = now->strangers;
        for (int i = 0; i < now->count; i++)
            fsio_close(now->fd[i]);
        TRY_OUT(rc);
    }
out:
    free(now);
    return rc;
}

/* --- the way --- */

struct own_walk {
    int fd;
    bool anybodys; /* below a folder that others may write to */
    bool directly;
    int links, races, strangers;
    char path[FSIO_PATH_MAX]; /* so far */
    char rest[FSIO_PATH_MAX];
};

static enum err own_start(struct own_walk *walk)
{
    fsio_close(walk->fd);
    walk->fd = open("/", OWN_FOLDER);
    walk->path[0] = '\0';
    return walk->fd < 0 ? err_errno("/: open") : ERR_OK;
}

/* The next name of walk->rest; *name is "" at the end. */
static enum err own_next(struct own_walk *walk, char name[NAME_MAX + 1])
{
    const char *from = walk->rest + strspn(walk->rest, "/");
    size_t length = strcspn(from, "/");
    if (length > NAME_MAX)
        return err_set(ERR_USAGE, "%s: a name in it is too long", walk->rest);
    memcpy(name, from, length);
    name[length] = '\0';
    memmove(walk->rest, from + length, strlen(from + length) + 1);
    return ERR_OK;
}

/* A link of the administrator's or the user's. */
static enum err own_follow(struct own_walk *walk, const char *name)
{
    char target[FSIO_PATH_MAX], whole[FSIO_PATH_MAX];
    ssize_t length = readlinkat(walk->fd, name, target, sizeof target - 1);
    if (length < 0 || walk->links++ == OWN_LINKS_MAX)
        return err_set(ERR_SPACE, "%s/%s: cannot follow the link", walk->path,
                       name);
    target[length] = '\0';
    TRY(fsio_path(whole, "%s%s", target, walk->rest));
    memcpy(walk->rest, whole, sizeof whole);
    return target[0] == '/' ? own_start(walk) : ERR_OK;
}

/* The name to go on with where names are anybody's. */
static enum err own_choose(struct own_walk *walk, char name[NAME_MAX + 1])
{
    struct stat status;
    bool there = fstatat(walk->fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && own_may_pass(&status))
        return ERR_OK;
    if (walk->directly)
        return own_agree(walk->fd, name, name, &walk->strangers);
    return there ? own_refuse(walk->path, name, &status) : ERR_OK;
}

static enum err own_step(struct own_walk *walk, char name[NAME_MAX + 1],
                         bool *gone)
{
    struct stat status;
    if (walk->anybodys)
        TRY(own_choose(walk, name));
    /* other errors than EEXIST are also said of what is there */
    int failed = mkdirat(walk->fd, name, 0700) == 0 ? 0 : errno;
    if (fstatat(walk->fd, name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        /* or what it was to lie in is gone */
        *gone = errno == ENOENT &&
                (failed == 0 || failed == EEXIST || failed == ENOENT);
        errno = failed != 0 ? failed : errno;
        return *gone ? ERR_OK
                     : err_errno("%s/%s: create folder", walk->path, name);
    }
    if (S_ISLNK(status.st_mode) && !walk->anybodys)
        return own_follow(walk, name);
    int fd =
        openat(walk->fd, name, OWN_FOLDER | (walk->anybodys ? O_NOFOLLOW : 0));
    *gone = fd < 0 && errno == ENOENT;
    if (*gone)
        return ERR_OK;
    if (fd < 0)
        return err_errno("%s/%s: open", walk->path, name);
    close(walk->fd);
    walk->fd = fd;
    if (fstat(fd, &status) != 0)
        return err_errno("%s/%s: look at it", walk->path, name);
    /* changed since it was chosen */
    if (walk->anybodys && !own_may_pass(&status))
        return own_refuse(walk->path, name, &status);
    walk->directly = (status.st_mode & S_IWOTH) != 0;
    walk->anybodys |= walk->directly;
    size_t length = strlen(walk->path);
    if (length + strlen(name) + 2 > sizeof walk->path)
        return err_set(ERR_USAGE, "%s: the path is too long", walk->path);
    snprintf(walk->path + length, sizeof walk->path - length, "/%s", name);
    return ERR_OK;
}

/* Under way it was removed, by another process of ours that needs it no more:
 * the walk begins anew. */
static enum err own_again(struct own_walk *walk, const char *path)
{
    if (++walk->races == OWN_RACES_MAX)
        return err_errno("%s: is made and removed by others", path);
    walk->anybodys = walk->directly = false;
    TRY(fsio_path(walk->rest, "%s", path));
    return own_start(walk);
}

/* `fd` is closed or given to out. */
static enum err own_finish(int fd, const char *path, struct own *out)
{
    struct stat status;
    enum err rc = ERR_OK;
    snprintf(out->path, sizeof out->path, "%s", path);
    snprintf(out->at, sizeof out->at, CLEAN_AT "%d", fd);
    if (fstat(fd, &status) != 0)
        rc = err_errno("%s: look at it", path);
    else if (own_wrong(&status) != NULL)
        rc = own_refuse(path, "", &status);
    else if (access(out->at, F_OK) != 0)
        rc = err_set(ERR_SPACE,
                     "%s: nothing is put there, as /proc is not mounted", path);
    if (rc == ERR_OK)
        clean_alias("", out->at, out->path);
    else
        close(fd);
    out->fd = rc == ERR_OK ? fd : -1;
    return rc;
}

enum err own_open(const char *path, struct own *out)
{
    enum err rc = ERR_OK;
    struct own_walk walk = { .fd = -1 };
    char name[NAME_MAX + 1];
    assert(path[0] == '/');
    *out = (struct own){ .fd = -1 };
    TRY_OUT(fsio_path(walk.rest, "%s", path));
    TRY_OUT(own_start(&walk));
    for (;;) {
        bool gone = false;
        TRY_OUT(own_next(&walk, name));
        if (name[0] == '\0')
            break;
        if (strcmp(name, ".") != 0)
            TRY_OUT(own_step(&walk, name, &gone));
        if (gone)
            TRY_OUT(own_again(&walk, path));
    }
    rc = own_finish(walk.fd, walk.path, out);
    out->strangers = walk.strangers;
    walk.fd = -1;
out:
    fsio_close(walk.fd);
    return rc;
}

enum err own_open_in(const struct own *parent, const char *name,
                     struct own *out)
{
    char path[FSIO_PATH_MAX];
    *out = (struct own){ .fd = -1 };
    TRY(fsio_path(path, "%s/%s", parent->path, name));
    if (mkdirat(parent->fd, name, 0700) != 0 && errno != EEXIST &&
        errno != ENOENT)
        return err_errno("%s: create folder", path);
    int fd = openat(parent->fd, name, OWN_FOLDER | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT)
        return ERR_OK;
    if (fd < 0 && errno != ENOTDIR && errno != ELOOP)
        return err_errno("%s: open", path);
    if (fd < 0)
        fd = openat(parent->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return own_finish(fd, path, out);
}

void own_close(struct own *own)
{
    if (own->fd < 0)
        return;
    clean_alias(own->at, "", "");
    close(own->fd);
    own->fd = -1;
}

enum err own_remove(int parent_fd, const char *parent, const char *name)
{
    enum err rc = ERR_OK;
    struct stat status;
    const struct dirent *entry;
    DIR *dir = NULL;
    char path[FSIO_PATH_MAX];
    if (!own_is(parent_fd, name, &status))
        return ERR_OK;
    int fd = openat(parent_fd, name,
                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? ERR_OK
                               : err_errno("%s/%s: open", parent, name);
    if (fstat(fd, &status) != 0 || own_wrong(&status) != NULL) {
        close(fd);
        return ERR_OK;
    }
    dir = fdopendir(fd);
    while (rc == ERR_OK && dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        rc = fsio_path(path, CLEAN_AT "%d/%s", fd, entry->d_name);
        if (rc == ERR_OK)
            rc = fsio_remove_tree(path);
    }
    if (dir != NULL)
        closedir(dir);
    else
        close(fd);
    TRY(err_prefix(rc, "%s/%s", parent, name));
    if (unlinkat(parent_fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        return err_errno("%s/%s: remove", parent, name);
    return ERR_OK;
}
