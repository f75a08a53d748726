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
#include <pthread.h>
#include <inttypes.h>
#include <stdio.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/files/ckpt_crash.h"
#include "checkpoint/files/ckpt_io.h"
#include "checkpoint/files/ckpt_passage.h"
#include "checkpoint/files/ckpt_stream.h"
#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/base/new.h"

#define WRITE_BYTES (2 * (int64_t)CKPT_BLOCK_BYTES)
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
 * file of this folder on so many servers as ranks write it: the shards spread over
 * all servers anyhow. Failure means nothing, but that it is not tried again: the
 * command may be searched for in many folders. */
static void stripe_hint(const char *dir, int writers)
{
    static atomic_bool useless;
    char count[16];
    char *const arguments[] = {
        "lfs", "setstripe", "-c", count, (char *)(uintptr_t)dir, NULL
    };
    snprintf(count, sizeof count, "%d", writers);
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = -1;
    if (useless || posix_spawn_file_actions_init(&actions) != 0)
        return;
    for (int fd = 0; fd < 3; fd++)
        posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
    if (posix_spawnp(&child, "lfs", &actions, NULL, arguments, environ) == 0)
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
    useless = status != 0;
    posix_spawn_file_actions_destroy(&actions);
}

enum err ckpt_shard_folder(const char *dir, const char *what, int64_t bytes,
                           int writers)
{
    uint64_t free_bytes, need = (uint64_t)(bytes + SPACE_EXTRA_BYTES);
    stripe_hint(dir, writers);
    TRY(fsio_free_bytes(dir, &free_bytes));
    if (free_bytes < need)
        return err_set(ERR_FULL,
                       "%s: the %s needs %" PRIu64 " bytes, %" PRIu64
                       " are free: make room (.bad-* are checkpoints that were "
                       "set aside, which nothing removes)",
                       dir, what, need, free_bytes);
    return ERR_OK;
}

/* --- writing --- */

/* What passes by on its way to the file, in the file's order: all of it is
 * written once more, what HDF5 has put between the extents as well. HDF5 makes
 * its part in a file of memory, where tensors are holes. */
struct writer {
    struct ckpt_passage file; /* its fd is HDF5's; -1: another makes the file */
    int rank;
    const struct ckpt_item *items;
    const struct ckpt_share *share;
    ckpt_shard_feed feed; /* NULL: the items have their data */
    void *feed_arg;
    char *fed; /* CKPT_SHARD_FEED_BYTES */
    struct ckpt_segment **sorted;
    int next;         /* of these */
    int64_t *sums_of; /* where the sums of each of the share's segments begin */
    uint32_t *sums;
    struct ckpt_shard *shard;
    int64_t left; /* payload until the crash point in the middle */
};

/* Cuts data into equal steps of whole pages, except for the last one. */
static int64_t step_of(int64_t bytes)
{
    assert(bytes > 0);
    int64_t steps = (bytes + WRITE_BYTES - 1) / WRITE_BYTES;
    int64_t pages = bytes / steps / CKPT_IO_ALIGN + 1;
    return pages * CKPT_IO_ALIGN;
}

/* The next bytes of a segment, from its byte `at` on. */
static enum err put_step(struct writer *w, const struct ckpt_segment *segment,
                         const char *data, int64_t at, int64_t bytes)
{
    uint32_t *sums = w->sums + w->sums_of[segment - w->share->segments];
    int64_t first = segment->at / CKPT_BLOCK_BYTES;
    int64_t begin = segment->at + at, next;
    for (int64_t b = begin; b < begin + bytes; b = next) {
        int64_t block = b / CKPT_BLOCK_BYTES;
        next = (block + 1) * CKPT_BLOCK_BYTES;
        next = next < begin + bytes ? next : begin + bytes;
        sums[block - first] =
            crc32c(sums[block - first], data + (b - begin), (size_t)(next - b));
    }
    TRY(ckpt_stream_put(w->file.stream, data, bytes));
    if (w->left > 0 && (w->left -= bytes) <= 0)
        ckpt_crash_point("shard-half", w->rank);
    return ERR_OK;
}

