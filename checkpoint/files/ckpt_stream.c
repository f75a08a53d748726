/* Writes a file from its first to its last byte in aligned buffers, with the
 * transfers of ckpt_io.c.
 *
 * Direct transfers want memory, offset and length in whole pages, and tensors
 * begin and end anywhere. As a stream the file has no other borders than those
 * of the buffers; only its end is none of a page, so the last write is longer
 * than the file, which is cut afterwards. Where a stretch of it is another
 * process's, the parts of pages at its ends are kept aside and written at last,
 * or they would undo what the other has written there. */
#include "checkpoint/files/ckpt_stream.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/files/ckpt_io.h"
#include "src/base/fsio.h"
#include "src/base/new.h"

#define EDGES 256

/* A part of a page. */
struct edge {
    int64_t offset, bytes;
    char data[CKPT_IO_ALIGN];
};

struct ckpt_stream {
    char path[FSIO_PATH_MAX];
    struct ckpt_io *io;
    int64_t bytes;      /* of the file */
    int64_t at;         /* of the next byte */
    char *buffers[2];   /* one is filled while the other is written */
    int current;        /* the one being filled */
    int64_t filled;     /* bytes in it, which end at `at` */
    bool joined;        /* another makes the file and ends it */
    struct edge *edges; /* [EDGES]; NULL: none so far */
    int edge_count;
};

