#include "checkpoint/ckpt_check.h"

/* Pass damage on as a line. */
static enum err report(enum err rc, ckpt_check_fn damaged, void *arg)
{
    return rc == ERR_CHECKPOINT ? damaged(arg, err_text()) : rc;
}

static enum err check_piece(struct ckpt_read *reader,
                            const struct ckpt_manifest *manifest, int shard,
                            const struct ckpt_piece *piece,
                            ckpt_check_fn damaged, void *arg)
{
    enum err rc = ERR_OK;
    int64_t size = (int64_t)dtype_bytes(manifest->tensors[piece->tensor].dtype);
    int64_t elements = piece->bytes / size;
    int64_t step = CKPT_BLOCK_BYTES / size;
    for (int64_t at = 0; at < elements; at += step) {
        int64_t end = elements - at < step ? elements : at + step;
        TRY(report(ckpt_read_piece(reader, shard, piece, at, end, NULL, NULL),
                   damaged, arg));
    }
out:
    return rc;
}

enum err ckpt_check_shard(struct ckpt_read *reader,
                          const struct ckpt_manifest *manifest, int shard,
                          ckpt_check_fn damaged, void *arg)
{
    enum err rc = ckpt_read_shard(reader, shard);
    /* Without a good frame and size no payload can be told from others. */
    if (rc != ERR_OK)
        return report(rc, damaged, arg);
    for (int p = 0; p < manifest->shards[shard].piece_count; p++)
        TRY(check_piece(reader, manifest, shard,
                        &manifest->shards[shard].pieces[p], damaged, arg));
out:
    return rc;
}