static enum err put_steps(struct writer *w, const struct ckpt_segment *segment,
                          const char *data, int64_t at, int64_t bytes,
                          int64_t step)
{
    for (int64_t done = 0; done < bytes; done += step)
        TRY(put_step(w, segment, data + done, at + done,
                     bytes - done < step ? bytes - done : step));
    return ERR_OK;
}

/* Data that will be copied goes through the processor's cache in small steps,
 * so that it comes from memory only once. */
static enum err put_segment(struct writer *w,
                            const struct ckpt_segment *segment)
{
    const char *data = w->items[segment->item].data;
    int64_t bytes;
    if (w->feed == NULL)
        TRY(put_steps(w, segment, data, 0, segment->bytes,
                      ckpt_stream_takes(data) ? step_of(segment->bytes)
                                              : CKPT_PASSAGE_BYTES));
    for (int64_t at = 0; w->feed != NULL && at < segment->bytes; at += bytes) {
        bytes = segment->bytes - at < CKPT_SHARD_FEED_BYTES
                    ? segment->bytes - at
                    : CKPT_SHARD_FEED_BYTES;
        TRY(w->feed(w->feed_arg, segment->item, at, bytes, w->fed));
        TRY(put_steps(w, segment, w->fed, at, bytes, CKPT_PASSAGE_BYTES));
    }
    return ERR_OK;
}

/* The block CRCs go where HDF5 has made room for them, behind all payload: the
 * frame that passes then has them. */
static enum err put_crcs(struct writer *w)
{
    const struct ckpt_shard *shard = w->shard;
    if (shard->crc_offset < ckpt_manifest_end(shard, shard->extent_count))
        return err_set(ERR_INTERNAL, "%s: datasets are not in order",
                       w->file.path);
    if (w->share->ended != NULL)
        TRY(w->share->ended(w->share->arg, w->sums, w->sums_of));
    const struct ckpt_extent *extent = shard->extents;
    for (int i = 0; i < w->share->count; i++) {
        const struct ckpt_segment *segment = w->sorted[i];
        while (segment->offset >= extent->offset + extent->bytes)
            extent++;
        ckpt_segment_fold(segment,
                          w->sums + w->sums_of[segment - w->share->segments],
                          shard->blocks + extent->block);
    }
    return fsio_pwrite(w->file.fd, shard->blocks,
                       (size_t)shard->block_count * sizeof *shard->blocks,
                       shard->crc_offset, w->file.path);
}

/* This rank's segments in it; those of others are skipped. */
static enum err put_extent(void *arg, const struct ckpt_extent *extent)
{
    struct writer *w = arg;
    int64_t end = extent->offset + extent->bytes;
    for (; w->next < w->share->count && w->sorted[w->next]->offset < end;
         w->next++) {
        const struct ckpt_segment *segment = w->sorted[w->next];
        if (segment->rank == w->rank)
            TRY(put_segment(w, segment));
        else
            TRY(ckpt_stream_skip(w->file.stream,
                                 segment->offset + segment->bytes));
    }
    bool last = extent == &w->shard->extents[w->shard->extent_count - 1];
    return last ? put_crcs(w) : ERR_OK;
}

static int file_order(const void *a, const void *b)
{
    int64_t x = (*(struct ckpt_segment *const *)a)->offset;
    int64_t y = (*(struct ckpt_segment *const *)b)->offset;
    return (x > y) - (x < y);
}

/* Segments have their places: they are put in the order of the file. */
static enum err plan_sums(struct writer *w)
{
    const struct ckpt_share *share = w->share;
    int64_t sums = 0, payload = 0;
    qsort(w->sorted, (size_t)share->count, sizeof *w->sorted, file_order);
    TRY(new_room(&w->sums_of, (size_t)share->count + 1));
    for (int i = 0; i < share->count; i++) {
        w->sums_of[i] = sums;
        sums += ckpt_segment_sums(&share->segments[i]);
        payload +=
            share->segments[i].rank == w->rank ? share->segments[i].bytes : 0;
    }
    w->left = (payload + 1) / 2;
    return w->sums != NULL ? ERR_OK : new_zeroed(&w->sums, (size_t)sums);
}

/* The library is for one thread at a time, and a process may have two savers. */
static pthread_mutex_t hdf5 = PTHREAD_MUTEX_INITIALIZER;

