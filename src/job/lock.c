/* Takes, checks and gives up the run lock, so that one run directory has one
 * run.
 *
 * A lock of the kernel's would go with its process, but not every shared file
 * system has them, and none tells another node that its holder's node is dead. So
 * the lock is a file that stays, and the question is when it may be taken from
 * somebody who cannot answer; lock.h has the rule.
 *
 * A stale lock is judged first, without holding anything, because squeue may
 * take seconds; then, under the guard, it is replaced only if it still is the
 * very record that was judged. So two processes that find the same dead owner
 * cannot both win. */
#include "src/job/lock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/job/lock_beat.h"
#include "src/job/lock_record.h"
#include "src/job/slurm.h"

#define LOCK_GUARD_TIMEOUT_S 30.0
#define LOCK_ROUNDS_MAX 100

struct lock {
    char path[FSIO_PATH_MAX];
    char temporary[FSIO_PATH_MAX];
    char guard[FSIO_PATH_MAX];
    char beat_path[FSIO_PATH_MAX];
    struct lock_owner self;
    struct lock_beat *beat;
    atomic_bool lost; /* somebody else has it: for good */
    char *record;     /* what the file holds while the lock is ours */
    pid_t pid;
};

static bool lock_is(const struct lock_file *file, const char *record)
{
    return file->text != NULL && file->bytes == strlen(record) &&
           memcmp(file->text, record, file->bytes) == 0;
}

/* Can the owner's process be seen from here? Two containers of one host have
 * the same boot id and other processes. */
static bool lock_sees(const struct lock_owner *self,
                      const struct lock_owner *owner)
{
    return strcmp(owner->host, self->host) == 0 &&
           strcmp(owner->boot_id, self->boot_id) == 0 &&
           strcmp(owner->pid_namespace, self->pid_namespace) == 0;
}

/* The first sign: can the owner's job, or its host, not run it any more? *known
 * says what Slurm knows, for the error; not *asked: it may know more later. */
static bool lock_ended(const struct lock_owner *self,
                       const struct lock_owner *owner, uid_t uid,
                       const char **known, bool *asked)
{
    char cluster[sizeof self->cluster];
    *known = "";
    *asked = true;
    if (owner->cluster[0] != '\0') {
        snprintf(cluster, sizeof cluster, "%s", self->cluster);
        if (cluster[0] == '\0')
            slurm_ask_config("ClusterName", cluster, sizeof cluster);
        if (strcmp(owner->cluster, cluster) != 0) {
            *known = cluster[0] != '\0' ? ", which is another cluster"
                                        : ", which cannot be asked from here";
            return false;
        }
        if (owner->job > 0 && owner->job == self->job)
            return owner->attempt < self->attempt;
        switch (owner->job > 0 ? slurm_job_state((long)owner->job)
                               : SLURM_JOB_UNKNOWN) {
        case SLURM_JOB_ENDED:
            return true;
        case SLURM_JOB_RUNNING:
            *known = ", which has not ended";
            return false;
        case SLURM_JOB_ABSENT:
            *known = ", which Slurm does not show us";
            if (uid == geteuid())
                return true;
            break;
        case SLURM_JOB_UNKNOWN:
            *asked = owner->job <= 0;
            *known = ", of which Slurm tells nothing";
            break;
        }
    }
    return strcmp(owner->host, self->host) == 0 &&
           strcmp(owner->boot_id, self->boot_id) != 0;
}

static enum err lock_busy(const struct lock *lock,
                          const struct lock_owner *owner, const char *known,
                          bool asked, double age_s)
{
    char beat[64] = "there is no heartbeat";
    char job[192] = "not in a job";
    if (age_s >= 0)
        snprintf(beat, sizeof beat, "the last heartbeat is %.0f s old", age_s);
    if (owner->job > 0)
        snprintf(job, sizeof job, "job %lld%s%s", owner->job,
                 owner->cluster[0] != '\0' ? " of " : "", owner->cluster);
    return err_set(asked ? ERR_BUSY : ERR_IO,
                   "%s: process %lld on host %s (%s%s) is training this run, "
                   "%s; end it, or remove the file if you know that it is gone",
                   lock->path, owner->pid, owner->host, job, known, beat);
}

