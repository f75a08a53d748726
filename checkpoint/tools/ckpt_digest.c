/* One SHA-256 over the step and all tensors, names, forms and values, which
 * does not depend on how they are sharded.
 *
 * Sums of files would: they change with the number of ranks, and with the
 * attempt that the frame names. Two runs that must come to the same bits are
 * compared by this. Names come first and end with a NUL, shapes are as long as
 * the number before them says: so no two checkpoints can give the same bytes by
 * being cut at other places. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "checkpoint/tools/ckpt_tensor.h"
#include "src/base/digest.h"
#include "src/base/new.h"

static enum err digest_i64(struct digest *digest, int64_t value)
{
    /* the machine is little-endian */
    return digest_update(digest, &value, sizeof value);
}

static enum err digest_head(struct digest *digest,
                            const struct ckpt_tensor *tensor)
{
    const char *dtype = dtype_name(tensor->dtype);
    TRY(digest_update(digest, tensor->name, strlen(tensor->name) + 1));
    TRY(digest_update(digest, dtype, strlen(dtype) + 1));
    TRY(digest_i64(digest, tensor->dims));
    for (int i = 0; i < tensor->dims; i++)
        TRY(digest_i64(digest, tensor->shape[i]));
    return ERR_OK;
}

static enum err digest_values(struct digest *digest,
                              struct ckpt_tensor_reader *reader,
                              const struct ckpt_tensor *tensor, int number,
                              void *window)
{
    for (int64_t at = 0, count; at < tensor->elements; at += count) {
        count = ckpt_tensor_window(tensor, at);
        TRY(ckpt_tensor_read(reader, number, at, at + count, window));
        TRY(digest_update(digest, window,
                          (size_t)count * dtype_bytes(tensor->dtype)));
    }
    return ERR_OK;
}

static enum err digest_all(struct digest *digest,
                           struct ckpt_tensor_reader *reader,
                           const struct ckpt_manifest *manifest)
{
    enum err rc = ERR_OK;
    char *window = NULL;
    struct ckpt_named *sorted = NULL;
    TRY_OUT(ckpt_named_tensors(manifest, &sorted));
    TRY_OUT(new_room(&window, (size_t)CKPT_TENSOR_WINDOW_BYTES));
    for (int i = 0; i < manifest->tensor_count; i++) {
        int t = sorted[i].index;
        TRY_OUT(digest_head(digest, &manifest->tensors[t]));
        TRY_OUT(
            digest_values(digest, reader, &manifest->tensors[t], t, window));
    }
    TRY_OUT(digest_i64(digest, manifest->step));
out:
    free(window);
    free(sorted);
    return rc;
}

enum err ckpt_digest(const char *checkpoint_dir, char hex[65])
{
    enum err rc = ERR_OK;
    struct ckpt_manifest *manifest = NULL;
    struct ckpt_tensor_reader *reader = NULL;
    struct digest *digest = NULL;
    TRY_OUT(ckpt_manifest_read(checkpoint_dir, NULL, NULL, &manifest));
    TRY_OUT(ckpt_tensor_create(checkpoint_dir, manifest, &reader));
    TRY_OUT(digest_create(&digest));
    TRY_OUT(digest_all(digest, reader, manifest));
    TRY_OUT(digest_finish(digest, hex));
out:
    digest_destroy(digest);
    ckpt_tensor_destroy(reader);
    ckpt_manifest_destroy(manifest);
    return rc;
}
