/* A stale lock is judged first, without holding anything, because squeue may
 * take seconds; then, under the guard, it is replaced only if it still is the
 * very record that was judged. So two processes that find the same dead owner
 * cannot both win. */
#include "src/job/lock.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/job/slurm.h"

#define LOCK_BYTES_MAX 4096
#define LOCK_GUARD_TIMEOUT_S 30.0
#define LOCK_ROUNDS_MAX 100
#define LOCK_STEPS_PER_RESTART 1000000L

struct lock_owner {
    char host[256];
    char boot_id[64];
    long long pid;
    long long start_time; /* clock ticks since boot */
    long long job;
    long long attempt;
};

struct lock {
    char path[FSIO_PATH_MAX];
    char temporary[FSIO_PATH_MAX];
    char guard[FSIO_PATH_MAX];
    struct lock_owner self;
    char *record; /* what the file holds while the lock is ours */
    pid_t pid;
};

enum lock_process { LOCK_GONE, LOCK_ALIVE };

/* Start time of a process, and whether it can still write. */
static enum lock_process lock_process(long long pid, long long *start_time)
{
    char path[64];
    char text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    *start_time = -1;
    if (bytes <= 0) /* /proc may hide the processes of other users */
        return kill((pid_t)pid, 0) != 0 && errno == ESRCH ? LOCK_GONE
                                                          : LOCK_ALIVE;
    text[bytes] = '\0';
    /* The name may hold spaces and parentheses: fields count from its end. */
    const char *rest = strrchr(text, ')');
    char state = '?';
    long threads = 0;
    unsigned long long start = 0;
    if (rest == NULL ||
        sscanf(rest + 1,
               " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
               "%*d %*d %ld %*d %llu",
               &state, &threads, &start) != 3)
        return LOCK_ALIVE;
    *start_time = (long long)start;
    /* A zombie leader may still have a thread inside a write. */
    bool dead = state == 'X' || (state == 'Z' && threads <= 1);
    return dead ? LOCK_GONE : LOCK_ALIVE;
}

static enum err lock_describe_self(struct lock_owner *self)
{
    enum err rc = ERR_OK;
    struct slurm slurm;
    char *boot_id = NULL;
    size_t bytes;
    memset(self, 0, sizeof *self);
    if (gethostname(self->host, sizeof self->host - 1) != 0)
        return err_errno("lock: host name");
    slurm_read(&slurm);
    self->pid = getpid();
    self->job = slurm.job_id;
    self->attempt =
        (long long)slurm.restart_count * LOCK_STEPS_PER_RESTART + slurm.step_id;
    lock_process(self->pid, &self->start_time);
    TRY(fsio_read_file("/proc/sys/kernel/random/boot_id", 256, &boot_id,
                       &bytes));
    boot_id[strcspn(boot_id, "\n")] = '\0';
    snprintf(self->boot_id, sizeof self->boot_id, "%s", boot_id);
out:
    free(boot_id);
    return rc;
}

static bool lock_parse(const char *text, size_t bytes, struct lock_owner *out)
{
    const char *host;
    const char *boot_id;
    json_int_t pid, start_time, job, attempt;
    json_t *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    bool good =
        json_unpack(object, "{s:s, s:s, s:I, s:I, s:I, s:I}", "host", &host,
                    "boot_id", &boot_id, "pid", &pid, "start_time", &start_time,
                    "job", &job, "attempt", &attempt) == 0 &&
        pid > 0 && pid <= 0x7fffffff && job >= 0;
    if (good) {
        memset(out, 0, sizeof *out);
        snprintf(out->host, sizeof out->host, "%s", host);
        snprintf(out->boot_id, sizeof out->boot_id, "%s", boot_id);
        out->pid = pid;
        out->start_time = start_time;
        out->job = job;
        out->attempt = attempt;
    }
    json_decref(object);
    return good;
}

static char *lock_format(const struct lock_owner *self)
{
    json_t *object =
        json_pack("{s:s, s:I, s:I, s:s, s:I, s:I}", "host", self->host, "pid",
                  (json_int_t)self->pid, "start_time",
                  (json_int_t)self->start_time, "boot_id", self->boot_id, "job",
                  (json_int_t)self->job, "attempt", (json_int_t)self->attempt);
    char *text = object == NULL ? NULL : json_dumps(object, 0);
    json_decref(object);
    return text;
}