/* File systems that can't reserve are fine: the writes will tell. */
static enum err reserve(const struct ckpt_stream *stream)
{
    int failed, fd = ckpt_io_fd(stream->io);
    do
        failed = fallocate(fd, 0, 0, (off_t)stream->bytes);
    while (failed != 0 && errno == EINTR);
    if (failed != 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
        failed = ftruncate(fd, (off_t)stream->bytes);
    if (failed == 0)
        return ERR_OK;
    return err_errno("%s: reserve %lld bytes", stream->path,
                     (long long)stream->bytes);
}

/* It is the file that the other means. */
static enum err check_joined(const struct ckpt_stream *stream)
{
    struct stat status;
    if (fstat(ckpt_io_fd(stream->io), &status) != 0)
        return err_errno("%s: stat", stream->path);
    if (status.st_size != stream->bytes)
        return err_set(ERR_IO, "%s: is not the file that was made there",
                       stream->path);
    return ERR_OK;
}

static enum err create(const char *path, int64_t bytes, bool joins,
                       struct ckpt_stream **out)
{
    enum err rc = ERR_OK;
    struct ckpt_stream *stream = NULL;
    *out = NULL;
    TRY(new_zeroed(&stream, 1));
    stream->bytes = bytes;
    stream->joined = joins;
    for (int i = 0; i < 2; i++)
        TRY_OUT(ckpt_io_buffer(&stream->buffers[i], CKPT_STREAM_BUFFER_BYTES));
    TRY_OUT(fsio_path(stream->path, "%s", path));
    TRY_OUT(
        ckpt_io_open(path, true, bytes >= CKPT_IO_DIRECT_BYTES, &stream->io));
    TRY_OUT(joins ? check_joined(stream) : reserve(stream));
out:
    return new_or_none(rc, stream, out, ckpt_stream_destroy);
}

enum err ckpt_stream_create(const char *path, int64_t bytes,
                            struct ckpt_stream **out)
{
    return create(path, bytes, false, out);
}

enum err ckpt_stream_join(const char *path, int64_t bytes,
                          struct ckpt_stream **out)
{
    return create(path, bytes, true, out);
}

void ckpt_stream_destroy(struct ckpt_stream *stream)
{
    if (stream == NULL)
        return;
    ckpt_io_close(stream->io);
    for (int i = 0; i < 2; i++)
        free(stream->buffers[i]);
    free(stream->edges);
    free(stream);
}

/* Write what is in the buffer, and zeros up to the alignment: those can only
 * lie behind the end of the file, which is cut off there at last. */
static enum err flush(struct ckpt_stream *stream)
{
    if (stream->filled == 0)
        return ERR_OK;
    assert(stream->filled <= CKPT_STREAM_BUFFER_BYTES);
    assert((stream->at - stream->filled) % CKPT_IO_ALIGN == 0);
    char *buffer = stream->buffers[stream->current];
    int64_t padded =
        (stream->filled + CKPT_IO_ALIGN - 1) / CKPT_IO_ALIGN * CKPT_IO_ALIGN;
    assert(padded == stream->filled || stream->at == stream->bytes);
    memset(buffer + stream->filled, 0, (size_t)(padded - stream->filled));
    TRY(ckpt_io_start(stream->io, buffer, (size_t)padded,
                      stream->at - stream->filled));
    stream->current = 1 - stream->current;
    stream->filled = 0;
    return ERR_OK;
}

static enum err write_edges(struct ckpt_stream *stream)
{
    int fd = ckpt_io_fd(stream->io);
    if (stream->edge_count == 0)
        return ERR_OK;
    TRY(ckpt_io_wait(stream->io, NULL));
    TRY(ckpt_io_direct(stream->io, false));
    for (int i = 0; i < stream->edge_count; i++) {
        const struct edge *edge = &stream->edges[i];
        TRY(fsio_pwrite(fd, edge->data, (size_t)edge->bytes, edge->offset,
                        stream->path));
    }
    stream->edge_count = 0;
    return ckpt_io_direct(stream->io, true);
}

/* Less than a page that begins, or ends, inside one. */
static enum err keep_edge(struct ckpt_stream *stream, int64_t offset,
                          const char *data, int64_t bytes)
{
    if (stream->edges == NULL)
        TRY(new_room(&stream->edges, EDGES));
    if (stream->edge_count == EDGES)
        TRY(write_edges(stream));
    struct edge *edge = &stream->edges[stream->edge_count++];
    edge->offset = offset;
    edge->bytes = bytes;
    memcpy(edge->data, data, (size_t)bytes);
    return ERR_OK;
}

enum err ckpt_stream_skip(struct ckpt_stream *stream, int64_t at)
{
    int64_t part = stream->filled % CKPT_IO_ALIGN;
    assert(at >= stream->at && at <= stream->bytes);
    if (at == stream->at)
        return ERR_OK;
    stream->at -= part;
    stream->filled -= part;
    if (part > 0)
        TRY(keep_edge(stream, stream->at,
                      stream->buffers[stream->current] + stream->filled, part));
    TRY(flush(stream));
    stream->at = at;
    return ERR_OK;
}

bool ckpt_stream_takes(const void *data)
{
    return (uintptr_t)data % CKPT_IO_ALIGN == 0;
}

/* How much of the data can be written from where it lies. */
static int64_t direct_bytes(const struct ckpt_stream *stream, const void *data,
                            int64_t bytes)
{
    if (bytes < CKPT_STREAM_DIRECT_BYTES || stream->at % CKPT_IO_ALIGN != 0 ||
        !ckpt_stream_takes(data))
        return 0;
    return bytes / CKPT_IO_ALIGN * CKPT_IO_ALIGN;
}

enum err ckpt_stream_put(struct ckpt_stream *stream, const void *data,
                         int64_t bytes)
{
    const char *from = data;
    assert(bytes >= 0);
    assert(bytes <= stream->bytes - stream->at);
    while (bytes > 0) {
        int64_t part = direct_bytes(stream, from, bytes);
        int64_t over = stream->at % CKPT_IO_ALIGN;
        if (stream->filled == 0 && over > 0) {
            part = CKPT_IO_ALIGN - over < bytes ? CKPT_IO_ALIGN - over : bytes;
            TRY(keep_edge(stream, stream->at, from, part));
        } else if (part > 0) {
            TRY(flush(stream));
            /* only read: the transfer is a write */
            TRY(ckpt_io_start(stream->io, (void *)(uintptr_t)from, (size_t)part,
                              stream->at));
        } else {
            /* what this buffer held before has been written then */
            if (stream->filled == 0)
                TRY(ckpt_io_drain(stream->io, 1));
            part = CKPT_STREAM_BUFFER_BYTES - stream->filled;
            if (part > bytes)
                part = bytes;
            memcpy(stream->buffers[stream->current] + stream->filled, from,
                   (size_t)part);
            stream->filled += part;
        }
        from += part;
        bytes -= part;
        stream->at += part;
        if (stream->filled == CKPT_STREAM_BUFFER_BYTES)
            TRY(flush(stream));
    }
    return ERR_OK;
}

enum err ckpt_stream_finish(struct ckpt_stream *stream)
{
    enum err rc = ERR_OK;
    int fd = ckpt_io_fd(stream->io);
    if (stream->joined && stream->at < stream->bytes)
        TRY(ckpt_stream_skip(stream, stream->bytes));
    assert(stream->at == stream->bytes);
    TRY(flush(stream));
    TRY(write_edges(stream));
    TRY(ckpt_io_wait(stream->io, NULL));
    if (stream->joined)
        return ERR_OK;
    if (stream->bytes % CKPT_IO_ALIGN != 0 &&
        ftruncate(fd, (off_t)stream->bytes) != 0)
        rc = err_errno("%s: truncate", stream->path);
    else if (fsync(fd) != 0)
        rc = err_errno("%s: fsync", stream->path);
    return rc;
}
