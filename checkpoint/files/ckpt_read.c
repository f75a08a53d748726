/* Reads blocks of shards past the page cache and checks each against its CRC
 * before anybody sees it.
 *
 * A block is read whole even where a few of its elements are wanted, since its
 * sum is of all of it. What is read at a time is a span of blocks, and while one
 * is checked and given out the next is on its way, if the caller goes through
 * the file in its order: that is a guess, made where he asks for what follows
 * what he had last, and a wrong one costs one read. */
#include "checkpoint/files/ckpt_read.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "checkpoint/files/ckpt_io.h"
#include "checkpoint/files/ckpt_passage.h"
#include "checkpoint/files/ckpt_shard.h"
#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/base/new.h"

/* One read from disk. */
#define SPAN_BYTES ((int64_t)8 << 20)

/* A block of at most so many bytes that is out of the order of the file, such as
 * a norm's weights between two matrices, is read aside, so that what is read
 * ahead is not lost: together with such blocks behind it, since HDF5 lays small
 * datasets side by side, and each read waits behind those of large blocks. */
#define ASIDE_BYTES 65536
#define ASIDE_SPAN_BYTES ((int64_t)1 << 20)

/* A CRC block of the open shard. */
struct block {
    int extent;         /* number in the shard */
    int64_t index;      /* in the extent */
    int64_t begin, end; /* in the file; begin -1: no block */
};

/* Consecutive blocks that are read together, with what lies between them. */
struct span {
    int64_t begin, end; /* in the file; end 0: empty */
    struct block next;  /* the block behind it */
    char *data;         /* SPAN_BYTES and what alignment adds */
};

struct ckpt_read {
    char dir[FSIO_PATH_MAX];
    char path[FSIO_PATH_MAX]; /* of the open shard */
    const struct ckpt_manifest *manifest;
    bool *checked; /* per shard: size and frame are good */
    int shard;     /* the open one; -1: none */
    struct ckpt_io *io;
    uint32_t *sums;    /* of its blocks */
    int fd;            /* of the same file, through the page cache; -1 */
    struct span aside; /* small blocks; empty: none */
    struct span now;   /* holds data */
    struct span ahead; /* is being read; empty: nothing is */
    int64_t expected;  /* where a sequential reader goes on in the file */
    int64_t verified;  /* begin of the block whose CRC was checked last */
};

enum err ckpt_read_create(const char *checkpoint_dir,
                          const struct ckpt_manifest *manifest,
                          struct ckpt_read **out)
{
    enum err rc = ERR_OK;
    struct ckpt_read *reader = NULL;
    *out = NULL;
    TRY(new_zeroed(&reader, 1));
    reader->manifest = manifest;
    reader->shard = -1;
    reader->fd = -1;
    TRY_OUT(new_room(&reader->aside.data, (size_t)ASIDE_SPAN_BYTES));
    TRY_OUT(new_zeroed(&reader->checked, (size_t)manifest->shard_count + 1));
    TRY_OUT(ckpt_io_buffer(&reader->now.data, SPAN_BYTES + 2 * CKPT_IO_ALIGN));
    TRY_OUT(
        ckpt_io_buffer(&reader->ahead.data, SPAN_BYTES + 2 * CKPT_IO_ALIGN));
    TRY_OUT(fsio_path(reader->dir, "%s", checkpoint_dir));
out:
    return new_or_none(rc, reader, out, ckpt_read_destroy);
}

static void close_shard(struct ckpt_read *reader)
{
    ckpt_io_close(reader->io);
    reader->io = NULL;
    free(reader->sums);
    reader->sums = NULL;
    fsio_close(reader->fd);
    reader->fd = -1;
    reader->shard = -1;
}

void ckpt_read_destroy(struct ckpt_read *reader)
{
    if (reader == NULL)
        return;
    close_shard(reader);
    free(reader->aside.data);
    free(reader->checked);
    free(reader->ahead.data);
    free(reader->now.data);
    free(reader);
}

