/* Writes the file of one shard: HDF5 frame, values, checksums, sync and rename.
 * The form of the frame is made in ckpt_hdf5.c.
 *
 * A sum a block of 4 MiB, and not one a file, lets a load that wants a part of
 * a shard check that part alone, and a damaged shard be told by its tensors. Sums
 * are taken of what is on its way to the disk, while it is in the processor's
 * cache, and not of what was read back, which would tell no more than that the
 * page cache is good. All bytes outside the extents, the frame, have one sum
 * together. */
#include "checkpoint/files/ckpt_shard.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/files/ckpt_crash.h"
#include "checkpoint/files/ckpt_io.h"
#include "checkpoint/files/ckpt_stream.h"
#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/base/new.h"

#define WRITE_BYTES (2 * (int64_t)CKPT_BLOCK_BYTES)
#define COPY_BYTES ((int64_t)256 << 10)
#define FRAME_READ_BYTES ((int64_t)256 << 10)

/* Continue *crc over [begin, end) of the file. */
static enum err crc_range(int fd, const char *path, int64_t begin, int64_t end,
                          char *buffer, uint32_t *crc)
{
    while (begin < end) {
        int64_t bytes = end - begin;
        if (bytes > FRAME_READ_BYTES)
            bytes = FRAME_READ_BYTES;
        TRY(fsio_pread(fd, buffer, (size_t)bytes, begin, path));
        *crc = crc32c(*crc, buffer, (size_t)bytes);
        begin += bytes;
    }
    return ERR_OK;
}

enum err ckpt_shard_frame_crc(int fd, const char *path,
                              const struct ckpt_shard *shard, uint32_t *crc)
{
    enum err rc = ERR_OK;
    int64_t done = 0;
    char *buffer = NULL;
    TRY(new_room(&buffer, (size_t)FRAME_READ_BYTES));
    *crc = 0;
    for (int i = 0; i < shard->extent_count; i++) {
        const struct ckpt_extent *extent = &shard->extents[i];
        TRY_OUT(crc_range(fd, path, done, extent->offset, buffer, crc));
        done = extent->offset + extent->bytes;
    }
    TRY_OUT(crc_range(fd, path, done, shard->bytes, buffer, crc));
out:
    free(buffer);
    return rc;
}

void ckpt_shard_name(int number, int count, int folder_files,
                     char name[CKPT_FILE_BYTES])
{
    assert(number >= 0 && number < count && folder_files > 0);
    char folder[20] = ""; /* with any number */
    if (count > folder_files)
        snprintf(folder, sizeof folder, "shards/%03d/", number / folder_files);
    snprintf(name, CKPT_FILE_BYTES, "%sshard-%05d-of-%05d.h5", folder, number,
             count);
}

void ckpt_shard_stripe_hint(const char *dir)
{
    extern char **environ;
    char *const arguments[] = {
        "lfs", "setstripe", "-c", "1", (char *)(uintptr_t)dir, NULL
    };
    posix_spawn_file_actions_t actions;
    pid_t child;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return;
    for (int fd = 0; fd < 3; fd++)
        posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    if (posix_spawnp(&child, "lfs", &actions, NULL, arguments, environ) == 0)
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
            ;
    posix_spawn_file_actions_destroy(&actions);
}

/* --- writing --- */

/* What passes by on its way to the file, in the file's order. */
struct writer {
    const char *path;
    int rank;
    const struct ckpt_item *items;
    ckpt_shard_feed feed; /* NULL: the items have their data */
    void *feed_arg;
    char *fed; /* CKPT_SHARD_FEED_BYTES */
    struct ckpt_shard *shard;
    int64_t crc_offset; /* where the contents of _crc32c go */
    int fd;             /* to read what HDF5 has put between the extents */
    struct ckpt_stream *stream;
    char *frame;  /* FRAME_READ_BYTES */
    int64_t left; /* payload until the crash point in the middle */
};

/* Put what lies at `at` of [begin, end) of `data` into the part of the frame
 * that is in the buffer. */