/* NULL text: there is no lock file. */
static enum err lock_read(const char *path, char **text, size_t *bytes)
{
    enum err rc = ERR_OK;
    *text = NULL;
    *bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? ERR_OK : err_errno("%s: open", path);
    /* What is longer than a record is cut, and so is not one. */
    char *buffer = malloc(LOCK_BYTES_MAX);
    ssize_t got = buffer == NULL ? 0 : pread(fd, buffer, LOCK_BYTES_MAX, 0);
    if (buffer == NULL) {
        rc = err_set(ERR_MEMORY, "lock: no memory");
    } else if (got < 0) {
        rc = err_errno("%s: read", path);
        free(buffer);
    } else {
        *text = buffer;
        *bytes = (size_t)got;
    }
    close(fd);
    return rc;
}

/* ERR_OK: the owner is dead. */
static enum err lock_judge(const struct lock *lock, const char *text,
                           size_t bytes)
{
    struct lock_owner owner;
    const struct lock_owner *self = &lock->self;
    if (!lock_parse(text, bytes, &owner))
        return err_set(ERR_BUSY,
                       "%s is not a lock record (damaged?); if no job uses "
                       "this run, remove the file",
                       lock->path);
    if (strcmp(owner.host, self->host) == 0) {
        long long start_time;
        if (strcmp(owner.boot_id, self->boot_id) != 0 ||
            lock_process(owner.pid, &start_time) == LOCK_GONE ||
            (start_time >= 0 && start_time != owner.start_time))
            return ERR_OK;
        return err_set(ERR_BUSY,
                       "%s: process %lld on this host (%s, job %lld) is "
                       "training this run; end it first",
                       lock->path, owner.pid, owner.host, owner.job);
    }
    if (owner.job > 0 && owner.job == self->job) {
        if (owner.attempt < self->attempt)
            return ERR_OK;
    } else if (owner.job > 0) {
        enum slurm_job_state state = slurm_job_state((long)owner.job);
        if (state == SLURM_JOB_ENDED)
            return ERR_OK;
        if (state == SLURM_JOB_RUNNING)
            return err_set(ERR_BUSY,
                           "%s: job %lld (host %s, process %lld) is training "
                           "this run; wait for it or scancel %lld",
                           lock->path, owner.job, owner.host, owner.pid,
                           owner.job);
    }
    return err_set(ERR_BUSY,
                   "%s: owned by process %lld on host %s (job %lld), which "
                   "cannot be checked from here; if it is gone, remove the "
                   "file",
                   lock->path, owner.pid, owner.host, owner.job);
}

static enum err lock_guard_enter(const struct lock *lock, int *fd_out)
{
    double deadline = clock_now() + LOCK_GUARD_TIMEOUT_S;
    int fd = open(lock->guard, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_errno("%s: open", lock->guard);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        /* Some shared file systems have no flock: link(2) still makes a first
         * lock exclusive, only two takeovers at once are not serialized. */
        if (errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK) {
            log_warn("%s: flock: %s", lock->guard, strerror(errno));
            break;
        }
        if (errno != EWOULDBLOCK && errno != EINTR) {
            enum err rc = err_errno("%s: flock", lock->guard);
            close(fd);
            return rc;
        }
        if (clock_now() > deadline) {
            close(fd);
            return err_set(ERR_BUSY,
                           "%s: held by another process for %.0f s; find it "
                           "with lsof",
                           lock->guard, LOCK_GUARD_TIMEOUT_S);
        }
        clock_sleep(0.002);
    }
    *fd_out = fd;
    return ERR_OK;
}

