/* What a save does in the nodes' own folders, which parity on other
 * nodes protects (ckpt_xor.h). The order, and what ranks agree on in between, is in
 * ckpt_saver_order.c. */
#include <stdlib.h>

#include "checkpoint/ckpt_saver_private.h"
#include "checkpoint/files/ckpt_crash.h"
#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/local/ckpt_local.h"
#include "checkpoint/local/ckpt_nodes.h"
#include "checkpoint/local/ckpt_xor.h"
#include "src/base/digest.h"
#include "src/base/log.h"
#include "src/base/new.h"

#define PAIR 2 /* nodes */

struct ckpt_saver_local {
    struct ckpt_xor *parity;
    bool leads;   /* this rank does what is done once a node */
    int64_t kept; /* what all nodes have had last; options.local_two */
    /* of one save */
    char *text; /* the manifest, the same everywhere */
    size_t bytes;
    struct ckpt_manifest *manifest;
};

enum err ckpt_saver_local_create(struct ckpt_saver *saver)
{
    const struct ckpt_save *save = &saver->save;
    struct ckpt_saver_local *local = NULL;
    TRY(new_zeroed(&local, 1));
    saver->local = local;
    int group = save->options.xor_group;
    TRY(ckpt_xor_create(saver->comm, group > 0 ? group : PAIR, save->local_dir,
                        &local->parity));
    local->leads = ckpt_nodes_leads(saver->comm);
    local->kept = save->options.local_kept;
    if (local->leads)
        TRY(ckpt_index_sweep(save->local_dir));
    return ERR_OK;
}

void ckpt_saver_local_forget(struct ckpt_saver *saver)
{
    struct ckpt_saver_local *local = saver->local;
    if (local == NULL)
        return;
    ckpt_manifest_destroy(local->manifest);
    free(local->text);
    local->manifest = NULL;
    local->text = NULL;
    local->bytes = 0;
}

void ckpt_saver_local_destroy(struct ckpt_saver *saver)
{
    struct ckpt_saver_local *local = saver->local;
    if (local == NULL)
        return;
    ckpt_saver_local_forget(saver);
    ckpt_xor_destroy(local->parity);
    free(local);
    saver->local = NULL;
}

static enum err remove_step(const struct ckpt_saver *saver, int64_t step)
{
    char path[FSIO_PATH_MAX];
    TRY(ckpt_index_path(path, saver->save.local_dir, step));
    return ckpt_index_discard(saver->save.local_dir, path);
}

static enum err remove_others(const struct ckpt_saver *saver, int64_t stays)
{
    enum err rc = ERR_OK;
    int64_t *steps = NULL;
    int count = 0;
    TRY_OUT(ckpt_index_steps(saver->save.local_dir, &steps, &count, NULL));
    for (int i = 0; i < count; i++)
        if (steps[i] != stays)
            TRY_OUT(remove_step(saver, steps[i]));
out:
    free(steps);
    return rc;
}

/* What could not be removed costs room and nothing else. */
static void tidy(const struct ckpt_saver *saver, int64_t stays)
{
    if (saver->local->leads && remove_others(saver, stays) != ERR_OK)
        log_warn("old node-local checkpoints stay: %s", err_text());
}

enum err ckpt_saver_local_write(struct ckpt_saver *saver)
{
    struct ckpt_save *save = &saver->save;
    TRY(ckpt_saver_staged(saver));
    if (save->options.local_two)
        tidy(saver, saver->local->kept);
    TRY(fsio_mkdirs(save->tmp));
    ckpt_crash_point("local-folder-made", save->rank);
    TRY(ckpt_save_write(save));
    ckpt_crash_point("local-shard-written", save->rank);
    return ERR_OK;
}

enum err ckpt_saver_local_format(struct ckpt_saver *saver)
{
    struct ckpt_saver_local *local = saver->local;
    TRY(ckpt_save_manifest(&saver->save, &local->text, &local->bytes));
    saver->outcome.bytes = (int64_t)local->bytes;
    return ERR_OK;
}

