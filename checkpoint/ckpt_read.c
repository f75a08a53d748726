#include "checkpoint/ckpt_read.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/ckpt_shard.h"
#include "src/base/crc32c.h"
#include "src/base/fsio.h"

struct ckpt_read {
    char dir[FSIO_PATH_MAX];
    char path[FSIO_PATH_MAX]; /* of the open shard */
    const struct ckpt_manifest *manifest;
    bool *checked; /* per shard: size and frame are good */
    int shard;     /* the open one; -1: none */
    int fd;
    char *block; /* CKPT_BLOCK_BYTES */
};

enum err ckpt_read_create(const char *checkpoint_dir,
                          const struct ckpt_manifest *manifest,
                          struct ckpt_read **out)
{
    enum err rc = ERR_OK;
    struct ckpt_read *reader = calloc(1, sizeof *reader);
    *out = NULL;
    if (reader == NULL)
        goto no_memory;
    reader->manifest = manifest;
    reader->shard = -1;
    reader->fd = -1;
    reader->checked =
        calloc((size_t)manifest->shard_count + 1, sizeof *reader->checked);
    reader->block = malloc(CKPT_BLOCK_BYTES);
    if (reader->checked == NULL || reader->block == NULL)
        goto no_memory;
    TRY(fsio_path(reader->dir, "%s", checkpoint_dir));
    *out = reader;
    return ERR_OK;
no_memory:
    rc = err_set(ERR_MEMORY, "%s: out of memory for reading", checkpoint_dir);
out:
    ckpt_read_destroy(reader);
    return rc;
}

void ckpt_read_destroy(struct ckpt_read *reader)
{
    if (reader == NULL)
        return;
    if (reader->fd >= 0)
        close(reader->fd);
    free(reader->checked);
    free(reader->block);
    free(reader);
}

/* A file that ends too early is damage, not a mistake in somebody's data. */
static enum err as_damage(enum err rc)
{
    return rc == ERR_DATA ? ERR_CHECKPOINT : rc;
}

static enum err check_frame(struct ckpt_read *reader, int number)
{
    enum err rc = ERR_OK;
    const struct ckpt_shard *shard = &reader->manifest->shards[number];
    struct stat status;
    uint32_t crc;
    if (fstat(reader->fd, &status) != 0)
        return err_errno("%s: stat", reader->path);
    if (status.st_size != shard->bytes)
        return err_set(ERR_CHECKPOINT, "%s: has %lld bytes, must have %" PRId64,
                       reader->path, (long long)status.st_size, shard->bytes);
    rc = as_damage(ckpt_shard_frame_crc(reader->fd, reader->path, shard, &crc));
    if (rc == ERR_OK && crc != shard->frame_crc)
        rc = err_set(ERR_CHECKPOINT,
                     "%s: damaged outside its payload (CRC32C %08" PRIx32
                     ", must be %08" PRIx32 ")",
                     reader->path, crc, shard->frame_crc);
    if (rc == ERR_OK)
        reader->checked[number] = true;
    return rc;
}

enum err ckpt_read_shard(struct ckpt_read *reader, int shard)
{
    assert(shard >= 0 && shard < reader->manifest->shard_count);
    enum err rc = ERR_OK;
    if (reader->shard == shard)
        return ERR_OK;
    if (reader->fd >= 0)
        close(reader->fd);
    reader->fd = -1;
    reader->shard = -1;
    TRY(fsio_path(reader->path, "%s/%s", reader->dir,
                  reader->manifest->shards[shard].file));
    reader->fd = open(reader->path, O_RDONLY | O_CLOEXEC);
    if (reader->fd < 0) {
        rc = errno == ENOENT
                 ? err_set(ERR_CHECKPOINT, "%s: shard is missing", reader->path)
                 : err_errno("%s: open", reader->path);
        goto out;
    }
    if (!reader->checked[shard])
        TRY(check_frame(reader, shard));
    reader->shard = shard;
out:
    return rc;
}

/* Read block number `index` of the piece into the buffer and check it. */
static enum err read_block(struct ckpt_read *reader,
                           const struct ckpt_piece *piece, int64_t index,
                           int64_t *bytes)
{
    enum err rc = ERR_OK;
    const struct ckpt_shard *shard = &reader->manifest->shards[reader->shard];
    int64_t at = index * CKPT_BLOCK_BYTES;
    *bytes = piece->bytes - at;
    if (*bytes > CKPT_BLOCK_BYTES)
        *bytes = CKPT_BLOCK_BYTES;
    TRY(as_damage(fsio_pread(reader->fd, reader->block, (size_t)*bytes,
                             piece->offset + at, reader->path)));
    uint32_t crc = crc32c(0, reader->block, (size_t)*bytes);
    if (crc != shard->blocks[piece->block + index])
        rc = err_set(
            ERR_CHECKPOINT,
            "%s: tensor %s damaged in bytes [%" PRId64 ", %" PRId64
            ") of the file (CRC32C %08" PRIx32 ", must be %08" PRIx32 ")",
            reader->path, reader->manifest->tensors[piece->tensor].name,
            piece->offset + at, piece->offset + at + *bytes, crc,
            shard->blocks[piece->block + index]);
out:
    return rc;
}

enum err ckpt_read_piece(struct ckpt_read *reader, int shard,
                         const struct ckpt_piece *piece, int64_t begin,
                         int64_t end, ckpt_read_sink sink, void *arg)
{
    enum err rc = ERR_OK;
    enum dtype dtype = reader->manifest->tensors[piece->tensor].dtype;
    int64_t size = (int64_t)dtype_bytes(dtype);
    int64_t from = begin * size;
    int64_t to = end * size;
    assert(0 <= from && from <= to && to <= piece->bytes);
    TRY(ckpt_read_shard(reader, shard));
    for (int64_t index = from / CKPT_BLOCK_BYTES; index * CKPT_BLOCK_BYTES < to;
         index++) {
        int64_t base = index * CKPT_BLOCK_BYTES;
        int64_t bytes;
        TRY(read_block(reader, piece, index, &bytes));
        int64_t first = from > base ? from - base : 0;
        int64_t last = to - base < bytes ? to - base : bytes;
        if (sink != NULL)
            TRY(sink(arg, reader->block + first, (size_t)(last - first)));
    }
out:
    return rc;
}

enum err ckpt_read_all(struct ckpt_read *reader, int shard)
{
    enum err rc = ERR_OK;
    const struct ckpt_manifest *manifest = reader->manifest;
    const struct ckpt_shard *all = &manifest->shards[shard];
    TRY(ckpt_read_shard(reader, shard));
    for (int p = 0; p < all->piece_count; p++) {
        const struct ckpt_piece *piece = &all->pieces[p];
        enum dtype dtype = manifest->tensors[piece->tensor].dtype;
        TRY(ckpt_read_piece(reader, shard, piece, 0,
                            piece->bytes / (int64_t)dtype_bytes(dtype), NULL,
                            NULL));
    }
out:
    return rc;
}
