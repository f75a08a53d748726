/* Reads a shard's file in its order, without knowing what its extents are for. */
#include "checkpoint/files/ckpt_passage.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/base/new.h"

static enum err get(const struct ckpt_passage *p, void *data, size_t bytes,
                    int64_t begin)
{
    enum err rc = fsio_pread(p->fd, data, bytes, begin, p->path);
    return rc != ERR_OK && p->lost ? err_set(ERR_CHECKPOINT, "%s", err_text())
                                   : rc;
}

enum err ckpt_passage_step(const struct ckpt_passage *p, int64_t begin,
                           int64_t end, uint32_t *crc)
{
    assert(begin >= 0);
    while (begin < end) {
        int64_t bytes =
            end - begin < CKPT_PASSAGE_BYTES ? end - begin : CKPT_PASSAGE_BYTES;
        TRY(get(p, p->buffer, (size_t)bytes, begin));
        *crc = crc32c(*crc, p->buffer, (size_t)bytes);
        if (p->stream != NULL)
            TRY(ckpt_stream_put(p->stream, p->buffer, bytes));
        begin += bytes;
    }
    return ERR_OK;
}

enum err ckpt_passage_all(const struct ckpt_passage *p,
                          const struct ckpt_shard *shard, ckpt_passage_fn each,
                          void *arg, uint32_t *frame_crc)
{
    int64_t done = 0;
    *frame_crc = 0;
    for (int i = 0; i < shard->extent_count; i++) {
        const struct ckpt_extent *extent = &shard->extents[i];
        if (extent->offset < done)
            return err_set(ERR_INTERNAL, "%s: datasets are not in order",
                           p->path);
        TRY(ckpt_passage_step(p, done, extent->offset, frame_crc));
        if (each != NULL)
            TRY(each(arg, extent));
        done = extent->offset + extent->bytes;
    }
    return ckpt_passage_step(p, done, shard->bytes, frame_crc);
}

enum err ckpt_passage_sums(const struct ckpt_passage *p,
                           const struct ckpt_shard *shard, uint32_t **sums)
{
    size_t bytes = (size_t)shard->block_count * sizeof **sums;
    TRY(new_room(sums, (size_t)shard->block_count + 1));
    if (shard->crc_offset > 0)
        return get(p, *sums, bytes, shard->crc_offset);
    memcpy(*sums, shard->blocks, bytes);
    return ERR_OK;
}

enum err ckpt_passage_frame_crc(int fd, const char *path,
                                const struct ckpt_shard *shard, uint32_t *crc)
{
    struct ckpt_passage passage = { .path = path, .fd = fd };
    TRY(new_room(&passage.buffer, (size_t)CKPT_PASSAGE_BYTES));
    enum err rc = ckpt_passage_all(&passage, shard, NULL, NULL, crc);
    free(passage.buffer);
    return rc;
}