static void overlay(char *buffer, int64_t at, int64_t bytes, const void *data,
                    int64_t begin, int64_t end)
{
    int64_t from = begin > at ? begin : at;
    int64_t to = end < at + bytes ? end : at + bytes;
    if (from < to)
        memcpy(buffer + (from - at), (const char *)data + (from - begin),
               (size_t)(to - from));
}

/* Copy [begin, end) of the file to itself, with the block CRCs filled in: all
 * of them are known, for they lie behind the payload. */
static enum err put_frame(struct writer *w, int64_t begin, int64_t end)
{
    struct ckpt_shard *shard = w->shard;
    int64_t crc_bytes = shard->block_count * (int64_t)sizeof shard->blocks[0];
    assert(begin >= 0 && begin <= end);
    while (begin < end) {
        int64_t bytes = end - begin;
        if (bytes > FRAME_READ_BYTES)
            bytes = FRAME_READ_BYTES;
        TRY(fsio_pread(w->fd, w->frame, (size_t)bytes, begin, w->path));
        overlay(w->frame, begin, bytes, shard->blocks, w->crc_offset,
                w->crc_offset + crc_bytes);
        shard->frame_crc = crc32c(shard->frame_crc, w->frame, (size_t)bytes);
        TRY(ckpt_stream_put(w->stream, w->frame, bytes));
        begin += bytes;
    }
    return ERR_OK;
}

/* Cuts data into equal steps of whole pages, except for the last one. */
static int64_t step_of(int64_t bytes)
{
    assert(bytes > 0);
    int64_t steps = (bytes + WRITE_BYTES - 1) / WRITE_BYTES;
    int64_t pages = bytes / steps / CKPT_IO_ALIGN + 1;
    return pages * CKPT_IO_ALIGN;
}

/* The next bytes of an extent, from its byte `at` on. */
static enum err put_step(struct writer *w, uint32_t *crcs, const char *data,
                         int64_t at, int64_t bytes)
{
    for (int64_t b = at; b < at + bytes;) {
        int64_t block = b / CKPT_BLOCK_BYTES;
        int64_t end = (block + 1) * CKPT_BLOCK_BYTES;
        if (end > at + bytes)
            end = at + bytes;
        crcs[block] = crc32c(crcs[block], data + (b - at), (size_t)(end - b));
        b = end;
    }
    TRY(ckpt_stream_put(w->stream, data, bytes));
    if (w->left > 0 && (w->left -= bytes) <= 0)
        ckpt_crash_point("shard-half", w->rank);
    return ERR_OK;
}

static enum err put_steps(struct writer *w, uint32_t *crcs, const char *data,
                          int64_t at, int64_t bytes, int64_t step)
{
    for (int64_t done = 0; done < bytes; done += step)
        TRY(put_step(w, crcs, data + done, at + done,
                     bytes - done < step ? bytes - done : step));
    return ERR_OK;
}

/* Data that will be copied goes through the processor's cache in small steps,
 * so that it comes from memory only once. */
static enum err put_extent(struct writer *w, const struct ckpt_extent *extent)
{
    const char *data = w->items[extent->tensor].data;
    uint32_t *crcs = &w->shard->blocks[extent->block];
    if (w->feed == NULL)
        return put_steps(w, crcs, data, 0, extent->bytes,
                         ckpt_stream_takes(data) ? step_of(extent->bytes)
                                                 : COPY_BYTES);
    for (int64_t at = 0; at < extent->bytes; at += CKPT_SHARD_FEED_BYTES) {
        int64_t bytes = extent->bytes - at < CKPT_SHARD_FEED_BYTES
                            ? extent->bytes - at
                            : CKPT_SHARD_FEED_BYTES;
        TRY(w->feed(w->feed_arg, extent->tensor, at, bytes, w->fed));
        TRY(put_steps(w, crcs, w->fed, at, bytes, COPY_BYTES));
    }
    return ERR_OK;
}