/* A file that ends too early is damage, not a mistake in somebody's data. */
static enum err as_damage(enum err rc)
{
    return rc == ERR_DATA ? ERR_CHECKPOINT : rc;
}

/* The frame is many short stretches, which go through the page cache. */
static enum err check_frame(struct ckpt_read *reader, int number)
{
    const struct ckpt_shard *shard = &reader->manifest->shards[number];
    struct stat status;
    uint32_t crc;
    if (fstat(reader->fd, &status) != 0)
        return err_errno("%s: stat", reader->path);
    if (status.st_size != shard->bytes)
        return err_set(ERR_CHECKPOINT, "%s: has %lld bytes, must have %" PRId64,
                       reader->path, (long long)status.st_size, shard->bytes);
    /* the payload between them is read by others */
    (void)posix_fadvise(reader->fd, 0, 0, POSIX_FADV_RANDOM);
    TRY(as_damage(
        ckpt_passage_frame_crc(reader->fd, reader->path, shard, &crc)));
    (void)posix_fadvise(reader->fd, 0, 0, POSIX_FADV_NORMAL);
    if (crc != shard->frame_crc)
        return err_set(ERR_CHECKPOINT,
                       "%s: damaged outside its payload (CRC32C %08" PRIx32
                       ", must be %08" PRIx32 ")",
                       reader->path, crc, shard->frame_crc);
    reader->checked[number] = true;
    return ERR_OK;
}