/* The frame, in a file of memory. */
static enum err make_frame(struct writer *w,
                           const struct ckpt_hdf5_identity *identity)
{
    struct stat status;
    const struct ckpt_share *share = w->share;
    int fd = w->file.fd = memfd_create("shard", MFD_CLOEXEC);
    if (fd < 0)
        return err_errno("%s: memory file", w->file.path);
    TRY(ckpt_segments_sort(share->segments, share->count, &w->sorted));
    pthread_mutex_lock(&hdf5);
    enum err rc = ckpt_hdf5_create(fd, w->file.path, identity, w->items,
                                   w->sorted, share->count, w->shard);
    pthread_mutex_unlock(&hdf5);
    TRY(rc);
    if (fstat(fd, &status) != 0)
        return err_errno("%s: stat", w->file.path);
    w->shard->bytes = status.st_size;
    return plan_sums(w);
}

/* Payload, CRCs and frame: all of the file is written from its beginning to its
 * end, or what of it is this rank's. */
static enum err fill(struct writer *w,
                     const struct ckpt_hdf5_identity *identity)
{
    enum err rc = ERR_OK;
    struct ckpt_passage *file = &w->file;
    struct ckpt_shard *shard = w->shard;
    TRY_OUT(make_frame(w, identity));
    TRY_OUT(new_room(&file->buffer, (size_t)CKPT_PASSAGE_BYTES));
    TRY_OUT(new_zeroed(&shard->blocks, (size_t)shard->block_count));
    if (w->feed != NULL)
        TRY_OUT(new_room(&w->fed, (size_t)CKPT_SHARD_FEED_BYTES));
    TRY_OUT(ckpt_stream_create(file->path, shard->bytes, &file->stream));
    ckpt_crash_point("shard-created", w->rank);
    if (w->share->begun != NULL)
        TRY_OUT(w->share->begun(w->share->arg, shard->bytes));
    TRY_OUT(ckpt_passage_all(file, shard, put_extent, w, &shard->frame_crc));
    ckpt_crash_point("shard-written", w->rank);
    TRY_OUT(ckpt_stream_finish(file->stream));
out:
    ckpt_stream_destroy(file->stream);
    fsio_close(file->fd);
    free(w->fed);
    free(w->sorted);
    free(w->sums_of);
    free(w->sums);
    free(file->buffer);
    return rc;
}

enum err ckpt_shard_join(const char *dir, const char *file, int64_t bytes,
                         const struct ckpt_item *items,
                         struct ckpt_segment *segments, int count,
                         uint32_t *sums)
{
    enum err rc = ERR_OK;
    char part[FSIO_PATH_MAX];
    struct ckpt_share share = { .segments = segments, .count = count };
    struct writer w = { .file = { .path = part, .fd = -1 },
                        .rank = segments[0].rank,
                        .items = items,
                        .share = &share,
                        .sums = sums };
    TRY_OUT(fsio_path(part, "%s/%s.part", dir, file));
    TRY_OUT(ckpt_segments_sort(segments, count, &w.sorted));
    TRY_OUT(plan_sums(&w));
    TRY_OUT(ckpt_stream_join(part, bytes, &w.file.stream));
    for (int i = 0; i < count; i++) {
        TRY_OUT(ckpt_stream_skip(w.file.stream, w.sorted[i]->offset));
        TRY_OUT(put_segment(&w, w.sorted[i]));
    }
    TRY_OUT(ckpt_stream_finish(w.file.stream));
out:
    ckpt_stream_destroy(w.file.stream);
    free(w.sorted);
    free(w.sums_of);
    return rc;
}

/* The folder below the checkpoint's in which `file` is. */
static enum err make_folder(const char *dir, const char *file)
{
    char path[FSIO_PATH_MAX];
    const char *end = strrchr(file, '/');
    if (end == NULL)
        return ERR_OK;
    TRY(fsio_path(path, "%s/%.*s", dir, (int)(end - file), file));
    return fsio_mkdirs(path);
}

