/* Local file systems: a full /dev/shm crashes MPI and NCCL at start-up with
 * errors that do not name it, a full /tmp stops Slurm's own step launch.
 *
 * Room and writing are looked at apart: a file system that was made read-only
 * after an error still tells how much room it has. So some bytes are written,
 * read and compared, in a file without a name, that leaves no trace when the
 * check is killed.
 *
 * Before and after jobs, where a bad verdict drains the node, a full file system
 * is bad only if root's own files are what fills it: users could fill it on
 * purpose, and drain every node of a cluster one after the other. */
#include "healthcheck/health_checks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "healthcheck/health_child.h"
#include "src/base/clock.h"
#include "src/base/fsio.h"

#define FS_PROBE_BYTES 4096
#define FS_NAMES 8 /* tries */
#define FS_WALK_S 1.0
#define FS_ASK_S 1.25 /* for all of it; the check has 2 s */
#define FS_WALK_DEPTH 32
#define FS_MIB 1048576.0

struct fs_place {
    const char *name; /* "SHM": begins the codes */
    const char *kind; /* "shm": for fault injection */
    const char *path;
    double free_min_mib;
    double inodes_min;
};

static void fs_bad(const struct fs_place *place, const char *code,
                   struct health_result *out)
{
    out->state = HEALTH_BAD;
    snprintf(out->code, sizeof out->code, "%s_%s", place->name, code);
}

/* --- whose it is --- */

/* What root's files below a folder take. Folders of others are not entered, so
 * that nobody can make this walk a long one. */
struct fs_walk {
    double bytes, inodes;
    double end_s;
    dev_t device;
    bool whole; /* nothing was left out */
};

static void fs_walk_add(struct fs_walk *walk, const struct stat *status)
{
    /* a file with many names is met many times */
    double names = S_ISDIR(status->st_mode) || status->st_nlink == 0
                       ? 1
                       : (double)status->st_nlink;
    walk->bytes += (double)status->st_blocks * 512 / names;
    walk->inodes += 1 / names;
}

/* Takes the descriptor. */
static void fs_walk_folder(struct fs_walk *walk, int fd, int depth)
{
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    if (folder == NULL) {
        walk->whole = false;
        if (fd >= 0)
            close(fd);
        return;
    }
    while (walk->whole && (entry = readdir(folder)) != NULL) {
        struct stat status;
        walk->whole = clock_now() < walk->end_s && depth > 0;
        if (strcmp(entry->d_name, ".") == 0 ||
            strcmp(entry->d_name, "..") == 0 ||
            fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
            status.st_uid != 0 || status.st_dev != walk->device)
            continue;
        fs_walk_add(walk, &status);
        if (S_ISDIR(status.st_mode))
            fs_walk_folder(
                walk,
                openat(fd, entry->d_name,
                       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
                depth - 1);
    }
    closedir(folder);
}

/* Whether there would be too little without anything of the users: what is left
 * of the whole beside root's files. Files that were removed and are still open
 * count as the users', and so does all else of a disk that /tmp is a part of.
 */
static bool fs_is_roots(const struct fs_place *place, const char *path,
                        bool inodes, const struct statvfs *status)
{
    struct stat top;
    struct fs_walk walk = { .end_s = clock_now() + FS_WALK_S, .whole = true };
    if (stat(path, &top) != 0)
        return false;
    walk.device = top.st_dev;
    fs_walk_folder(&walk, open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                   FS_WALK_DEPTH);
    double blocks = (double)status->f_blocks -
                    ((double)status->f_bfree - (double)status->f_bavail);
    return walk.whole &&
           (inodes ? (double)status->f_files - walk.inodes < place->inodes_min
                   : (blocks * (double)status->f_frsize - walk.bytes) / FS_MIB <
                         place->free_min_mib);
}

/* --- the check --- */

/* The same, by a process of its own: a user may have mounted a file system
 * there that never answers. Without an answer it is not told to be root's. */
static bool fs_ask_is_roots(const struct fs_place *place, const char *path,
                            bool inodes, const struct statvfs *status)
{
    bool answer = false;
    int fd;
    size_t bytes;
    pid_t pid = health_child_start(&fd);
    if (pid < 0)
        return false;
    if (pid == 0) {
        answer = fs_is_roots(place, path, inodes, status);
        health_child_end(fd, &answer, sizeof answer);
    }
    if (!health_child_wait(fd, clock_now() + FS_ASK_S, &answer, sizeof answer,
                           &bytes) ||
        bytes != sizeof answer)
        answer = false;
    kill(pid, SIGKILL);
    health_child_reap(pid);
    close(fd);
    return answer;
}

static void fs_used(const struct fs_place *place, struct health_result *out)
{
    fs_bad(place, "USED", out);
    out->state = HEALTH_WARN;
    snprintf(out->text, sizeof out->text, "%s is full of users' files",
             place->path);
}

static void fs_free(const struct health_env *env, const struct fs_place *place,
                    const char *path, struct health_result *out)
{
    struct statvfs status;
    bool full = health_injected(env->inject, place->kind, env->host, "full");
    if (statvfs(path, &status) != 0) {
        fs_bad(place, "MISSING", out);
        snprintf(out->text, sizeof out->text, "%s: %s", place->path,
                 strerror(errno));
        return;
    }
    /* What an unprivileged job can use, though we may be root. */
    out->value =
        full ? 0 : (double)status.f_bavail * (double)status.f_frsize / FS_MIB;
    /* Some file systems (btrfs) have no fixed number of inodes: 0. */
    bool inodes = out->value >= place->free_min_mib && status.f_files > 0 &&
                  (double)status.f_favail < place->inodes_min;
    if (out->value >= place->free_min_mib && !inodes)
        return;
    fs_bad(place, inodes ? "INODES" : "FULL", out);
    snprintf(out->text, sizeof out->text,
             inodes ? "%s has too few free inodes" : "%s is full", place->path);
    if (inodes) {
        out->value = (double)status.f_favail;
        out->limit = place->inodes_min;
        snprintf(out->unit, sizeof out->unit, "inodes");
    }
    if (health_drains(env) && !full &&
        !fs_ask_is_roots(place, path, inodes, &status))
        fs_used(place, out);
}

/* A file without a name: a killed check leaves nothing, and no other file can
 * be in its way. Where the file system has none, one of a name that nobody
 * guesses. */
static int fs_open(const char *folder)
{
    char path[FSIO_PATH_MAX];
    uint64_t number;
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    for (int tries = 0; tries < FS_NAMES; tries++) {
        if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number ||
            fsio_path(path, "%s/.tessera-health.%016llx", folder,
                      (unsigned long long)number) != ERR_OK)
            return -1;
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                  0600);
        if (fd >= 0)
            unlink(path);
        if (fd >= 0 || errno != EEXIST)
            break;
    }
    return fd;
}