static enum err lock_write_temporary(const struct lock *lock)
{
    enum err rc = ERR_OK;
    unlink(lock->temporary); /* of an earlier process with our number */
    int fd =
        open(lock->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_errno("%s: create", lock->temporary);
    TRY(fsio_pwrite(fd, lock->record, strlen(lock->record), 0,
                    lock->temporary));
    if (fsync(fd) != 0)
        rc = err_errno("%s: fsync", lock->temporary);
out:
    close(fd);
    return rc;
}

/* Under the guard: take the lock if it still is what was judged (NULL: none).
 * *won false: somebody was faster. */
static enum err lock_take(const struct lock *lock, const char *judged,
                          size_t judged_bytes, bool *won)
{
    enum err rc = ERR_OK;
    char *now = NULL;
    size_t now_bytes;
    *won = false;
    TRY(lock_read(lock->path, &now, &now_bytes));
    if (now == NULL && judged == NULL) {
        struct stat status;
        int failed = link(lock->temporary, lock->path) == 0 ? 0 : errno;
        /* NFS may report a failure for a link that it made. */
        *won = failed == 0 ||
               (stat(lock->temporary, &status) == 0 && status.st_nlink == 2);
        if (!*won && failed != EEXIST) {
            errno = failed;
            rc = err_errno("%s: link", lock->path);
            goto out;
        }
    } else if (now != NULL && judged != NULL && now_bytes == judged_bytes &&
               memcmp(now, judged, now_bytes) == 0) {
        if (rename(lock->temporary, lock->path) != 0) {
            rc = err_errno("%s: rename", lock->path);
            goto out;
        }
        *won = true;
        log_warn("%s: taken over from a dead owner: %.*s", lock->path,
                 (int)judged_bytes, judged);
    }
out:
    free(now);
    return rc;
}

static enum err lock_round(const struct lock *lock, bool *won)
{
    enum err rc = ERR_OK;
    char *judged = NULL;
    size_t bytes = 0;
    int guard = -1;
    TRY(lock_read(lock->path, &judged, &bytes));
    if (judged != NULL)
        TRY(lock_judge(lock, judged, bytes));
    TRY(lock_guard_enter(lock, &guard));
    TRY(lock_take(lock, judged, bytes, won));
out:
    if (guard >= 0)
        close(guard);
    free(judged);
    return rc;
}

static void lock_destroy(struct lock *lock)
{
    if (lock == NULL)
        return;
    free(lock->record);
    free(lock);
}

enum err lock_acquire(const char *run_dir, struct lock **out)
{
    enum err rc = ERR_OK;
    bool won = false;
    bool temporary = false;
    assert(run_dir != NULL && out != NULL);
    *out = NULL;
    struct lock *lock = calloc(1, sizeof *lock);
    if (lock == NULL)
        return err_set(ERR_MEMORY, "lock: no memory");
    lock->pid = getpid();
    TRY(lock_describe_self(&lock->self));
    TRY(fsio_path(lock->path, "%s/.lock", run_dir));
    TRY(fsio_path(lock->guard, "%s/.lock.guard", run_dir));
    TRY(fsio_path(lock->temporary, "%s/.lock.tmp.%s.%lld", run_dir,
                  lock->self.host, lock->self.pid));
    lock->record = lock_format(&lock->self);
    if (lock->record == NULL) {
        rc = err_set(ERR_INTERNAL, "lock: host name '%s' is not UTF-8",
                     lock->self.host);
        goto out;
    }
    temporary = true;
    TRY(lock_write_temporary(lock));
    for (int round = 0; round < LOCK_ROUNDS_MAX && !won; round++)
        TRY(lock_round(lock, &won));
    if (!won) {
        rc = err_set(ERR_BUSY,
                     "%s changes all the time; how many jobs were "
                     "started on this run?",
                     lock->path);
        goto out;
    }
    TRY(fsio_fsync_dir(run_dir));
out:
    if (temporary)
        unlink(lock->temporary);
    if (rc != ERR_OK && won)
        unlink(lock->path);
    if (rc == ERR_OK)
        *out = lock;
    else
        lock_destroy(lock);
    return rc;
}

void lock_release(struct lock *lock)
{
    char *text = NULL;
    size_t bytes = 0;
    int guard = -1;
    if (lock == NULL)
        return;
    if (lock->pid == getpid() && lock_guard_enter(lock, &guard) == ERR_OK) {
        if (lock_read(lock->path, &text, &bytes) == ERR_OK && text != NULL &&
            bytes == strlen(lock->record) &&
            memcmp(text, lock->record, bytes) == 0)
            unlink(lock->path);
        close(guard);
    }
    free(text);
    lock_destroy(lock);
}