/* ERR_OK: the owner is dead. `clock_fd` is the temporary file. */
static enum err lock_judge(const struct lock *lock,
                           const struct lock_file *file, int clock_fd)
{
    struct lock_owner owner;
    const char *known;
    bool asked;
    double age_s;
    if (!lock_record_parse(file, &owner))
        return err_set(ERR_BUSY,
                       "%s is not a lock record (damaged?); if no job uses "
                       "this run, remove the file",
                       lock->path);
    if (lock_sees(&lock->self, &owner)) {
        if (lock_record_gone(&owner))
            return ERR_OK;
        return err_set(ERR_BUSY,
                       "%s: process %lld on this host (%s, job %lld) is "
                       "training this run; end it first",
                       lock->path, owner.pid, owner.host, owner.job);
    }
    bool ended = lock_ended(&lock->self, &owner, file->uid, &known, &asked);
    bool stopped = lock_beat_stopped(lock->beat_path, ended ? owner.beat_s : 0,
                                     clock_fd, &age_s);
    return ended && stopped ? ERR_OK
                            : lock_busy(lock, &owner, known, asked, age_s);
}

/* A lock of this file description, which needs the right to write: who may only
 * read the run cannot hold it. */
static bool lock_guard_try(int fd)
{
    struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    return fcntl(fd, F_OFD_SETLK, &all) == 0;
}

/* For whoever may write to the run directory, and nobody else. */
static mode_t lock_guard_mode(const struct lock *lock)
{
    char parent[FSIO_PATH_MAX];
    struct stat status;
    bool group = fsio_parent(lock->guard, parent) == ERR_OK &&
                 stat(parent, &status) == 0 && (status.st_mode & S_IWGRP) != 0;
    return group ? 0660 : 0600;
}

static enum err lock_guard_enter(const struct lock *lock, int *fd_out)
{
    double deadline = clock_now() + LOCK_GUARD_TIMEOUT_S;
    int fd = open(lock->guard, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                  lock_guard_mode(lock));
    if (fd < 0)
        return err_errno("%s: open", lock->guard);
    while (!lock_guard_try(fd)) {
        /* Some shared file systems have no such locks: link(2) still makes a
         * first lock exclusive, only two takeovers at once are not serialized.
         */
        if (errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK ||
            errno == EINVAL) {
            log_warn("%s: lock: %s", lock->guard, strerror(errno));
            break;
        }
        if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
            enum err rc = err_errno("%s: lock", lock->guard);
            close(fd);
            return rc;
        }
        if (clock_now() > deadline) {
            close(fd);
            return err_set(ERR_IO,
                           "%s: held by another process for %.0f s; find it "
                           "with lsof",
                           lock->guard, LOCK_GUARD_TIMEOUT_S);
        }
        clock_sleep(0.002);
    }
    *fd_out = fd;
    return ERR_OK;
}

