/* Appending to files of lines. What a line says, and whether it must be
 * durable, is its writer's business.
 *
 * Three things must not go wrong. Lines of two processes must not mix: the file
 * is open with O_APPEND and what is written is one writev(). Half a line, which
 * a crash or a full disk has left, must cost itself alone: who finds that the
 * file does not end with a newline writes one first, in the same call. And a
 * full disk must not end a run of weeks for a line of its log: where
 * lines_keep() was called, what finds no room waits in memory, a queue for each
 * path, in the order in which it came, and the next line tries all of it again.
 */
#include "src/base/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "src/base/array.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/regular.h"

#define AGAIN_S 1.0

/* A path's lines that are still to be written. */
struct queue {
    struct queue *next;
    char path[FSIO_PATH_MAX];
    char *text;
    size_t bytes, room;
    int64_t lost;      /* lines */
    double full_since; /* clock_now(); 0: there has been room so far */
    double again_at;
};

static struct {
    pthread_mutex_t mutex;
    bool keeps;
    struct queue *first;
} lines = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static enum err open_file(const char *path, int *fd)
{
    return regular_open_at(AT_FDCWD, path, O_RDWR | O_APPEND | O_CREAT,
                           REGULAR_NO_LINK, path, fd);
}

enum err lines_open(const char *dir, const char *name, char path[FSIO_PATH_MAX],
                    int *fd)
{
    *fd = -1;
    TRY(fsio_path(path, "%s/%s", dir, name));
    return open_file(path, fd);
}

/* Unless another process has written behind them. */
static void cut_off(int fd, off_t bytes)
{
    struct stat status;
    off_t end = lseek(fd, 0, SEEK_CUR); /* behind what was written */
    if (bytes > 0 && end >= bytes && fstat(fd, &status) == 0 &&
        status.st_size == end && ftruncate(fd, end - bytes) != 0)
        return; /* the next line ends the half one */
}

/* Writes whole lines; *done: how many of their bytes are there to stay. */
static enum err write_lines(int fd, const char *path, char *text, size_t bytes,
                            bool durable, size_t *done)
{
    char last = '\n';
    off_t end = lseek(fd, 0, SEEK_END); /* a pipe has none */
    *done = 0;
    if (end > 0 && pread(fd, &last, 1, end - 1) != 1)
        return err_errno("%s: read the last byte", path);
    /* the newline that the last writer could not write */
    size_t healed = last != '\n';
    struct iovec parts[] = { { "\n", healed }, { text, bytes } };
    ssize_t written;
    do
        written = writev(fd, parts, 2);
    while (written < 0 && errno == EINTR);
    if (written < 0)
        return err_errno("%s: append", path);
    if ((size_t)written < healed + bytes) {
        size_t there = (size_t)written < healed ? 0 : (size_t)written - healed;
        const char *newline = memrchr(text, '\n', there);
        *done = newline != NULL ? (size_t)(newline - text) + 1 : 0;
        cut_off(fd, (off_t)(there - *done));
        return err_set(ERR_FULL, "%s: only %zu of %zu bytes written", path,
                       there, bytes);
    }
    /* NFS tells of a full disk here */
    if (durable && fsync(fd) != 0) {
        enum err rc = err_errno("%s: fsync", path);
        if (rc == ERR_FULL)
            cut_off(fd, (off_t)bytes);
        return rc;
    }
    *done = bytes;
    return ERR_OK;
}

/* --- what waits for room ---------------------------------------------------- */

static struct queue **find(const char *path)
{
    struct queue **at = &lines.first;
    while (*at != NULL && strcmp((*at)->path, path) != 0)
        at = &(*at)->next;
    return at;
}

static void forget(struct queue **at)
{
    struct queue *queue = *at;
    *at = queue->next;
    free(queue->text);
    free(queue);
}