static enum err put_all(struct writer *w)
{
    int64_t done = 0;
    int64_t payload = 0;
    for (int i = 0; i < w->shard->extent_count; i++)
        payload += w->shard->extents[i].bytes;
    w->left = (payload + 1) / 2;
    for (int i = 0; i < w->shard->extent_count; i++) {
        const struct ckpt_extent *extent = &w->shard->extents[i];
        if (extent->offset < done || w->crc_offset < extent->offset)
            return err_set(ERR_INTERNAL, "%s: datasets are not in order",
                           w->path);
        TRY(put_frame(w, done, extent->offset));
        TRY(put_extent(w, extent));
        done = extent->offset + extent->bytes;
    }
    return put_frame(w, done, w->shard->bytes);
}

/* Payload, CRCs and frame of the file that HDF5 has made: all of it is written
 * once more from its beginning to its end. */
static enum err fill(struct writer *w)
{
    enum err rc = ERR_OK;
    struct stat status;
    TRY_OUT(new_room(&w->frame, (size_t)FRAME_READ_BYTES));
    TRY_OUT(new_zeroed(&w->shard->blocks, (size_t)w->shard->block_count));
    if (w->feed != NULL)
        TRY_OUT(new_room(&w->fed, (size_t)CKPT_SHARD_FEED_BYTES));
    w->fd = open(w->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (w->fd < 0 || fstat(w->fd, &status) != 0) {
        rc = err_errno("%s: open", w->path);
        goto out;
    }
    w->shard->bytes = status.st_size;
    TRY_OUT(ckpt_stream_create(w->path, w->shard->bytes, &w->stream));
    TRY_OUT(put_all(w));
    ckpt_crash_point("shard-written", w->rank);
    TRY_OUT(ckpt_stream_finish(w->stream));
out:
    ckpt_stream_destroy(w->stream);
    if (w->fd >= 0)
        close(w->fd);
    free(w->fed);
    free(w->frame);
    return rc;
}

/* Apply to the folder of `file` and those above it, the checkpoint's last. */
static enum err each_folder(const char *dir, const char *file,
                            enum err (*apply)(const char *path))
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/%s", dir, file));
    for (size_t length = strlen(path); length > strlen(dir); length--)
        if (path[length] == '/') {
            path[length] = '\0';
            TRY(apply(path));
        }
    return apply(dir);
}

/* Gives the complete file its name, durably. */
static enum err publish(const char *dir, const char *file, const char *part)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/%s", dir, file));
    if (rename(part, path) != 0)
        return err_errno("%s: rename", part);
    return each_folder(dir, file, fsio_fsync_dir);
}

enum err ckpt_shard_write_fed(const char *dir, const char *file,
                              const struct ckpt_hdf5_identity *identity,
                              const struct ckpt_item *items, int item_count,
                              ckpt_shard_feed feed, void *feed_arg,
                              struct ckpt_shard *shard)
{
    char part[FSIO_PATH_MAX];
    struct writer writer = { .path = part,
                             .rank = identity->rank,
                             .items = items,
                             .feed = feed,
                             .feed_arg = feed_arg,
                             .shard = shard,
                             .fd = -1 };
    assert(strlen(file) < sizeof shard->file);
    assert(identity->rank >= 0 && identity->rank < identity->ranks);
    *shard = (struct ckpt_shard){ 0 };
    snprintf(shard->file, sizeof shard->file, "%s", file);
    TRY(fsio_path(part, "%s/%s.part", dir, file));
    if (strchr(file, '/') != NULL)
        TRY(each_folder(dir, file, fsio_mkdirs));
    TRY(ckpt_hdf5_create(part, identity, items, item_count, shard,
                         &writer.crc_offset));
    ckpt_crash_point("shard-created", identity->rank);
    TRY(fill(&writer));
    ckpt_crash_point("shard-synced", identity->rank);
    TRY(publish(dir, file, part));
    ckpt_crash_point("shard-renamed", identity->rank);
    return ERR_OK;
}

enum err ckpt_shard_write(const char *dir, const char *file,
                          const struct ckpt_hdf5_identity *identity,
                          const struct ckpt_item *items, int item_count,
                          struct ckpt_shard *shard)
{
    return ckpt_shard_write_fed(dir, file, identity, items, item_count, NULL,
                                NULL, shard);
}