/* Opens the shard, if it is not, and checks size and frame, once. */
static enum err use_shard(struct ckpt_read *reader, int shard)
{
    assert(shard >= 0 && shard < reader->manifest->shard_count);
    const struct ckpt_shard *wanted = &reader->manifest->shards[shard];
    if (reader->shard == shard)
        return ERR_OK;
    close_shard(reader);
    reader->now.end = reader->ahead.end = reader->aside.end = 0;
    reader->expected = reader->verified = -1;
    TRY(fsio_path(reader->path, "%s/%s", reader->dir, wanted->file));
    TRY(ckpt_io_open(reader->path, false, wanted->bytes >= CKPT_IO_DIRECT_BYTES,
                     &reader->io));
    reader->fd = open(reader->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (reader->fd < 0)
        return err_errno("%s: open", reader->path);
    if (!reader->checked[shard])
        TRY(check_frame(reader, shard));
    const struct ckpt_passage file = { .path = reader->path, .fd = reader->fd };
    TRY(as_damage(ckpt_passage_sums(&file, wanted, &reader->sums)));
    reader->shard = shard;
    return ERR_OK;
}

/* --- which bytes to read --- */

static struct block block_at(const struct ckpt_shard *shard, int extent,
                             int64_t index)
{
    assert(extent >= 0 && extent < shard->extent_count && index >= 0);
    const struct ckpt_extent *p = &shard->extents[extent];
    struct block block = { .extent = extent, .index = index };
    block.begin = p->offset + index * CKPT_BLOCK_BYTES;
    block.end = block.begin + CKPT_BLOCK_BYTES;
    if (block.end > p->offset + p->bytes)
        block.end = p->offset + p->bytes;
    return block;
}

/* begin is -1 behind the last one. */
static struct block block_after(const struct ckpt_shard *shard,
                                const struct block *block)
{
    const struct ckpt_extent *p = &shard->extents[block->extent];
    if (block->end < p->offset + p->bytes)
        return block_at(shard, block->extent, block->index + 1);
    if (block->extent + 1 < shard->extent_count)
        return block_at(shard, block->extent + 1, 0);
    return (struct block){ .begin = -1 };
}

static int64_t align_down(int64_t offset)
{
    return offset / CKPT_IO_ALIGN * CKPT_IO_ALIGN;
}

static int64_t align_up(int64_t offset)
{
    return align_down(offset + CKPT_IO_ALIGN - 1);
}

/* Plans a read from `first` on, of as many blocks as fit and begin before
 * `limit`. */
static void plan_span(const struct ckpt_shard *shard, struct block first,
                      int64_t limit, struct span *span)
{
    assert(first.begin >= 0);
    span->begin = align_down(first.begin);
    do {
        span->end = align_up(first.end);
        first = block_after(shard, &first);
    } while (first.begin >= 0 && first.begin < limit &&
             align_up(first.end) - span->begin <= SPAN_BYTES);
    span->next = first;
}

/* --- reading --- */

static bool holds(const struct span *span, const struct block *block)
{
    return span->begin <= block->begin && block->end <= span->end;
}

static enum err start(struct ckpt_read *reader, struct span *span)
{
    return ckpt_io_start(reader->io, span->data,
                         (size_t)(span->end - span->begin), span->begin);
}

/* Waits for the read under way, which is that of `span`. */
static enum err finish(struct ckpt_read *reader, const struct span *span)
{
    size_t got;
    TRY(as_damage(ckpt_io_wait(reader->io, &got)));
    int64_t end = reader->manifest->shards[reader->shard].bytes;
    if (end > span->end)
        end = span->end;
    if ((int64_t)got < end - span->begin)
        return err_set(ERR_CHECKPOINT, "%s: truncated: ends at %" PRId64,
                       reader->path, span->begin + (int64_t)got);
    return ERR_OK;
}

/* Make `now` hold the block. Who asks for what follows what he had last gets
 * all that comes next read ahead; else no more than up to `limit`. */
static enum err fetch(struct ckpt_read *reader, const struct block *block,
                      int64_t limit)
{
    assert(reader->shard >= 0 && reader->io != NULL); /* open before */
    const struct ckpt_shard *shard = &reader->manifest->shards[reader->shard];
    struct span pending = reader->ahead;
    if (holds(&reader->now, block))
        return ERR_OK;
    if (block->begin == reader->expected)
        limit = INT64_MAX;
    reader->ahead.end = 0;
    reader->verified = -1;
    if (pending.end > 0 && holds(&pending, block)) {
        reader->ahead.data = reader->now.data;
        reader->now = pending;
        reader->now.end = 0; /* until it is there */
        TRY(finish(reader, &pending));
        reader->now.end = pending.end;
    } else {
        (void)ckpt_io_wait(reader->io, NULL);
        plan_span(shard, *block, limit, &pending);
        pending.data = reader->now.data;
        reader->now.end = 0;
        TRY(start(reader, &pending));
        TRY(finish(reader, &pending));
        reader->now = pending;
    }
    if (reader->now.next.begin >= 0 && reader->now.next.begin < limit) {
        plan_span(shard, reader->now.next, limit, &reader->ahead);
        TRY(start(reader, &reader->ahead));
    }
    return ERR_OK;
}

static bool is_small(const struct block *block)
{
    return block->end - block->begin <= ASIDE_BYTES;
}

static bool is_aside(const struct ckpt_read *reader, const struct block *block)
{
    return is_small(block) && block->begin != reader->expected &&
           !holds(&reader->now, block) && !holds(&reader->ahead, block);
}

/* Makes `aside` hold the small block and as many behind it as fit. */
static enum err fetch_aside(struct ckpt_read *reader, const struct block *block)
{
    const struct ckpt_shard *shard = &reader->manifest->shards[reader->shard];
    struct span *aside = &reader->aside;
    if (holds(aside, block))
        return ERR_OK;
    int64_t end = block->end;
    struct block next = block_after(shard, block);
    while (next.begin >= end && is_small(&next) &&
           next.end - block->begin <= ASIDE_SPAN_BYTES) {
        end = next.end;
        next = block_after(shard, &next);
    }
    aside->begin = block->begin;
    aside->end = 0;
    TRY(as_damage(fsio_pread(reader->fd, aside->data,
                             (size_t)(end - block->begin), block->begin,
                             reader->path)));
    aside->end = end;
    return ERR_OK;
}

/* *data points at the block, read and checked. */
static enum err read_block(struct ckpt_read *reader, const struct block *block,
                           int64_t limit, const char **data)
{
    const struct ckpt_shard *shard = &reader->manifest->shards[reader->shard];
    const struct ckpt_extent *extent = &shard->extents[block->extent];
    size_t bytes = (size_t)(block->end - block->begin);
    bool aside = is_aside(reader, block);
    if (aside) {
        TRY(fetch_aside(reader, block));
        *data = reader->aside.data + (block->begin - reader->aside.begin);
    } else {
        TRY(fetch(reader, block, limit));
        *data = reader->now.data + (block->begin - reader->now.begin);
        reader->expected = block_after(shard, block).begin;
        if (reader->verified == block->begin)
            return ERR_OK;
    }
    uint32_t want = reader->sums[extent->block + block->index];
    uint32_t crc = crc32c(0, *data, bytes);
    if (crc != want)
        return err_set(
            ERR_CHECKPOINT,
            "%s: tensor %s damaged in bytes [%" PRId64 ", %" PRId64
            ") of the file (CRC32C %08" PRIx32 ", must be %08" PRIx32 ")",
            reader->path, reader->manifest->tensors[extent->tensor].name,
            block->begin, block->end, crc, want);
    if (!aside)
        reader->verified = block->begin;
    return ERR_OK;
}

enum err ckpt_read_extent(struct ckpt_read *reader, int shard,
                          const struct ckpt_extent *extent, int64_t begin,
                          int64_t end, ckpt_read_sink sink, void *arg)
{
    const struct ckpt_shard *opened = &reader->manifest->shards[shard];
    enum dtype dtype = reader->manifest->tensors[extent->tensor].dtype;
    int64_t size = (int64_t)dtype_bytes(dtype);
    int64_t from = begin * size;
    int64_t to = end * size;
    assert(0 <= from && from <= to && to <= extent->bytes);
    TRY(use_shard(reader, shard));
    if (from == to)
        return ERR_OK;
    struct block block = block_at(opened, (int)(extent - opened->extents),
                                  from / CKPT_BLOCK_BYTES);
    for (int64_t at = from; at < to; block = block_after(opened, &block)) {
        const char *data;
        TRY(read_block(reader, &block, extent->offset + to, &data));
        int64_t skipped = extent->offset + at - block.begin;
        int64_t stop = block.end - extent->offset;
        if (stop > to)
            stop = to;
        if (sink != NULL)
            TRY(sink(arg, data + skipped, (size_t)(stop - at)));
        at = stop;
    }
    return ERR_OK;
}

/* Passes damage on as a line of text, if somebody wants it; other errors stay
 * errors. */
static enum err tell(enum err rc, ckpt_read_damage damage, void *arg)
{
    return rc == ERR_CHECKPOINT && damage != NULL ? damage(arg, err_text())
                                                  : rc;
}

enum err ckpt_read_all(struct ckpt_read *reader, int shard,
                       ckpt_read_damage damage, void *arg)
{
    const struct ckpt_manifest *manifest = reader->manifest;
    const struct ckpt_shard *all = &manifest->shards[shard];
    enum err rc = use_shard(reader, shard);
    /* Without a good frame and size no payload can be told from others. */
    if (rc != ERR_OK)
        return tell(rc, damage, arg);
    for (int p = 0; p < all->extent_count; p++) {
        const struct ckpt_extent *extent = &all->extents[p];
        enum dtype dtype = manifest->tensors[extent->tensor].dtype;
        int64_t size = (int64_t)dtype_bytes(dtype);
        int64_t elements = extent->bytes / size, end;
        for (int64_t at = 0; at < elements; at = end) {
            int64_t step = CKPT_BLOCK_BYTES / size;
            end = elements - at < step ? elements : at + step;
            rc = ckpt_read_extent(reader, shard, extent, at, end, NULL, NULL);
            TRY(tell(rc, damage, arg));
        }
    }
    return ERR_OK;
}
