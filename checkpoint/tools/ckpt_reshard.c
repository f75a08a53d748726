/* Writes a copy of a checkpoint with another number of shards, for tessera-ckpt
 * reshard. A load needs no such copy: it reads any number of shards
 * (ckpt_load.c).
 *
 * All tensors are laid end to end, in bytes, and that line is cut into equal
 * extents, one a rank, each border moved on to the next whole element. So shards
 * are equally large whatever the sizes of the tensors, each tensor is in one
 * shard or in neighbours, and a part is an interval of its tensor. */
#include "checkpoint/tools/ckpt_tools.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/files/ckpt_shard.h"
#include "checkpoint/files/ckpt_view.h"
#include "checkpoint/tools/ckpt_tensor.h"
#include "src/base/fsio.h"
#include "src/base/new.h"

struct reshard {
    const char *from;
    const struct ckpt_manifest *manifest;
    struct ckpt_tensor_reader *reader;
    int ranks, writers;
    char tmp[FSIO_PATH_MAX];
    struct ckpt_item *items; /* one per tensor */
    struct ckpt_shard *shards;
};

/* Where the share of `rank` begins in the payload. */
static int64_t share_begin(const struct reshard *reshard, int rank)
{
    assert(rank >= 0 && rank <= reshard->ranks);
    int64_t bytes = reshard->manifest->bytes;
    int64_t ranks = reshard->ranks;
    return bytes / ranks * rank + bytes % ranks * rank / ranks;
}

/* The first element of a tensor that lies at or behind a place of the payload;
 * the tensor begins at `start`. */
static int64_t element_at(const struct ckpt_tensor *tensor, int64_t start,
                          int64_t place)
{
    assert(start >= 0 && place >= 0);
    int64_t size = (int64_t)dtype_bytes(tensor->dtype);
    if (place <= start)
        return 0;
    int64_t element = (place - start + size - 1) / size;
    return element < tensor->elements ? element : tensor->elements;
}

/* Set every item's part to what `rank` writes; the bytes of all. */
static int64_t set_parts(struct reshard *reshard, int rank)
{
    int64_t begin = share_begin(reshard, rank);
    int64_t end = share_begin(reshard, rank + 1);
    int64_t start = 0;
    int64_t bytes = 0;
    for (int t = 0; t < reshard->manifest->tensor_count; t++) {
        const struct ckpt_tensor *tensor = &reshard->manifest->tensors[t];
        struct ckpt_part *part = &reshard->items[t].part;
        int64_t size = (int64_t)dtype_bytes(tensor->dtype);
        part->begin = element_at(tensor, start, begin);
        part->end = element_at(tensor, start, end);
        bytes += (part->end - part->begin) * size;
        start += tensor->elements * size;
    }
    return bytes;
}

/* A ckpt_shard_feed. */
static enum err feed_tensor(void *arg, int item, int64_t at, int64_t bytes,
                            void *out)
{
    const struct reshard *reshard = arg;
    const struct ckpt_item *to = &reshard->items[item];
    int64_t size = (int64_t)dtype_bytes(to->dtype);
    int64_t begin = to->part.begin + at / size;
    return ckpt_tensor_read(reshard->reader, item, begin, begin + bytes / size,
                            out);
}

static enum err write_shard(struct reshard *reshard, int rank, int writer)
{
    struct ckpt_hdf5_identity identity = { .step = reshard->manifest->step,
                                           .rank = rank,
                                           .ranks = reshard->ranks,
                                           .attempt = "reshard" };
    assert(writer >= 0 && writer < reshard->writers);
    char file[CKPT_FILE_BYTES];
    snprintf(file, sizeof file, "shard-%05d-of-%05d.h5", writer,
             reshard->writers);
    return ckpt_shard_write(reshard->tmp, file, &identity, reshard->items,
                            reshard->manifest->tensor_count, feed_tensor,
                            reshard, &reshard->shards[writer]);
}