enum err ckpt_saver_local_share(struct ckpt_saver *saver, enum err rc)
{
    struct ckpt_saver_local *local = saver->local;
    struct comm_request *request;
    (void)rc;
    if (saver->save.rank != 0) {
        local->bytes = (size_t)saver->outcome.bytes;
        /* The others are in the broadcast already: only an end tells them. */
        TRY(new_room(&local->text, local->bytes));
    }
    TRY(comm_start_broadcast(saver->comm, local->text, local->bytes, 0,
                             &request));
    return ckpt_saver_meet(saver, request);
}

static struct ckpt_xor_save shared(const struct ckpt_saver *saver)
{
    const struct ckpt_saver_local *local = saver->local;
    return (struct ckpt_xor_save){ .dir = saver->save.tmp,
                                   .manifest = local->manifest,
                                   .manifest_crc =
                                       crc32c(0, local->text, local->bytes),
                                   .shards = saver->save.shard_of,
                                   .memory = saver->save.options.local_two };
}

enum err ckpt_saver_local_prepare(struct ckpt_saver *saver)
{
    struct ckpt_saver_local *local = saver->local;
    TRY(ckpt_manifest_parse(local->text, local->bytes, saver->save.tmp,
                            &local->manifest));
    struct ckpt_xor_save save = shared(saver);
    TRY(ckpt_xor_prepare(local->parity, &save));
    ckpt_crash_point("local-prepared", saver->save.rank);
    return ERR_OK;
}

enum err ckpt_saver_local_exchange(struct ckpt_saver *saver, enum err rc)
{
    (void)rc;
    return ckpt_xor_exchange(saver->local->parity,
                             saver->save.options.timeout_s);
}

enum err ckpt_saver_local_verify(struct ckpt_saver *saver)
{
    struct ckpt_saver_local *local = saver->local;
    const struct ckpt_options *options = &saver->save.options;
    struct ckpt_xor_save save = shared(saver);
    char path[FSIO_PATH_MAX];
    TRY(ckpt_xor_verify(local->parity, &save));
    ckpt_crash_point("local-verified", saver->save.rank);
    if (local->leads) {
        TRY(ckpt_sign(saver->save.tmp, options->local_key, local->text,
                      local->bytes));
        TRY(fsio_path(path, "%s/%s", saver->save.tmp, CKPT_MANIFEST_FILE));
        TRY(fsio_write_atomic(path, local->text, local->bytes));
    }
    if (saver->save.rank == 0 && options->may_commit != NULL)
        TRY(options->may_commit(options->record_arg));
    return ERR_OK;
}

/* A folder of the same step has the same values or a timeline that was given
 * up; the step before it stays until all nodes have the new one. */
enum err ckpt_saver_local_commit(struct ckpt_saver *saver)
{
    struct ckpt_saver_local *local = saver->local;
    if (!local->leads)
        return ERR_OK;
    ckpt_crash_point("local-agreed", saver->save.rank);
    TRY(remove_step(saver, saver->save.step));
    TRY(ckpt_index_commit(saver->save.local_dir, saver->save.step,
                          saver->save.tmp, false, NULL));
    ckpt_crash_point("local-committed", saver->save.rank);
    return ERR_OK;
}

/* What this node has renamed: another has not. */
enum err ckpt_saver_local_revoke(struct ckpt_saver *saver)
{
    return saver->local->leads ? remove_step(saver, saver->save.step) : ERR_OK;
}

enum err ckpt_saver_local_clean(struct ckpt_saver *saver)
{
    const struct ckpt_saver_local *local = saver->local;
    ckpt_xor_release(local->parity);
    return local->leads
               ? ckpt_index_discard(saver->save.local_dir, saver->save.tmp)
               : ERR_OK;
}

enum err ckpt_saver_local_tidy(struct ckpt_saver *saver)
{
    saver->local->kept = saver->save.step;
    if (!saver->save.options.local_two)
        tidy(saver, saver->save.step);
    ckpt_crash_point("local-tidied", saver->save.rank);
    return ERR_OK;
}
