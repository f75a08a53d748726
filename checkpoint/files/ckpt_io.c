/* Direct reads and writes of one file in a thread, with the next transfer
 * queued. It knows nothing of checkpoints; checksums are its callers' work.
 *
 * Past the page cache, because a checkpoint is written once and read in another
 * process's life: its pages would push out those of the training's data, and be
 * copied once more for it. */
#include "checkpoint/files/ckpt_io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/new.h"
#include "src/base/process.h"

#define HUGE_BYTES ((size_t)2 << 20)

struct request {
    char *data;
    size_t bytes;
    int64_t offset;
};

struct ckpt_io {
    char path[FSIO_PATH_MAX];
    int fd;
    bool writing;
    bool direct;
    bool threaded; /* the thread runs */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    struct request queue[CKPT_IO_QUEUE];
    int first, count; /* of the queue: the first is being transferred */
    bool closing;
    size_t done;         /* bytes of the latest */
    struct err_kept end; /* the first failure; those behind are not tried */
};

static bool set_direct(const struct ckpt_io *io, bool direct)
{
    int flags = fcntl(io->fd, F_GETFL);
    return flags >= 0 &&
           fcntl(io->fd, F_SETFL,
                 direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

/* One system call; 0 is the end of the file. */
static ssize_t transfer_once(struct ckpt_io *io, const struct request *request,
                             size_t done)
{
    char *data = request->data + done;
    size_t bytes = request->bytes - done;
    off_t offset = (off_t)request->offset + (off_t)done;
    for (;;) {
        ssize_t n = io->writing ? pwrite(io->fd, data, bytes, offset)
                                : pread(io->fd, data, bytes, offset);
        if (n >= 0 || (errno != EINTR && errno != EINVAL))
            return n;
        if (errno == EINTR)
            continue;
        if (!io->direct)
            return n;
        /* the file system took the flag but not the transfer */
        if (!set_direct(io, false))
            return -1;
        io->direct = false;
    }
}

static enum err transfer(struct ckpt_io *io, const struct request *request,
                         size_t *done)
{
    *done = 0;
    while (*done < request->bytes) {
        ssize_t n = transfer_once(io, request, *done);
        long long at = (long long)request->offset + (long long)*done;
        if (n < 0)
            return err_errno("%s: %s of %zu bytes at %lld", io->path,
                             io->writing ? "write" : "read",
                             request->bytes - *done, at);
        if (n == 0 && io->writing)
            return err_set(ERR_IO, "%s: write at %lld accepted no bytes",
                           io->path, at);
        *done += (size_t)n;
        /* a direct read ends inside a block only where the file ends */
        if (n == 0 || (!io->writing && n % CKPT_IO_ALIGN != 0 && io->direct))
            break;
    }
    return ERR_OK;
}

static void *serve(void *arg)
{
    struct ckpt_io *io = arg;
    pthread_mutex_lock(&io->mutex);
    for (;;) {
        while (io->count == 0 && !io->closing)
            pthread_cond_wait(&io->changed, &io->mutex);
        if (io->count == 0)
            break;
        if (io->end.code == ERR_OK) {
            struct request request = io->queue[io->first];
            size_t done;
            pthread_mutex_unlock(&io->mutex);
            enum err rc = transfer(io, &request, &done);
            pthread_mutex_lock(&io->mutex);
            io->done = done;
            err_keep(&io->end, rc);
        }
        io->first = (io->first + 1) % CKPT_IO_QUEUE;
        io->count--;
        pthread_cond_signal(&io->changed);
    }
    pthread_mutex_unlock(&io->mutex);
    return NULL;
}

static enum err thread_start(struct ckpt_io *io)
{
    errno = process_thread(&io->thread, 0, serve, io);
    if (errno != 0)
        return err_errno("%s: start a thread", io->path);
    io->threaded = true;
    return ERR_OK;
}

enum err ckpt_io_open(const char *path, bool writing, bool direct,
                      struct ckpt_io **out)
{
    enum err rc = ERR_OK;
    int flags =
        (writing ? O_WRONLY | O_CREAT : O_RDONLY) | O_NONBLOCK | O_CLOEXEC;
    struct ckpt_io *io = NULL;
    *out = NULL;
    TRY(new_zeroed(&io, 1));
    io->fd = -1;
    io->writing = writing;
    io->direct = direct;
    TRY_OUT(fsio_path(io->path, "%s", path));
    if (direct)
        io->fd = open(path, flags | O_DIRECT, 0666);
    if (io->fd < 0 && (!direct || errno == EINVAL)) {
        io->direct = false;
        io->fd = open(path, flags, 0666);
    }
    if (io->fd < 0)
        TRY_OUT(errno == ENOENT && !writing
                    ? err_set(ERR_CHECKPOINT, "%s: shard is missing", path)
                    : err_errno("%s: open", path));
    pthread_mutex_init(&io->mutex, NULL);
    pthread_cond_init(&io->changed, NULL);
out:
    return new_or_none(rc, io, out, free);
}

void ckpt_io_close(struct ckpt_io *io)
{
    if (io == NULL)
        return;
    (void)ckpt_io_wait(io, NULL);
    if (io->threaded) {
        pthread_mutex_lock(&io->mutex);
        io->closing = true;
        pthread_cond_signal(&io->changed);
        pthread_mutex_unlock(&io->mutex);
        pthread_join(io->thread, NULL);
    }
    pthread_cond_destroy(&io->changed);
    pthread_mutex_destroy(&io->mutex);
    close(io->fd);
    free(io);
}

int ckpt_io_fd(const struct ckpt_io *io)
{
    return io->fd;
}

enum err ckpt_io_direct(struct ckpt_io *io, bool direct)
{
    if (io->direct && !set_direct(io, direct))
        return err_errno("%s: change how it is written", io->path);
    return ERR_OK;
}

/* With the mutex held: wait until no more than `left` are under way, or all
 * after a failure, which is told once. */
static enum err drain(struct ckpt_io *io, int left)
{
    assert(left >= 0 && io->count >= 0 && io->count <= CKPT_IO_QUEUE);
    while (io->count > (io->end.code == ERR_OK ? left : 0))
        pthread_cond_wait(&io->changed, &io->mutex);
    enum err rc = err_again(&io->end);
    io->end.code = ERR_OK;
    return rc;
}

enum err ckpt_io_start(struct ckpt_io *io, void *data, size_t bytes,
                       int64_t offset)
{
    assert(bytes > 0 && offset >= 0);
    if (!io->threaded)
        TRY(thread_start(io));
    pthread_mutex_lock(&io->mutex);
    enum err rc = drain(io, CKPT_IO_QUEUE - 1);
    if (rc == ERR_OK) {
        io->queue[(io->first + io->count) % CKPT_IO_QUEUE] =
            (struct request){ data, bytes, offset };
        io->count++;
        pthread_cond_signal(&io->changed);
    }
    pthread_mutex_unlock(&io->mutex);
    return rc;
}

enum err ckpt_io_drain(struct ckpt_io *io, int left)
{
    pthread_mutex_lock(&io->mutex);
    enum err rc = drain(io, left);
    pthread_mutex_unlock(&io->mutex);
    return rc;
}

enum err ckpt_io_wait(struct ckpt_io *io, size_t *bytes)
{
    pthread_mutex_lock(&io->mutex);
    enum err rc = drain(io, 0);
    if (bytes != NULL)
        *bytes = rc == ERR_OK ? io->done : 0;
    io->done = 0;
    pthread_mutex_unlock(&io->mutex);
    return rc;
}

enum err ckpt_io_buffer(char **buffer, size_t bytes)
{
    size_t whole = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    *buffer = aligned_alloc(HUGE_BYTES, whole);
    if (*buffer == NULL)
        return err_set(ERR_MEMORY, "checkpoint: out of memory for transfers");
    /* a transfer of few large pages is a third faster than one of many small */
    (void)madvise(*buffer, whole, MADV_HUGEPAGE);
    return ERR_OK;
}