/* NULL: fine; else the step that failed, with errno (0: other data came
 * back). */
static const char *fs_write_and_read(const char *folder)
{
    unsigned char wrote[FS_PROBE_BYTES];
    unsigned char got[FS_PROBE_BYTES] = { 0 };
    const char *failed = NULL;
    for (size_t i = 0; i < sizeof wrote; i++)
        wrote[i] = (unsigned char)(i * 131 + (i >> 8) + 7);
    int fd = fs_open(folder);
    if (fd < 0)
        return "create";
    errno = 0;
    if (pwrite(fd, wrote, sizeof wrote, 0) != (ssize_t)sizeof wrote)
        failed = "write";
    else if (pread(fd, got, sizeof got, 0) != (ssize_t)sizeof got)
        failed = "read";
    else if (memcmp(wrote, got, sizeof got) != 0)
        failed = "compare";
    int saved = errno;
    close(fd);
    errno = saved;
    return failed;
}

static enum err fs_check(const struct health_env *env,
                         const struct fs_place *place,
                         struct health_result *out)
{
    char path[FSIO_PATH_MAX];
    enum err rc = ERR_OK;
    TRY(fsio_path(path, "%s%s", env->root, place->path));
    snprintf(out->unit, sizeof out->unit, "MiB");
    out->limit = place->free_min_mib;
    fs_free(env, place, path, out);
    if (out->state != HEALTH_OK)
        return rc;
    const char *failed = fs_write_and_read(path);
    if (failed == NULL)
        return rc;
    int cause = errno;
    if (cause == EEXIST || cause == ENOMEM || cause == EMFILE ||
        cause == ENFILE) {
        rc =
            err_set(ERR_IO, "%s: %s: %s", place->path, failed, strerror(cause));
    } else if ((cause == ENOSPC || cause == EDQUOT) && health_drains(env)) {
        fs_used(place, out); /* since we asked */
    } else {
        fs_bad(place, "WRITE", out);
        snprintf(out->text, sizeof out->text, "%s: %s: %s", place->path, failed,
                 cause != 0 ? strerror(cause) : "not what was written");
    }
    return rc;
}

enum err health_fs_shm(const struct health_env *env, struct health_result *out)
{
    struct fs_place place = { "SHM", "shm", "/dev/shm",
                              env->limits.shm_free_min_mib,
                              env->limits.shm_inodes_min };
    return fs_check(env, &place, out);
}

enum err health_fs_tmp(const struct health_env *env, struct health_result *out)
{
    struct fs_place place = { "TMP", "tmp", "/tmp",
                              env->limits.tmp_free_min_mib,
                              env->limits.tmp_inodes_min };
    return fs_check(env, &place, out);
}
