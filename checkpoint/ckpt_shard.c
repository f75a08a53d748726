#include "checkpoint/ckpt_shard.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/ckpt_crash.h"
#include "src/base/crc32c.h"
#include "src/base/fsio.h"

#define WRITE_BYTES (2 * (int64_t)CKPT_BLOCK_BYTES)
#define FRAME_READ_BYTES ((int64_t)1 << 20)

/* Continue *crc over [begin, end) of the file. */
static enum err crc_range(int fd, const char *path, int64_t begin, int64_t end,
                          char *buffer, uint32_t *crc)
{
    enum err rc = ERR_OK;
    while (begin < end) {
        int64_t bytes = end - begin;
        if (bytes > FRAME_READ_BYTES)
            bytes = FRAME_READ_BYTES;
        TRY(fsio_pread(fd, buffer, (size_t)bytes, begin, path));
        *crc = crc32c(*crc, buffer, (size_t)bytes);
        begin += bytes;
    }
out:
    return rc;
}

enum err ckpt_shard_frame_crc(int fd, const char *path,
                              const struct ckpt_shard *shard, uint32_t *crc)
{
    enum err rc = ERR_OK;
    int64_t done = 0;
    char *buffer = malloc((size_t)FRAME_READ_BYTES);
    if (buffer == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", path);
    *crc = 0;
    for (int i = 0; i < shard->piece_count; i++) {
        const struct ckpt_piece *piece = &shard->pieces[i];
        TRY(crc_range(fd, path, done, piece->offset, buffer, crc));
        done = piece->offset + piece->bytes;
    }
    TRY(crc_range(fd, path, done, shard->bytes, buffer, crc));
out:
    free(buffer);
    return rc;
}

/* Reserve the whole file now, so that a full disk shows before the work. File
 * systems that can't are fine: the writes will tell. */
static enum err reserve(int fd, const char *path, int64_t bytes)
{
    int failed;
    do
        failed = fallocate(fd, 0, 0, (off_t)bytes);
    while (failed != 0 && errno == EINTR);
    if (failed == 0 || errno == EOPNOTSUPP || errno == ENOSYS)
        return ERR_OK;
    return err_errno("%s: reserve %lld bytes", path, (long long)bytes);
}

static int64_t payload_bytes(const struct ckpt_shard *shard)
{
    int64_t bytes = 0;
    for (int i = 0; i < shard->piece_count; i++)
        bytes += shard->pieces[i].bytes;
    return bytes;
}

static enum err write_payload(int fd, const char *path, int rank,
                              const struct ckpt_item *items,
                              struct ckpt_shard *shard)
{
    enum err rc = ERR_OK;
    int64_t left = (payload_bytes(shard) + 1) / 2; /* until the crash point */
    int64_t block = 0;
    for (int i = 0; i < shard->piece_count; i++) {
        struct ckpt_piece *piece = &shard->pieces[i];
        const char *data = items[piece->tensor].data;
        piece->block = block;
        for (int64_t at = 0; at < piece->bytes; at += WRITE_BYTES) {
            int64_t bytes = piece->bytes - at;
            if (bytes > WRITE_BYTES)
                bytes = WRITE_BYTES;
            for (int64_t b = 0; b < bytes; b += CKPT_BLOCK_BYTES) {
                int64_t part = bytes - b;
                if (part > CKPT_BLOCK_BYTES)
                    part = CKPT_BLOCK_BYTES;
                shard->blocks[block++] = crc32c(0, data + at + b, (size_t)part);
            }
            TRY(fsio_pwrite(fd, data + at, (size_t)bytes, piece->offset + at,
                            path));
            if (left > 0 && (left -= bytes) <= 0)
                ckpt_crash_point("shard-half", rank);
        }
    }
    assert(block == shard->block_count);
out:
    return rc;
}

/* Payload and frame CRC of the file that HDF5 has made. */
static enum err fill(const char *path, int rank, const struct ckpt_item *items,
                     struct ckpt_shard *shard)
{
    enum err rc = ERR_OK;
    struct stat status;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) != 0) {
        rc = err_errno("%s: open", path);
        goto out;
    }
    shard->bytes = status.st_size;
    TRY(reserve(fd, path, shard->bytes));
    TRY(write_payload(fd, path, rank, items, shard));
    TRY(ckpt_shard_frame_crc(fd, path, shard, &shard->frame_crc));
    ckpt_crash_point("shard-written", rank);
    if (fsync(fd) != 0) {
        rc = err_errno("%s: fsync", path);
        goto out;
    }
    int closing = fd;
    fd = -1;
    if (close(closing) != 0)
        rc = err_errno("%s: close", path);
out:
    if (fd >= 0)
        close(fd);
    return rc;
}

static enum err shard_allocate(struct ckpt_shard *shard, int item_count)
{
    shard->pieces = calloc((size_t)item_count + 1, sizeof *shard->pieces);
    if (shard->pieces == NULL)
        return err_set(ERR_MEMORY, "checkpoint: out of memory");
    return ERR_OK;
}

static enum err blocks_allocate(struct ckpt_shard *shard)
{
    for (int i = 0; i < shard->piece_count; i++)
        shard->block_count += ckpt_manifest_block_count(shard->pieces[i].bytes);
    shard->blocks = calloc((size_t)shard->block_count, sizeof *shard->blocks);
    if (shard->blocks == NULL)
        return err_set(ERR_MEMORY, "checkpoint: out of memory");
    return ERR_OK;
}

enum err ckpt_shard_write(const char *dir, const char *file,
                          const struct ckpt_hdf5_identity *identity,
                          const struct ckpt_item *items, int item_count,
                          struct ckpt_shard *shard)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX], part[FSIO_PATH_MAX];
    int rank = identity->rank;
    *shard = (struct ckpt_shard){ 0 };
    snprintf(shard->file, sizeof shard->file, "%s", file);
    TRY(fsio_path(path, "%s/%s", dir, file));
    TRY(fsio_path(part, "%s/%s.part", dir, file));
    TRY(shard_allocate(shard, item_count));
    TRY(ckpt_hdf5_create(part, identity, items, item_count, shard->pieces,
                         &shard->piece_count));
    ckpt_crash_point("shard-created", rank);
    TRY(blocks_allocate(shard));
    TRY(fill(part, rank, items, shard));
    ckpt_crash_point("shard-synced", rank);
    if (rename(part, path) != 0) {
        rc = err_errno("%s: rename", part);
        goto out;
    }
    TRY(fsio_fsync_dir(dir));
    ckpt_crash_point("shard-renamed", rank);
out:
    return rc;
}
