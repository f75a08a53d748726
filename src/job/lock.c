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
#include <stdatomic.h>
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
#include "src/job/lock_beat.h"
#include "src/job/slurm.h"

#define LOCK_BYTES_MAX 4096
#define LOCK_GUARD_TIMEOUT_S 30.0
#define LOCK_ROUNDS_MAX 100
#define LOCK_STEPS_PER_RESTART 1000000L
#define LOCK_BEAT_S_MIN 0.001
#define LOCK_BEAT_S_MAX 60.0

struct lock_owner {
    char cluster[128]; /* "": not in a job of Slurm */
    char host[256];
    char boot_id[64];
    char pid_namespace[64];
    double beat_s;
    long long pid;
    long long start_time; /* clock ticks since boot */
    long long job;
    long long attempt;
};

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

/* What a lock file holds, and whose it is. */
struct lock_file {
    char *text; /* NULL: there is none */
    size_t bytes;
    uid_t uid;
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

static enum err lock_describe_self(struct lock_owner *self, double beat_s)
{
    enum err rc = ERR_OK;
    struct slurm slurm;
    char *boot_id = NULL;
    size_t bytes;
    memset(self, 0, sizeof *self);
    self->beat_s = beat_s;
    slurm_read(&slurm);
    snprintf(self->cluster, sizeof self->cluster, "%s", slurm.cluster);
    ssize_t n = readlink("/proc/self/ns/pid", self->pid_namespace,
                         sizeof self->pid_namespace - 1);
    self->pid_namespace[n > 0 ? n : 0] = '\0';
    if (gethostname(self->host, sizeof self->host - 1) != 0)
        return err_errno("lock: host name");
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

static bool lock_parse(const struct lock_file *file, struct lock_owner *out)
{
    const char *cluster, *host, *boot_id, *pid_namespace;
    json_int_t pid, start_time, job, attempt;
    double beat_s;
    json_t *object =
        json_loadb(file->text, file->bytes, JSON_REJECT_DUPLICATES, NULL);
    bool good =
        json_unpack(object, "{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:F}",
                    "cluster", &cluster, "host", &host, "boot_id", &boot_id,
                    "pid_namespace", &pid_namespace, "pid", &pid, "start_time",
                    &start_time, "job", &job, "attempt", &attempt, "beat_s",
                    &beat_s) == 0 &&
        pid > 0 && pid <= 0x7fffffff && job >= 0 && beat_s >= LOCK_BEAT_S_MIN &&
        beat_s <= LOCK_BEAT_S_MAX;
    if (good) {
        memset(out, 0, sizeof *out);
        snprintf(out->cluster, sizeof out->cluster, "%s", cluster);
        snprintf(out->host, sizeof out->host, "%s", host);
        snprintf(out->boot_id, sizeof out->boot_id, "%s", boot_id);
        snprintf(out->pid_namespace, sizeof out->pid_namespace, "%s",
                 pid_namespace);
        out->pid = pid;
        out->start_time = start_time;
        out->job = job;
        out->attempt = attempt;
        out->beat_s = beat_s;
    }
    json_decref(object);
    return good;
}

static char *lock_format(const struct lock_owner *self)
{
    json_t *object =
        json_pack("{s:s, s:s, s:I, s:s, s:I, s:s, s:I, s:I, s:f}", "cluster",
                  self->cluster, "host", self->host, "pid",
                  (json_int_t)self->pid, "pid_namespace", self->pid_namespace,
                  "start_time", (json_int_t)self->start_time, "boot_id",
                  self->boot_id, "job", (json_int_t)self->job, "attempt",
                  (json_int_t)self->attempt, "beat_s", self->beat_s);
    char *text = object == NULL ? NULL : json_dumps(object, 0);
    json_decref(object);
    return text;
}

static enum err lock_read(const char *path, struct lock_file *out)
{
    enum err rc = ERR_OK;
    struct stat status;
    memset(out, 0, sizeof *out);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? ERR_OK : err_errno("%s: open", path);
    /* What is longer than a record is cut, and so is not one; nor is anything
     * but a file. */
    char *buffer = malloc(LOCK_BYTES_MAX);
    ssize_t got = 0;
    bool read = buffer != NULL && fstat(fd, &status) == 0;
    if (read && S_ISREG(status.st_mode))
        got = pread(fd, buffer, LOCK_BYTES_MAX, 0);
    if (buffer == NULL) {
        rc = err_set(ERR_MEMORY, "lock: no memory");
    } else if (!read || got < 0) {
        rc = err_errno("%s: read", path);
        free(buffer);
    } else {
        out->text = buffer;
        out->bytes = (size_t)got;
        out->uid = status.st_uid;
    }
    close(fd);
    return rc;
}

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
 * says what Slurm knows, for the error. */
static bool lock_ended(const struct lock_owner *self,
                       const struct lock_owner *owner, uid_t uid,
                       const char **known)
{
    char cluster[sizeof self->cluster];
    *known = "";
    if (owner->cluster[0] != '\0') {
        snprintf(cluster, sizeof cluster, "%s", self->cluster);
        if (cluster[0] == '\0')
            slurm_ask_cluster(cluster, sizeof cluster);
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
            *known = ", of which Slurm tells nothing";
            break;
        }
    }
    return strcmp(owner->host, self->host) == 0 &&
           strcmp(owner->boot_id, self->boot_id) != 0;
}

static enum err lock_busy(const struct lock *lock,
                          const struct lock_owner *owner, const char *known,
                          double age_s)
{
    char beat[64] = "there is no heartbeat";
    char job[192] = "not in a job";
    if (age_s >= 0)
        snprintf(beat, sizeof beat, "the last heartbeat is %.0f s old", age_s);
    if (owner->job > 0)
        snprintf(job, sizeof job, "job %lld%s%s", owner->job,
                 owner->cluster[0] != '\0' ? " of " : "", owner->cluster);
    return err_set(ERR_BUSY,
                   "%s: process %lld on host %s (%s%s) is training this run, "
                   "%s; end it, or remove the file if you know that it is "
                   "gone",
                   lock->path, owner->pid, owner->host, job, known, beat);
}

/* ERR_OK: the owner is dead. `clock_fd` is the temporary file. */
static enum err lock_judge(const struct lock *lock,
                           const struct lock_file *file, int clock_fd)
{
    struct lock_owner owner;
    const char *known;
    double age_s;
    if (!lock_parse(file, &owner))
        return err_set(ERR_BUSY,
                       "%s is not a lock record (damaged?); if no job uses "
                       "this run, remove the file",
                       lock->path);
    if (lock_sees(&lock->self, &owner)) {
        long long start_time;
        if (lock_process(owner.pid, &start_time) == LOCK_GONE ||
            (start_time >= 0 && start_time != owner.start_time))
            return ERR_OK;
        return err_set(ERR_BUSY,
                       "%s: process %lld on this host (%s, job %lld) is "
                       "training this run; end it first",
                       lock->path, owner.pid, owner.host, owner.job);
    }
    bool ended = lock_ended(&lock->self, &owner, file->uid, &known);
    bool stopped = lock_beat_stopped(lock->beat_path, ended ? owner.beat_s : 0,
                                     clock_fd, &age_s);
    return ended && stopped ? ERR_OK : lock_busy(lock, &owner, known, age_s);
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

/* The caller closes *fd, also after an error. */
static enum err lock_write_temporary(const struct lock *lock, int *fd)
{
    enum err rc = ERR_OK;
    unlink(lock->temporary); /* of an earlier process with our number */
    *fd = open(lock->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (*fd < 0)
        return err_errno("%s: create", lock->temporary);
    TRY(fsio_pwrite(*fd, lock->record, strlen(lock->record), 0,
                    lock->temporary));
    if (fsync(*fd) != 0)
        rc = err_errno("%s: fsync", lock->temporary);
out:
    return rc;
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
    *won = false;
    TRY(lock_read(lock->path, &now));
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
    TRY(lock_read(lock->path, &judged));
    if (judged.text != NULL)
        TRY(lock_judge(lock, &judged, clock_fd));
    TRY(lock_guard_enter(lock, &guard));
    TRY(lock_take(lock, &judged, won));
out:
    if (guard >= 0)
        close(guard);
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
    struct lock *lock = calloc(1, sizeof *lock);
    if (lock == NULL)
        return err_set(ERR_MEMORY, "lock: no memory");
    lock->pid = getpid();
    TRY(lock_describe_self(&lock->self, beat_s));
    TRY(fsio_path(lock->path, "%s/.lock", run_dir));
    TRY(fsio_path(lock->guard, "%s/.lock.guard", run_dir));
    TRY(fsio_path(lock->beat_path, "%s/.lock.beat", run_dir));
    TRY(fsio_path(lock->temporary, "%s/.lock.tmp.%s.%lld", run_dir,
                  lock->self.host, lock->self.pid));
    lock->record = lock_format(&lock->self);
    if (lock->record == NULL) {
        rc = err_set(ERR_INTERNAL, "lock: host name '%s' is not UTF-8",
                     lock->self.host);
        goto out;
    }
    TRY(lock_write_temporary(lock, &temporary));
    for (int round = 0; round < LOCK_ROUNDS_MAX && !won; round++)
        TRY(lock_round(lock, temporary, &won));
    if (!won) {
        rc = err_set(ERR_BUSY,
                     "%s changes all the time; how many jobs were "
                     "started on this run?",
                     lock->path);
        goto out;
    }
    TRY(fsio_fsync_dir(run_dir));
out:
    if (temporary >= 0) {
        close(temporary);
        unlink(lock->temporary);
    }
    if (rc == ERR_OK)
        *out = lock;
    else
        lock_release(lock);
    return rc;
}

bool lock_lost(const struct lock *lock)
{
    return atomic_load(&lock->lost);
}

enum err lock_check(struct lock *lock)
{
    struct lock_file file;
    if (!lock_lost(lock) && lock_read(lock->path, &file) == ERR_OK) {
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
            if (lock_read(lock->path, &file) == ERR_OK &&
                lock_is(&file, lock->record))
                unlink(lock->path);
            free(file.text);
            close(guard);
        }
    }
    free(lock->record);
    free(lock);
}
