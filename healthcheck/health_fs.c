/* Local file systems: a full /dev/shm crashes MPI and NCCL at start-up with
 * errors that do not name it, a full /tmp stops Slurm's own step launch. */
#include "healthcheck/health.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "src/base/fsio.h"

#define FS_PROBE_BYTES 4096
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

static void fs_free(const struct fs_place *place, const char *path, bool full,
                    struct health_result *out)
{
    struct statvfs status;
    if (statvfs(path, &status) != 0) {
        fs_bad(place, "MISSING", out);
        snprintf(out->text, sizeof out->text, "%s: %s", place->path,
                 strerror(errno));
        return;
    }
    /* What an unprivileged job can use, though we may be root. */
    out->value =
        full ? 0 : (double)status.f_bavail * (double)status.f_frsize / FS_MIB;
    if (out->value < place->free_min_mib) {
        fs_bad(place, "FULL", out);
        snprintf(out->text, sizeof out->text, "%s is full", place->path);
    } else if (status.f_files > 0 &&
               (double)status.f_favail < place->inodes_min) {
        /* Some file systems (btrfs) have no fixed number of inodes: 0. */
        fs_bad(place, "INODES", out);
        out->value = (double)status.f_favail;
        out->limit = place->inodes_min;
        snprintf(out->unit, sizeof out->unit, "inodes");
        snprintf(out->text, sizeof out->text, "%s has too few free inodes",
                 place->path);
    }
}

/* NULL: fine; else the step that failed, with errno (0: other data came back).
 * The file has no name while it is used, so a killed check leaves nothing. */
static const char *fs_write_and_read(const char *path)
{
    unsigned char wrote[FS_PROBE_BYTES];
    unsigned char got[FS_PROBE_BYTES] = { 0 };
    const char *failed = NULL;
    for (size_t i = 0; i < sizeof wrote; i++)
        wrote[i] = (unsigned char)(i * 131 + (i >> 8) + 7);
    int fd =
        open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return "create";
    errno = 0;
    if (unlink(path) != 0)
        failed = "unlink";
    else if (pwrite(fd, wrote, sizeof wrote, 0) != (ssize_t)sizeof wrote)
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
    char file[FSIO_PATH_MAX];
    enum err rc = ERR_OK;
    TRY(fsio_path(path, "%s%s", env->root, place->path));
    TRY(fsio_path(file, "%s/.tessera-health.%ld", path, (long)getpid()));
    snprintf(out->unit, sizeof out->unit, "MiB");
    out->limit = place->free_min_mib;
    bool full = health_injected(env->inject, place->kind, env->host, "full");
    fs_free(place, path, full, out);
    if (out->state != HEALTH_OK)
        goto out;
    const char *failed = fs_write_and_read(file);
    if (failed != NULL) {
        fs_bad(place, "WRITE", out);
        snprintf(out->text, sizeof out->text, "%s: %s: %s", place->path, failed,
                 errno != 0 ? strerror(errno) : "not what was written");
    }
out:
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