static enum err push(struct queue *queue, const char *line)
{
    size_t more = strlen(line) + 1;
    if (queue->full_since > 0.0 && queue->bytes + more > LINES_KEPT_MAX) {
        queue->lost++;
        return ERR_OK;
    }
    TRY(array_room(&queue->text, &queue->room, queue->bytes + more));
    memcpy(queue->text + queue->bytes, line, more - 1);
    queue->text[queue->bytes + more - 1] = '\n';
    queue->bytes += more;
    return ERR_OK;
}

static void tell_room(const struct queue *queue)
{
    if (queue->full_since > 0.0)
        log_warn("%s: there is room again after %.0f s, and what was kept is "
                 "written",
                 queue->path, clock_now() - queue->full_since);
    if (queue->lost > 0)
        log_warn("%s: %lld lines are lost: more than %zu MiB could not be kept",
                 queue->path, (long long)queue->lost, LINES_KEPT_MAX >> 20);
}

/* ERR_FULL: the rest is kept. What has been written goes from the front of the
 * queue, whole lines of it, also where the rest found no room. */
static enum err drain(struct queue *queue, int fd, bool durable)
{
    size_t done;
    enum err rc =
        write_lines(fd, queue->path, queue->text, queue->bytes, durable, &done);
    queue->bytes -= done;
    memmove(queue->text, queue->text + done, queue->bytes);
    if (rc == ERR_OK) {
        tell_room(queue);
        return rc;
    }
    queue->again_at = clock_now() + AGAIN_S;
    if (rc == ERR_FULL)
        (void)futimens(fd, NULL); /* who watches the file sees that we live */
    if (rc == ERR_FULL && lines.keeps && queue->full_since == 0.0) {
        queue->full_since = clock_now();
        log_warn("%s: training goes on, and its lines are kept until there is "
                 "room: make some",
                 err_text());
    }
    return rc;
}

static enum err append(int fd, const char *path, const char *line, bool durable)
{
    enum err rc = ERR_OK;
    pthread_mutex_lock(&lines.mutex);
    /* behind what still waits, so that lines stay in their order */
    struct queue **at = find(path);
    if (*at == NULL && (*at = calloc(1, sizeof **at)) == NULL)
        rc = err_set(ERR_MEMORY, "%s: no memory for a line", path);
    if (rc == ERR_OK && (*at)->path[0] == '\0')
        rc = fsio_path((*at)->path, "%s", path);
    if (rc == ERR_OK)
        rc = push(*at, line);
    if (rc == ERR_OK && clock_now() >= (*at)->again_at)
        rc = drain(*at, fd, durable);
    if (rc == ERR_FULL && lines.keeps)
        rc = ERR_OK;
    else if (*at != NULL && ((*at)->bytes == 0 || (*at)->full_since == 0.0))
        forget(at);
    pthread_mutex_unlock(&lines.mutex);
    return rc;
}

enum err lines_append(int fd, const char *path, const char *line)
{
    return append(fd, path, line, false);
}

enum err lines_append_durable(int fd, const char *path, const char *line)
{
    return append(fd, path, line, true);
}

void lines_keep(void)
{
    pthread_mutex_lock(&lines.mutex);
    lines.keeps = true;
    pthread_mutex_unlock(&lines.mutex);
}

enum err lines_settle(void)
{
    enum err rc = ERR_OK;
    int fd;
    pthread_mutex_lock(&lines.mutex);
    while (rc == ERR_OK && lines.first != NULL) {
        rc = open_file(lines.first->path, &fd);
        if (rc != ERR_OK)
            break;
        rc = drain(lines.first, fd, true);
        close(fd);
        if (rc == ERR_OK)
            forget(&lines.first);
    }
    pthread_mutex_unlock(&lines.mutex);
    return rc;
}

char *lines_kept(const char *path)
{
    pthread_mutex_lock(&lines.mutex);
    struct queue *queue = *find(path);
    char *text = queue != NULL && queue->bytes > 0
                     ? strndup(queue->text, queue->bytes)
                     : NULL;
    pthread_mutex_unlock(&lines.mutex);
    return text;
}
