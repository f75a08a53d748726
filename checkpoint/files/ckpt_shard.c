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
#include <inttypes.h>
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
#define STEP_BYTES ((int64_t)256 << 10)
/* Room on disk for HDF5 metadata, the manifest and the file system's own
 * needs. */
#define SPACE_EXTRA_BYTES ((int64_t)64 << 10)

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

/* Asks a Lustre file system, by its command lfs if there is one, to keep each
 * file of this folder on one server: a shard has one writer, and the shards
 * spread over all servers anyhow. Failure means nothing. */
static void stripe_hint(const char *dir)
{
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

enum err ckpt_shard_folder(const char *dir, const char *what, int64_t bytes)
{
    uint64_t free_bytes, need = (uint64_t)(bytes + SPACE_EXTRA_BYTES);
    stripe_hint(dir);
    TRY(fsio_free_bytes(dir, &free_bytes));
    if (free_bytes < need)
        return err_set(ERR_FULL,
                       "%s: the %s needs %" PRIu64 " bytes, %" PRIu64
                       " are free: make room",
                       dir, what, need, free_bytes);
    return ERR_OK;
}

/* --- a shard's file from its first byte to its last --- */

/* Where its bytes are read, and where they go. */
struct passage {
    const char *path;
    int fd;
    char *buffer;               /* STEP_BYTES */
    struct ckpt_stream *stream; /* NULL: they are only summed */
    bool lost; /* bytes that can't be read are as good as damaged: there may be
                * another copy */
};

/* Bytes [begin, end) of the file, to the stream and into *crc. */
static enum err pass(const struct passage *p, int64_t begin, int64_t end,
                     uint32_t *crc)
{
    assert(begin >= 0);
    while (begin < end) {
        int64_t bytes = end - begin < STEP_BYTES ? end - begin : STEP_BYTES;
        enum err rc =
            fsio_pread(p->fd, p->buffer, (size_t)bytes, begin, p->path);
        if (rc != ERR_OK)
            return p->lost ? err_set(ERR_CHECKPOINT, "%s", err_text()) : rc;
        *crc = crc32c(*crc, p->buffer, (size_t)bytes);
        if (p->stream != NULL)
            TRY(ckpt_stream_put(p->stream, p->buffer, bytes));
        begin += bytes;
    }
    return ERR_OK;
}

typedef enum err (*extent_fn)(void *arg, const struct ckpt_extent *extent);

/* The frame, and between its parts `each` extent; NULL: those are left out. */
static enum err pass_all(const struct passage *p,
                         const struct ckpt_shard *shard, extent_fn each,
                         void *arg, uint32_t *frame_crc)
{
    int64_t done = 0;
    *frame_crc = 0;
    for (int i = 0; i < shard->extent_count; i++) {
        const struct ckpt_extent *extent = &shard->extents[i];
        if (extent->offset < done)
            return err_set(ERR_INTERNAL, "%s: datasets are not in order",
                           p->path);
        TRY(pass(p, done, extent->offset, frame_crc));
        if (each != NULL)
            TRY(each(arg, extent));
        done = extent->offset + extent->bytes;
    }
    return pass(p, done, shard->bytes, frame_crc);
}

enum err ckpt_shard_frame_crc(int fd, const char *path,
                              const struct ckpt_shard *shard, uint32_t *crc)
{
    struct passage passage = { .path = path, .fd = fd };
    TRY(new_room(&passage.buffer, (size_t)STEP_BYTES));
    enum err rc = pass_all(&passage, shard, NULL, NULL, crc);
    free(passage.buffer);
    return rc;
}

/* --- writing --- */

/* What passes by on its way to the file, in the file's order: all of it is
 * written once more, what HDF5 has put between the extents as well. */
struct writer {
    struct passage file;
    int rank;
    const struct ckpt_item *items;
    ckpt_shard_feed feed; /* NULL: the items have their data */
    void *feed_arg;
    char *fed; /* CKPT_SHARD_FEED_BYTES */
    struct ckpt_shard *shard;
    int64_t crc_offset; /* where the contents of _crc32c go */
    int64_t left;       /* payload until the crash point in the middle */
};

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
    TRY(ckpt_stream_put(w->file.stream, data, bytes));
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

/* The block CRCs go where HDF5 has made room for them, behind all payload: the
 * frame that passes then has them. */
static enum err put_crcs(const struct writer *w)
{
    const struct ckpt_shard *shard = w->shard;
    const struct ckpt_extent *last = &shard->extents[shard->extent_count - 1];
    if (w->crc_offset < last->offset + last->bytes)
        return err_set(ERR_INTERNAL, "%s: datasets are not in order",
                       w->file.path);
    return fsio_pwrite(w->file.fd, shard->blocks,
                       (size_t)shard->block_count * sizeof *shard->blocks,
                       w->crc_offset, w->file.path);
}

/* Data that will be copied goes through the processor's cache in small steps,
 * so that it comes from memory only once. */
static enum err put_extent(void *arg, const struct ckpt_extent *extent)
{
    struct writer *w = arg;
    const char *data = w->items[extent->tensor].data;
    uint32_t *crcs = &w->shard->blocks[extent->block];
    int64_t bytes;
    if (w->feed == NULL)
        TRY(put_steps(w, crcs, data, 0, extent->bytes,
                      ckpt_stream_takes(data) ? step_of(extent->bytes)
                                              : STEP_BYTES));
    for (int64_t at = 0; w->feed != NULL && at < extent->bytes; at += bytes) {
        bytes = extent->bytes - at < CKPT_SHARD_FEED_BYTES
                    ? extent->bytes - at
                    : CKPT_SHARD_FEED_BYTES;
        TRY(w->feed(w->feed_arg, extent->tensor, at, bytes, w->fed));
        TRY(put_steps(w, crcs, w->fed, at, bytes, STEP_BYTES));
    }
    bool last = extent == &w->shard->extents[w->shard->extent_count - 1];
    return last ? put_crcs(w) : ERR_OK;
}

/* Payload, CRCs and frame of the file that HDF5 has made: all of it is written
 * once more from its beginning to its end. */
static enum err fill(struct writer *w)
{
    enum err rc = ERR_OK;
    struct passage *file = &w->file;
    struct stat status;
    int64_t payload = 0;
    TRY_OUT(new_room(&file->buffer, (size_t)STEP_BYTES));
    TRY_OUT(new_zeroed(&w->shard->blocks, (size_t)w->shard->block_count));
    if (w->feed != NULL)
        TRY_OUT(new_room(&w->fed, (size_t)CKPT_SHARD_FEED_BYTES));
    file->fd = open(file->path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (file->fd < 0 || fstat(file->fd, &status) != 0)
        TRY_OUT(err_errno("%s: open", file->path));
    w->shard->bytes = status.st_size;
    for (int i = 0; i < w->shard->extent_count; i++)
        payload += w->shard->extents[i].bytes;
    w->left = (payload + 1) / 2;
    TRY_OUT(ckpt_stream_create(file->path, w->shard->bytes, &file->stream));
    TRY_OUT(pass_all(file, w->shard, put_extent, w, &w->shard->frame_crc));
    ckpt_crash_point("shard-written", w->rank);
    TRY_OUT(ckpt_stream_finish(file->stream));
out:
    ckpt_stream_destroy(file->stream);
    fsio_close(file->fd);
    free(w->fed);
    free(file->buffer);
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

/* Gives the complete file its name, durably, and looks whether it is there. */
static enum err publish(const char *dir, const struct ckpt_shard *shard,
                        const char *part)
{
    char path[FSIO_PATH_MAX];
    struct stat status;
    const char *file = shard->file;
    TRY(fsio_path(path, "%s/%s", dir, file));
    if (rename(part, path) != 0)
        return err_errno("%s: rename", part);
    TRY(each_folder(dir, file, fsio_fsync_dir));
    if (lstat(path, &status) != 0)
        return err_errno("%s: stat", path);
    if (!S_ISREG(status.st_mode) || status.st_size != shard->bytes)
        return err_set(ERR_IO, "%s: is not what was written there", path);
    return ERR_OK;
}

enum err ckpt_shard_write(const char *dir, const char *file,
                          const struct ckpt_hdf5_identity *identity,
                          const struct ckpt_item *items, int item_count,
                          ckpt_shard_feed feed, void *feed_arg,
                          struct ckpt_shard *shard)
{
    char part[FSIO_PATH_MAX];
    struct writer writer = { .file = { .path = part, .fd = -1 },
                             .rank = identity->rank,
                             .items = items,
                             .feed = feed,
                             .feed_arg = feed_arg,
                             .shard = shard };
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
    TRY(publish(dir, shard, part));
    ckpt_crash_point("shard-renamed", identity->rank);
    return ERR_OK;
}

/* --- copying --- */

struct copy {
    struct passage file;
    const struct ckpt_shard *shard;
};

static enum err copy_extent(void *arg, const struct ckpt_extent *extent)
{
    const struct copy *copy = arg;
    int64_t block = extent->block;
    int64_t end = extent->offset + extent->bytes;
    for (int64_t at = extent->offset, next; at < end; at = next) {
        uint32_t crc = 0;
        next = end - at < CKPT_BLOCK_BYTES ? end : at + CKPT_BLOCK_BYTES;
        TRY(pass(&copy->file, at, next, &crc));
        if (crc != copy->shard->blocks[block++])
            return err_set(ERR_CHECKPOINT,
                           "%s: bytes %" PRId64 " to %" PRId64 " are damaged",
                           copy->file.path, at, next);
    }
    return ERR_OK;
}

enum err ckpt_shard_copy(const char *from_dir, const char *to_dir,
                         const struct ckpt_shard *shard)
{
    enum err rc = ERR_OK;
    char from[FSIO_PATH_MAX], part[FSIO_PATH_MAX] = "";
    struct copy copy = { .file = { .path = from, .fd = -1, .lost = true },
                         .shard = shard };
    struct passage *file = &copy.file;
    uint32_t frame_crc;
    TRY_OUT(fsio_path(from, "%s/%s", from_dir, shard->file));
    TRY_OUT(new_room(&file->buffer, (size_t)STEP_BYTES));
    file->fd = open(from, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file->fd < 0)
        TRY_OUT(err_set(ERR_CHECKPOINT, "%s: open: %s", from, strerror(errno)));
    if (strchr(shard->file, '/') != NULL)
        TRY_OUT(each_folder(to_dir, shard->file, fsio_mkdirs));
    TRY_OUT(fsio_path(part, "%s/%s.part", to_dir, shard->file));
    TRY_OUT(ckpt_stream_create(part, shard->bytes, &file->stream));
    TRY_OUT(pass_all(file, shard, copy_extent, &copy, &frame_crc));
    if (frame_crc != shard->frame_crc)
        TRY_OUT(err_set(ERR_CHECKPOINT, "%s: the frame is damaged", from));
    TRY_OUT(ckpt_stream_finish(file->stream));
    TRY_OUT(publish(to_dir, shard, part));
out:
    ckpt_stream_destroy(file->stream);
    if (rc != ERR_OK && part[0] != '\0')
        unlink(part);
    fsio_close(file->fd);
    free(file->buffer);
    return rc;
}