/* Ranks with nothing to write have no shard. */
static enum err copy(struct reshard *reshard)
{
    int writer = 0;
    const struct ckpt_manifest *manifest = reshard->manifest;
    TRY(ckpt_manifest_items(manifest, &reshard->items));
    for (int rank = 0; rank < reshard->ranks; rank++)
        reshard->writers += set_parts(reshard, rank) > 0;
    TRY(new_zeroed(&reshard->shards, (size_t)reshard->writers + 1));
    TRY(ckpt_tensor_create(reshard->from, manifest, &reshard->reader));
    TRY(ckpt_shard_folder(reshard->tmp, "copy", manifest->bytes, 1));
    for (int rank = 0; rank < reshard->ranks; rank++)
        if (set_parts(reshard, rank) > 0)
            TRY(write_shard(reshard, rank, writer++));
    struct ckpt_manifest_head head = { .step = manifest->step,
                                       .ranks = reshard->ranks,
                                       .attempt = "reshard",
                                       .state = manifest->state,
                                       .items = reshard->items,
                                       .item_count = manifest->tensor_count };
    return ckpt_view_seal(reshard->tmp, &head, reshard->shards,
                          reshard->writers);
}

/* `out` without slashes at its end, and the folder that it will be in. */
static enum err check_out(const char *out, int64_t step,
                          char path[FSIO_PATH_MAX], char parent[FSIO_PATH_MAX])
{
    TRY(fsio_path(path, "%s", out));
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        path[--length] = '\0';
    int64_t named = ckpt_manifest_step_of(path);
    if (path[0] == '\0' || fsio_exists(path))
        return err_set(ERR_USAGE, "'%s' exists: name a new folder", path);
    if (named >= 0 && named != step)
        return err_set(ERR_USAGE,
                       "%s: holds step %" PRId64 " then: name it otherwise",
                       path, step);
    return fsio_parent(path, parent);
}

/* Remove what was written, keeping the first error's text. */
static void give_up(const struct reshard *reshard, enum err rc)
{
    struct err_kept kept;
    err_keep(&kept, rc);
    if (fsio_remove_tree(reshard->tmp) != ERR_OK)
        err_set(rc, "%s; remains: %s", kept.text, reshard->tmp);
    else
        err_again(&kept);
}

enum err ckpt_reshard(const char *checkpoint_dir, const char *out, int ranks,
                      int64_t *bytes)
{
    assert(ranks >= 1 && ranks <= CKPT_RESHARD_RANKS_MAX);
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX], parent[FSIO_PATH_MAX], prefix[FSIO_PATH_MAX];
    bool made = false;
    struct ckpt_manifest *manifest = NULL;
    struct reshard reshard = { .from = checkpoint_dir, .ranks = ranks };
    TRY_OUT(ckpt_manifest_read(checkpoint_dir, NULL, NULL, &manifest));
    reshard.manifest = manifest;
    TRY_OUT(check_out(out, manifest->step, path, parent));
    /* A name that neither loading nor listing takes for a checkpoint. */
    TRY_OUT(fsio_path(prefix, "%s/.tmp-reshard", parent));
    TRY_OUT(fsio_mkdir_new(prefix, reshard.tmp));
    made = true;
    TRY_OUT(copy(&reshard));
    if (rename(reshard.tmp, path) != 0)
        TRY_OUT(err_errno("%s: rename to %s", reshard.tmp, path));
    made = false;
    TRY_OUT(fsio_fsync_dir(parent));
    *bytes = manifest->bytes;
out:
    if (rc != ERR_OK && made)
        give_up(&reshard, rc);
    for (int i = 0; reshard.shards != NULL && i < reshard.writers; i++)
        ckpt_manifest_free_shard(&reshard.shards[i]);
    free(reshard.shards);
    free(reshard.items);
    ckpt_tensor_destroy(reshard.reader);
    ckpt_manifest_destroy(manifest);
    return rc;
}

enum err ckpt_write(const char *dir, int64_t step, const char *attempt,
                    const json_t *state, const struct ckpt_item *items,
                    int item_count, ckpt_shard_feed feed, void *feed_arg)
{
    enum err rc = ERR_OK;
    char file[CKPT_FILE_BYTES];
    struct ckpt_shard shard = { 0 };
    const struct ckpt_hdf5_identity identity = {
        .step = step, .rank = 0, .ranks = 1, .attempt = attempt
    };
    struct ckpt_manifest_head head = { .step = step,
                                       .ranks = 1,
                                       .attempt = attempt,
                                       .state = state,
                                       .items = items,
                                       .item_count = item_count };
    ckpt_shard_name(0, 1, CKPT_SHARD_FOLDER_FILES, file);
    TRY_OUT(ckpt_shard_write(dir, file, &identity, items, item_count, feed,
                             feed_arg, &shard));
    TRY_OUT(ckpt_view_seal(dir, &head, &shard, 1));
out:
    ckpt_manifest_free_shard(&shard);
    return rc;
}
