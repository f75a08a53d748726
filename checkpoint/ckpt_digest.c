#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/ckpt_read.h"
#include "src/base/digest.h"

/* A piece and the shard that holds it. */
struct placed {
    const struct ckpt_piece *piece;
    int shard;
    const char *tensor; /* name */
};

/* By tensor name, then by begin. */
static int placed_order(const void *a, const void *b)
{
    const struct placed *x = a;
    const struct placed *y = b;
    int names = strcmp(x->tensor, y->tensor);
    if (names != 0)
        return names;
    return (x->piece->part.begin > y->piece->part.begin) -
           (x->piece->part.begin < y->piece->part.begin);
}

static int name_order(const void *a, const void *b)
{
    const struct ckpt_tensor *x = *(const struct ckpt_tensor *const *)a;
    const struct ckpt_tensor *y = *(const struct ckpt_tensor *const *)b;
    return strcmp(x->name, y->name);
}

static enum err digest_sink(void *arg, const void *data, size_t bytes)
{
    return digest_update(arg, data, bytes);
}

static enum err digest_i64(struct digest *digest, int64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)value >> (8 * i));
    return digest_update(digest, bytes, sizeof bytes);
}

static enum err digest_head(struct digest *digest,
                            const struct ckpt_tensor *tensor)
{
    enum err rc = ERR_OK;
    const char *dtype = dtype_name(tensor->dtype);
    TRY(digest_update(digest, tensor->name, strlen(tensor->name) + 1));
    TRY(digest_update(digest, dtype, strlen(dtype) + 1));
    TRY(digest_i64(digest, tensor->dims));
    for (int i = 0; i < tensor->dims; i++)
        TRY(digest_i64(digest, tensor->shape[i]));
out:
    return rc;
}

static enum err digest_tensors(struct digest *digest, struct ckpt_read *reader,
                               const struct ckpt_manifest *manifest,
                               const struct ckpt_tensor **tensors,
                               struct placed *pieces)
{
    enum err rc = ERR_OK;
    size_t count = 0;
    for (int t = 0; t < manifest->tensor_count; t++)
        tensors[t] = &manifest->tensors[t];
    for (int s = 0; s < manifest->shard_count; s++)
        for (int p = 0; p < manifest->shards[s].piece_count; p++) {
            const struct ckpt_piece *piece = &manifest->shards[s].pieces[p];
            pieces[count++] =
                (struct placed){ piece, s,
                                 manifest->tensors[piece->tensor].name };
        }
    qsort(tensors, (size_t)manifest->tensor_count, sizeof *tensors, name_order);
    qsort(pieces, count, sizeof *pieces, placed_order);
    size_t next = 0;
    for (int t = 0; t < manifest->tensor_count; t++) {
        TRY(digest_head(digest, tensors[t]));
        for (; next < count; next++) {
            const struct ckpt_piece *piece = pieces[next].piece;
            if (&manifest->tensors[piece->tensor] != tensors[t])
                break;
            TRY(ckpt_read_piece(reader, pieces[next].shard, piece,
                                piece->part.begin, piece->part.end, digest_sink,
                                digest));
        }
    }
    TRY(digest_i64(digest, manifest->step));
out:
    return rc;
}

enum err ckpt_digest(const char *checkpoint_dir, char hex[65])
{
    enum err rc = ERR_OK;
    struct ckpt_manifest *manifest = NULL;
    struct ckpt_read *reader = NULL;
    struct digest *digest = NULL;
    const struct ckpt_tensor **tensors = NULL;
    struct placed *pieces = NULL;
    TRY(ckpt_manifest_read(checkpoint_dir, NULL, NULL, &manifest));
    size_t count = 1;
    for (int s = 0; s < manifest->shard_count; s++)
        count += (size_t)manifest->shards[s].piece_count;
    pieces = malloc(count * sizeof *pieces);
    tensors = malloc(((size_t)manifest->tensor_count + 1) * sizeof *tensors);
    if (pieces == NULL || tensors == NULL) {
        rc = err_set(ERR_MEMORY, "%s: out of memory", checkpoint_dir);
        goto out;
    }
    TRY(ckpt_read_create(checkpoint_dir, manifest, &reader));
    TRY(digest_create(&digest));
    TRY(digest_tensors(digest, reader, manifest, tensors, pieces));
    TRY(digest_finish(digest, hex));
out:
    digest_destroy(digest);
    ckpt_read_destroy(reader);
    free(tensors);
    free(pieces);
    ckpt_manifest_destroy(manifest);
    return rc;
}
