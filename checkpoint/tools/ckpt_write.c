/* Writes a checkpoint of tensors that come from elsewhere, say from another
 * program's files. */
#include "checkpoint/tools/ckpt_write.h"

#include <stdlib.h>

#include "checkpoint/files/ckpt_view.h"

enum err ckpt_write(const char *dir, int64_t step, const char *attempt,
                    const json_t *state, const struct ckpt_item *items,
                    int item_count, ckpt_shard_feed feed, void *feed_arg)
{
    enum err rc = ERR_OK;
    char *record = NULL;
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
    TRY_OUT(ckpt_shard_write_fed(dir, file, &identity, items, item_count, feed,
                                 feed_arg, &shard));
    TRY_OUT(ckpt_manifest_shard_text(&shard, &record));
    TRY_OUT(ckpt_view_seal(dir, &head, &record, 1));
out:
    free(record);
    ckpt_manifest_free_shard(&shard);
    return rc;
}