/* --- copying --- */

struct copy {
    const char *from;
    int fd;
    const struct ckpt_shard *shard;
    struct ckpt_stream *stream;
    char *buffer; /* COPY_BYTES */
};

/* Bytes that can't be read are as good as damaged: there may be another copy.
 */
static enum err copy_bytes(const struct copy *copy, int64_t begin, int64_t end,
                           uint32_t *crc)
{
    while (begin < end) {
        int64_t bytes = end - begin < COPY_BYTES ? end - begin : COPY_BYTES;
        if (fsio_pread(copy->fd, copy->buffer, (size_t)bytes, begin,
                       copy->from) != ERR_OK)
            return err_set(ERR_CHECKPOINT, "%s", err_text());
        *crc = crc32c(*crc, copy->buffer, (size_t)bytes);
        TRY(ckpt_stream_put(copy->stream, copy->buffer, bytes));
        begin += bytes;
    }
    return ERR_OK;
}

static enum err copy_extent(const struct copy *copy,
                            const struct ckpt_extent *extent)
{
    int64_t block = extent->block;
    for (int64_t at = 0; at < extent->bytes; at += CKPT_BLOCK_BYTES) {
        int64_t begin = extent->offset + at;
        int64_t end = extent->bytes - at < CKPT_BLOCK_BYTES
                          ? extent->offset + extent->bytes
                          : begin + CKPT_BLOCK_BYTES;
        uint32_t crc = 0;
        TRY(copy_bytes(copy, begin, end, &crc));
        if (crc != copy->shard->blocks[block++])
            return err_set(ERR_CHECKPOINT, "%s: bytes %lld to %lld are damaged",
                           copy->from, (long long)begin, (long long)end);
    }
    return ERR_OK;
}

static enum err copy_all(const struct copy *copy)
{
    const struct ckpt_shard *shard = copy->shard;
    int64_t done = 0;
    uint32_t frame_crc = 0;
    for (int i = 0; i < shard->extent_count; i++) {
        const struct ckpt_extent *extent = &shard->extents[i];
        TRY(copy_bytes(copy, done, extent->offset, &frame_crc));
        TRY(copy_extent(copy, extent));
        done = extent->offset + extent->bytes;
    }
    TRY(copy_bytes(copy, done, shard->bytes, &frame_crc));
    if (frame_crc != shard->frame_crc)
        return err_set(ERR_CHECKPOINT, "%s: the frame is damaged", copy->from);
    return ERR_OK;
}

/* Makes an empty file: the stream wants one that exists. */
static enum err make_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_errno("%s: create", path);
    close(fd);
    return ERR_OK;
}

enum err ckpt_shard_copy(const char *from_dir, const char *to_dir,
                         const struct ckpt_shard *shard)
{
    enum err rc = ERR_OK;
    char from[FSIO_PATH_MAX], part[FSIO_PATH_MAX] = "";
    struct copy copy = { .from = from, .fd = -1, .shard = shard };
    TRY_OUT(fsio_path(from, "%s/%s", from_dir, shard->file));
    TRY_OUT(new_room(&copy.buffer, (size_t)COPY_BYTES));
    copy.fd = open(from, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (copy.fd < 0) {
        rc = err_set(ERR_CHECKPOINT, "%s: open: %s", from, strerror(errno));
        goto out;
    }
    if (strchr(shard->file, '/') != NULL)
        TRY_OUT(each_folder(to_dir, shard->file, fsio_mkdirs));
    TRY_OUT(fsio_path(part, "%s/%s.part", to_dir, shard->file));
    TRY_OUT(make_file(part));
    TRY_OUT(ckpt_stream_create(part, shard->bytes, &copy.stream));
    TRY_OUT(copy_all(&copy));
    TRY_OUT(ckpt_stream_finish(copy.stream));
    TRY_OUT(publish(to_dir, shard->file, part));
out:
    ckpt_stream_destroy(copy.stream);
    if (rc != ERR_OK && part[0] != '\0')
        unlink(part);
    if (copy.fd >= 0)
        close(copy.fd);
    free(copy.buffer);
    return rc;
}