/* Gives the complete file its name, and looks whether it is there. */
static enum err publish(const char *dir, const struct ckpt_shard *shard,
                        const char *part)
{
    char path[FSIO_PATH_MAX];
    struct stat status;
    const char *file = shard->file;
    TRY(fsio_path(path, "%s/%s", dir, file));
    if (rename(part, path) != 0)
        return err_errno("%s: rename", part);
    if (lstat(path, &status) != 0)
        return err_errno("%s: stat", path);
    if (!S_ISREG(status.st_mode) || status.st_size != shard->bytes)
        return err_set(ERR_IO, "%s: is not what was written there", path);
    return ERR_OK;
}

static enum err write_file(const char *dir, const char *file,
                           const struct ckpt_hdf5_identity *identity,
                           struct writer *w)
{
    char part[FSIO_PATH_MAX];
    struct ckpt_shard *shard = w->shard;
    assert(strlen(file) < sizeof shard->file);
    assert(identity->rank >= 0 && identity->rank < identity->ranks);
    *shard = (struct ckpt_shard){ 0 };
    snprintf(shard->file, sizeof shard->file, "%s", file);
    w->file = (struct ckpt_passage){ .path = part, .fd = -1 };
    w->rank = identity->rank;
    TRY(fsio_path(part, "%s/%s.part", dir, file));
    TRY(make_folder(dir, file));
    TRY(fill(w, identity));
    ckpt_crash_point("shard-synced", w->rank);
    TRY(publish(dir, shard, part));
    ckpt_crash_point("shard-renamed", w->rank);
    return ERR_OK;
}

enum err ckpt_shard_write(const char *dir, const char *file,
                          const struct ckpt_hdf5_identity *identity,
                          const struct ckpt_item *items, int item_count,
                          ckpt_shard_feed feed, void *feed_arg,
                          struct ckpt_shard *shard)
{
    struct ckpt_share alone = { 0 };
    struct writer w = { .items = items,
                        .share = &alone,
                        .feed = feed,
                        .feed_arg = feed_arg,
                        .shard = shard };
    enum err rc = ckpt_segments_create(items, item_count, identity->rank,
                                       &alone.segments, &alone.count);
    if (rc == ERR_OK)
        rc = write_file(dir, file, identity, &w);
    free(alone.segments);
    return rc;
}

enum err ckpt_shard_write_shared(const char *dir, const char *file,
                                 const struct ckpt_hdf5_identity *identity,
                                 const struct ckpt_item *items,
                                 const struct ckpt_share *share,
                                 struct ckpt_shard *shard)
{
    struct writer w = { .items = items, .share = share, .shard = shard };
    return write_file(dir, file, identity, &w);
}

/* --- copying --- */

struct copy {
    struct ckpt_passage file;
    uint32_t *sums;
};

static enum err copy_extent(void *arg, const struct ckpt_extent *extent)
{
    const struct copy *copy = arg;
    int64_t block = extent->block;
    int64_t end = extent->offset + extent->bytes;
    for (int64_t at = extent->offset, next; at < end; at = next) {
        uint32_t crc = 0;
        next = end - at < CKPT_BLOCK_BYTES ? end : at + CKPT_BLOCK_BYTES;
        TRY(ckpt_passage_step(&copy->file, at, next, &crc));
        if (crc != copy->sums[block++])
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
    struct copy copy = { .file = { .path = from, .fd = -1, .lost = true } };
    struct ckpt_passage *file = &copy.file;
    uint32_t frame_crc;
    TRY_OUT(fsio_path(from, "%s/%s", from_dir, shard->file));
    TRY_OUT(new_room(&file->buffer, (size_t)CKPT_PASSAGE_BYTES));
    file->fd = open(from, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file->fd < 0)
        TRY_OUT(err_set(ERR_CHECKPOINT, "%s: open: %s", from, strerror(errno)));
    TRY_OUT(ckpt_passage_sums(file, shard, &copy.sums));
    TRY_OUT(make_folder(to_dir, shard->file));
    TRY_OUT(fsio_path(part, "%s/%s.part", to_dir, shard->file));
    TRY_OUT(ckpt_stream_create(part, shard->bytes, &file->stream));
    TRY_OUT(ckpt_passage_all(file, shard, copy_extent, &copy, &frame_crc));
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
    free(copy.sums);
    return rc;
}