/* The caller closes *fd, also after an error. */
static enum err lock_write_temporary(const struct lock *lock, int *fd)
{
    unlink(lock->temporary); /* of an earlier process with our number */
    *fd = open(lock->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (*fd < 0)
        return err_errno("%s: create", lock->temporary);
    TRY(fsio_pwrite(*fd, lock->record, strlen(lock->record), 0,
                    lock->temporary));
    if (fsync(*fd) != 0)
        return err_errno("%s: fsync", lock->temporary);
    return ERR_OK;
}

static bool lock_is_ours(void *arg)
{
    return lock_check(arg) == ERR_OK;
}

/* Under the guard: take the lock if it still is what was judged (NULL: none).
 * The heart beats before, so that nobody finds the lock without it. *won false:
 * somebody was faster. */
static enum err lock_take(struct lock *lock, const struct lock_file *judged,
                          bool *won)
{
    enum err rc = ERR_OK;
    struct lock_file now;
    assert(lock->beat == NULL); /* one heart, or none could be stopped */
    *won = false;
    TRY_OUT(lock_record_read(lock->path, &now));
    bool same =
        now.bytes == judged->bytes &&
        (now.text == NULL) == (judged->text == NULL) &&
        (now.text == NULL || memcmp(now.text, judged->text, now.bytes) == 0);
    if (!same)
        goto out;
    lock_beat_once(lock->beat_path, 0);
    if (now.text == NULL) {
        struct stat status;
        int failed = link(lock->temporary, lock->path) == 0 ? 0 : errno;
        /* NFS may report a failure for a link that it made. */
        *won = failed == 0 ||
               (stat(lock->temporary, &status) == 0 && status.st_nlink == 2);
        if (!*won && failed != EEXIST) {
            errno = failed;
            rc = err_errno("%s: link", lock->path);
        }
    } else if (rename(lock->temporary, lock->path) != 0) {
        rc = err_errno("%s: rename", lock->path);
    } else {
        *won = true;
        log_warn("%s: taken over from a dead owner: %.*s", lock->path,
                 (int)judged->bytes, judged->text);
    }
    if (*won)
        rc = lock_beat_start(lock->beat_path, lock->self.beat_s, lock_is_ours,
                             lock, &lock->beat);
    if (*won && rc != ERR_OK)
        unlink(lock->path);
out:
    free(now.text);
    return rc;
}

static enum err lock_round(struct lock *lock, int clock_fd, bool *won)
{
    enum err rc = ERR_OK;
    struct lock_file judged;
    int guard = -1;
    TRY_OUT(lock_record_read(lock->path, &judged));
    if (judged.text != NULL)
        TRY_OUT(lock_judge(lock, &judged, clock_fd));
    TRY_OUT(lock_guard_enter(lock, &guard));
    TRY_OUT(lock_take(lock, &judged, won));
out:
    fsio_close(guard);
    free(judged.text);
    return rc;
}

enum err lock_acquire(const char *run_dir, double beat_s, struct lock **out)
{
    enum err rc = ERR_OK;
    bool won = false;
    int temporary = -1;
    assert(run_dir != NULL && out != NULL);
    assert(beat_s >= LOCK_BEAT_S_MIN && beat_s <= LOCK_BEAT_S_MAX);
    *out = NULL;
    struct lock *lock = NULL;
    TRY(new_zeroed(&lock, 1));
    lock->pid = getpid();
    TRY_OUT(lock_record_self(&lock->self, beat_s));
    TRY_OUT(fsio_path(lock->path, "%s/.lock", run_dir));
    TRY_OUT(fsio_path(lock->guard, "%s/.lock.gate", run_dir));
    TRY_OUT(fsio_path(lock->beat_path, "%s/.lock.beat", run_dir));
    TRY_OUT(fsio_path(lock->temporary, "%s/.lock.tmp.%s.%lld", run_dir,
                      lock->self.host, lock->self.pid));
    errno = 0;
    lock->record = lock_record_format(&lock->self);
    if (lock->record == NULL)
        TRY_OUT(errno == ENOMEM
                    ? err_set(ERR_MEMORY, "lock: out of memory")
                    : err_set(ERR_INTERNAL, "lock: host name '%s' is not UTF-8",
                              lock->self.host));
    TRY_OUT(lock_write_temporary(lock, &temporary));
    for (int round = 0; round < LOCK_ROUNDS_MAX && !won; round++)
        TRY_OUT(lock_round(lock, temporary, &won));
    if (!won)
        TRY_OUT(err_set(ERR_BUSY,
                        "%s changes all the time; how many jobs were "
                        "started on this run?",
                        lock->path));
    TRY_OUT(fsio_fsync_dir(run_dir));
out:
    if (temporary >= 0) {
        close(temporary);
        unlink(lock->temporary);
    }
    return new_or_none(rc, lock, out, lock_release);
}

bool lock_lost(const struct lock *lock)
{
    return atomic_load(&lock->lost);
}

enum err lock_check(struct lock *lock)
{
    struct lock_file file;
    if (!lock_lost(lock) && lock_record_read(lock->path, &file) == ERR_OK) {
        if (!lock_is(&file, lock->record))
            atomic_store(&lock->lost, true);
        free(file.text);
    }
    return !lock_lost(lock)
               ? ERR_OK
               : err_set(ERR_BUSY,
                         "%s: another process has taken this run over, or the "
                         "file was removed: this one writes nothing more",
                         lock->path);
}

void lock_release(struct lock *lock)
{
    struct lock_file file;
    int guard = -1;
    if (lock == NULL)
        return;
    if (lock->pid == getpid()) {
        lock_beat_stop(lock->beat);
        if (lock->beat != NULL && lock_guard_enter(lock, &guard) == ERR_OK) {
            if (lock_record_read(lock->path, &file) == ERR_OK &&
                lock_is(&file, lock->record))
                unlink(lock->path);
            free(file.text);
            close(guard);
        }
    }
    free(lock->record);
    free(lock);
}
