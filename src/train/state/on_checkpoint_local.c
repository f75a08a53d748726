/* The folder of node-local checkpoints from checkpoint.local_dir, the job's
 * number and the run, and the run's secret.
 *
 * A folder of a node, such as below /tmp, may be one that others write to. So what
 * is found there must be signed to be believed, and the key lies where only the
 * run's owner can put it: in the run directory. */
#include "src/train/state/on_checkpoint_parts.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/digest.h"
#include "src/base/log.h"
#include "src/job/slurm.h"

#define SECRET_FILE ".secret"
#define SECRET_DIGITS 64

/* --- the secret --- */

static enum err secret_make(const char *path, char secret[SECRET_DIGITS + 1])
{
    unsigned char random[SECRET_DIGITS / 2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_errno("getrandom");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(secret + 2 * i, 3, "%02x", random[i]);
    return fsio_write_private(path, secret, SECRET_DIGITS);
}

/* Rank 0, which has the run's lock. What others can read, or have made, is no
 * secret: then there is a new one. */
static enum err secret_find(const char *run_dir, char secret[SECRET_DIGITS + 1])
{
    char path[FSIO_PATH_MAX];
    struct stat status;
    TRY(fsio_path(path, "%s/" SECRET_FILE, run_dir));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool good = fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
                status.st_uid == geteuid() && (status.st_mode & 077) == 0 &&
                read(fd, secret, SECRET_DIGITS) == SECRET_DIGITS;
    fsio_close(fd);
    secret[SECRET_DIGITS] = '\0';
    return good ? ERR_OK : secret_make(path, secret);
}

/* --- the folder --- */

static enum err folder_of(const char *setting, const char *run_dir,
                          char out[FSIO_PATH_MAX])
{
    const char *job = strstr(setting, "%j");
    struct slurm slurm;
    if (setting[0] != '/')
        return err_set(ERR_USAGE,
                       "checkpoint.local_dir = \"%s\": must be an absolute "
                       "path, it is a folder of every node",
                       setting);
    char *run = realpath(run_dir, NULL);
    if (run == NULL)
        return err_errno("%s", run_dir);
    uint32_t number = crc32c(0, run, strlen(run));
    free(run);
    slurm_read(&slurm);
    if (job == NULL)
        TRY(fsio_path(out, "%s/%08" PRIx32, setting, number));
    else
        TRY(fsio_path(out, "%.*s%ld%s/%08" PRIx32, (int)(job - setting),
                      setting, slurm.job_id, job + 2, number));
    return ERR_OK;
}

/* All ranks: what is to be said of it, once. */
static enum err agree_on_folder(struct comm *comm, enum err opened,
                                const char *path,
                                struct on_checkpoint_local *out)
{
    struct err_kept kept;
    err_keep(&kept, comm_agree(comm, opened));
    int64_t strangers = out->own.strangers;
    if (kept.code == ERR_COMM)
        return err_again(&kept);
    TRY(comm_all_reduce_i64(comm, &strangers, 1, COMM_MAX));
    bool first = comm_rank(comm) == 0;
    if (kept.code == ERR_OK)
        out->dir = out->own.at;
    else if (first)
        log_warn("no checkpoints are kept on the nodes: %s", kept.text);
    if (kept.code == ERR_OK && strangers > 0 && first)
        log_warn("%s: the name is not ours on %s: %s is used", path,
                 comm_size(comm) > 1 ? "a node" : "this machine",
                 out->own.path);
    return ERR_OK;
}

enum err on_checkpoint_local_open(struct comm *comm, const char *setting,
                                  const char *run_dir,
                                  struct on_checkpoint_local *out)
{
    char path[FSIO_PATH_MAX];
    *out =
        (struct on_checkpoint_local){ .own.fd = -1,
                                      .of_job = strstr(setting, "%j") != NULL };
    if (setting[0] == '\0')
        return ERR_OK;
    TRY(comm_agree(comm, folder_of(setting, run_dir, path)));
    TRY(comm_agree(comm, comm_rank(comm) == 0
                             ? secret_find(run_dir, out->secret)
                             : ERR_OK));
    TRY(comm_broadcast(comm, out->secret, sizeof out->secret, 0));
    return agree_on_folder(comm, own_open(path, &out->own), path, out);
}

/* The folder and those that it lies in, as far as they are empty, by descriptors: a
 * path may lead elsewhere by now. */
static void remove_empty(int fd, char *path, int levels)
{
    char *name;
    int at = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    while (at >= 0 && levels-- > 0 && (name = strrchr(path, '/')) != NULL &&
           unlinkat(at, name + 1, AT_REMOVEDIR) == 0) {
        int up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        *name = '\0';
        fsio_close(at);
        at = up;
    }
    fsio_close(at);
}

void on_checkpoint_local_close(struct on_checkpoint_local *local)
{
    if (local == NULL || local->secret[0] == '\0')
        return;
    if (local->own.fd >= 0)
        remove_empty(local->own.fd, local->own.path, local->of_job ? 2 : 1);
    own_close(&local->own);
    explicit_bzero(local->secret, sizeof local->secret);
}
