/* What a lock file says of its owner, and whether that process still lives.
 *
 * A process is named by more than its number, which is given out again: by the
 * host, the boot of it, the namespace in which the number counts, and the time
 * at which the process started. Where host, boot and namespace are ours, /proc
 * answers for certain. A container that shares the host's name and boot, but not its
 * processes, is told by the namespace. */
#include "src/job/lock_record.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/process.h"
#include "src/job/slurm.h"

#define LOCK_BYTES_MAX 4096
#define LOCK_STEPS_PER_RESTART 1000000L

enum err lock_record_self(struct lock_owner *self, double beat_s)
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
    /* -1 in a container without /proc: the number alone has to do then */
    (void)process_lives(self->pid, &self->start_time);
    TRY_OUT(fsio_read_file("/proc/sys/kernel/random/boot_id", 256, &boot_id,
                           &bytes));
    boot_id[strcspn(boot_id, "\n")] = '\0';
    snprintf(self->boot_id, sizeof self->boot_id, "%s", boot_id);
out:
    free(boot_id);
    return rc;
}

bool lock_record_parse(const struct lock_file *file, struct lock_owner *out)
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

char *lock_record_format(const struct lock_owner *self)
{
    assert(self->pid > 0);
    assert(self->beat_s >= LOCK_BEAT_S_MIN && self->beat_s <= LOCK_BEAT_S_MAX);
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

enum err lock_record_read(const char *path, struct lock_file *out)
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

bool lock_record_gone(const struct lock_owner *owner)
{
    int64_t start_time;
    assert(owner->pid > 0);
    /* a number that was given out again has another start time; where that is not
     * told, as of other users' processes, whoever has the number is the owner */
    return !process_lives(owner->pid, &start_time) ||
           (start_time >= 0 && start_time != owner->start_time);
}
