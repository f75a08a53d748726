/* A save to the nodes' own folders, with copies on partners or parity;
 * ckpt_saver_order.c is one to the run directory.
 *
 * The order of a save to the nodes' own folders, all of it in the saver's
 * thread. No node sees another's, so all must have agreed before any of them
 * renames:
 *
 *   every rank      write: the shard
 *   all-reduce, records to rank 0
 *   rank 0          the manifest, broadcast to all
 *   every rank      prepare: map the own shard and make room for kept copies
 *                   or parity
 *   all-reduce, copies to and from partners; or rounds of parity
 *   every rank      verify: the kept copies or parity; the manifest, once a
 *                   node
 *   all-reduce
 *   every rank      commit: the rename, once a node
 *   all-reduce
 *   every rank      tidy: older steps go, once a node
 *
 * A failure in any of the agreements ends in removing everything. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt_crash.h"
#include "checkpoint/ckpt_index.h"
#include "checkpoint/ckpt_local.h"
#include "checkpoint/ckpt_nodes.h"
#include "checkpoint/ckpt_partner.h"
#include "checkpoint/ckpt_read.h"
#include "checkpoint/ckpt_saver_private.h"
#include "checkpoint/ckpt_xor.h"
#include "src/base/crc32c.h"
#include "src/base/log.h"

struct ckpt_saver_local {
    char dir[FSIO_PATH_MAX];
    struct ckpt_partner *partner; /* NULL: parity instead */
    struct ckpt_xor * xor ;       /* NULL: copies instead */
    bool leads;                   /* this rank does what is done once a node */
    bool committing;              /* step-N may be there on this node */
    /* of one save */
    char *text; /* the manifest, the same everywhere */
    size_t bytes;
    struct ckpt_manifest *manifest;
    int *kept; /* shards that this rank keeps */
    int kept_count;
};

enum err ckpt_saver_local_create(struct ckpt_saver *saver, const char *dir)
{
    int group = saver->save.options.xor_group;
    int smallest = 1, largest = 1; /* groups of nodes */
    struct ckpt_saver_local *local = calloc(1, sizeof *local);
    if (local == NULL)
        return err_set(ERR_MEMORY, "checkpoint: out of memory");
    saver->local = local;
    local->kept = calloc((size_t)saver->save.ranks, sizeof *local->kept);
    if (local->kept == NULL)
        return err_set(ERR_MEMORY, "checkpoint: out of memory");
    TRY(fsio_path(local->dir, "%s", dir));
    if (group > 0) {
        TRY(ckpt_xor_create(saver->comm, group, &local->xor));
        ckpt_xor_groups(local->xor, &smallest, &largest);
    } else {
        TRY(ckpt_partner_create(saver->comm, &local->partner));
        if (ckpt_partner_keeper(local->partner, 0) >= 0)
            smallest = largest = 2;
    }
    if (saver->save.rank == 0)
        ckpt_local_tell_space(dir, group > 0, smallest, largest);
    local->leads = ckpt_nodes_leads(saver->comm);
    if (local->leads)
        TRY(ckpt_index_sweep(local->dir));
    return ERR_OK;
}

static void forget(struct ckpt_saver_local *local)
{
    ckpt_manifest_destroy(local->manifest);
    free(local->text);
    local->manifest = NULL;
    local->text = NULL;
    local->bytes = 0;
    local->kept_count = 0;
    local->committing = false;
}

void ckpt_saver_local_destroy(struct ckpt_saver *saver)
{
    struct ckpt_saver_local *local = saver->local;
    if (local == NULL)
        return;
    forget(local);
    ckpt_partner_destroy(local->partner);
    ckpt_xor_destroy(local->xor);
    free(local->kept);
    free(local);
    saver->local = NULL;
}

enum err ckpt_saver_start_local(struct ckpt_saver *saver, int64_t step,
                                const json_t *state)
{
    struct ckpt_save *save = &saver->save;
    char tmp[FSIO_PATH_MAX];
    assert(saver->local != NULL && (save->rank != 0 || state != NULL));
    TRY(ckpt_index_tmp_path(tmp, saver->local->dir, step, save->attempt));
    TRY(ckpt_saver_stage(saver, step, state));
    memcpy(save->tmp, tmp, sizeof tmp);
    saver->progress.local = true;
    ckpt_saver_thread_give(saver, JOB_SAVE_LOCAL);
    return ERR_OK;
}

/* --- what a rank does --- */

static enum err write_shard(struct ckpt_saver *saver)
{
    struct ckpt_save *save = &saver->save;
    TRY(ckpt_saver_staged(saver));
    TRY(fsio_mkdirs(save->tmp));
    ckpt_crash_point("local-folder-made", save->rank);
    TRY(ckpt_save_write(save));
    ckpt_crash_point("local-shard-written", save->rank);
    return ERR_OK;
}

static enum err make_manifest(struct ckpt_saver *saver)
{
    struct ckpt_saver_local *local = saver->local;
    return ckpt_save_manifest(&saver->save, NULL, &local->text, &local->bytes);
}

/* Ranks without anything to write have no shard. */
static int shard_of(const struct ckpt_saver *saver, int rank)
{
    int shard = 0;
    if (saver->numbers.lengths[rank] == 0)
        return -1;
    for (int r = 0; r < rank; r++)
        shard += saver->numbers.lengths[r] > 0;
    return shard;
}

static enum err name_file(const struct ckpt_saver *saver, int rank,
                          char path[FSIO_PATH_MAX],
                          struct ckpt_partner_file *file)
{
    const struct ckpt_shard *shard =
        &saver->local->manifest->shards[shard_of(saver, rank)];
    *file = (struct ckpt_partner_file){ .rank = rank,
                                        .path = path,
                                        .bytes = shard->bytes };
    return fsio_path(path, "%s/%s", saver->save.tmp, shard->file);
}

static enum err prepare_copies(struct ckpt_saver *saver)
{
    enum err rc = ERR_OK;
    struct ckpt_saver_local *local = saver->local;
    const struct ckpt_save *save = &saver->save;
    size_t ranks = (size_t)save->ranks;
    char(*paths)[FSIO_PATH_MAX] = calloc(ranks + 1, sizeof *paths);
    struct ckpt_partner_file *files = calloc(ranks + 1, sizeof *files);
    int count = 0;
    if (paths == NULL || files == NULL) {
        rc = err_set(ERR_MEMORY, "checkpoint: out of memory");
        goto out;
    }
    for (int r = 0; r < save->ranks; r++) {
        if (ckpt_partner_keeper(local->partner, r) != save->rank ||
            shard_of(saver, r) < 0)
            continue;
        local->kept[count] = shard_of(saver, r);
        TRY_OUT(name_file(saver, r, paths[count], &files[count]));
        count++;
    }
    local->kept_count = count;
    bool own = save->writer >= 0;
    if (own)
        TRY_OUT(name_file(saver, save->rank, paths[ranks], &files[ranks]));
    TRY_OUT(ckpt_partner_prepare(local->partner, own ? &files[ranks] : NULL,
                                 files, count));
out:
    free(files);
    free(paths);
    return rc;
}

static enum err prepare(struct ckpt_saver *saver)
{
    struct ckpt_saver_local *local = saver->local;
    TRY(ckpt_manifest_parse(local->text, local->bytes, saver->save.tmp,
                            &local->manifest));
    if (local->xor != NULL)
        TRY(ckpt_xor_prepare(local->xor, saver->save.tmp, local->manifest,
                             crc32c(0, local->text, local->bytes),
                             saver->numbers.lengths));
    else
        TRY(prepare_copies(saver));
    ckpt_crash_point("local-prepared", saver->save.rank);
    return ERR_OK;
}

static enum err verify(struct ckpt_saver *saver)
{
    enum err rc = ERR_OK;
    struct ckpt_saver_local *local = saver->local;
    struct ckpt_read *reader = NULL;
    char path[FSIO_PATH_MAX];
    if (local->xor != NULL)
        TRY_OUT(ckpt_xor_seal(local->xor, local->manifest));
    TRY_OUT(ckpt_read_create(saver->save.tmp, local->manifest, &reader));
    for (int i = 0; i < local->kept_count; i++)
        TRY_OUT(ckpt_read_all(reader, local->kept[i]));
    ckpt_crash_point("local-verified", saver->save.rank);
    if (local->leads) {
        TRY_OUT(fsio_path(path, "%s/%s", saver->save.tmp, CKPT_MANIFEST_FILE));
        TRY_OUT(fsio_write_atomic(path, local->text, local->bytes));
    }
out:
    ckpt_read_destroy(reader);
    return rc;
}

static enum err remove_step(const struct ckpt_saver_local *local, int64_t step)
{
    char path[FSIO_PATH_MAX];
    TRY(ckpt_index_path(path, local->dir, step));
    return ckpt_index_discard(local->dir, path);
}

/* A folder of the same step has the same values or a timeline that was given
 * up; the step before it stays until all nodes have the new one. */
static enum err commit(struct ckpt_saver *saver)
{
    struct ckpt_saver_local *local = saver->local;
    if (!local->leads)
        return ERR_OK;
    ckpt_crash_point("local-agreed", saver->save.rank);
    TRY(remove_step(local, saver->save.step));
    local->committing = true;
    TRY(ckpt_index_commit(local->dir, saver->save.step, saver->save.tmp,
                          false));
    ckpt_crash_point("local-committed", saver->save.rank);
    return ERR_OK;
}

/* All nodes have the step: any other only takes room. */
static enum err tidy(const struct ckpt_saver *saver)
{
    enum err rc = ERR_OK;
    const struct ckpt_saver_local *local = saver->local;
    int64_t *steps = NULL;
    int count = 0;
    bool evidence;
    if (!local->leads)
        return ERR_OK;
    TRY_OUT(ckpt_index_steps(local->dir, &steps, &count, &evidence));
    for (int i = 0; i < count; i++)
        if (steps[i] != saver->save.step)
            TRY_OUT(remove_step(local, steps[i]));
    ckpt_crash_point("local-tidied", saver->save.rank);
out:
    free(steps);
    return rc;
}

/* Also what this node may have renamed already: others have not. */
static enum err clean(struct ckpt_saver *saver)
{
    const struct ckpt_saver_local *local = saver->local;
    if (!local->leads)
        return ERR_OK;
    TRY(ckpt_index_discard(local->dir, saver->save.tmp));
    if (local->committing)
        TRY(remove_step(local, saver->save.step));
    return ERR_OK;
}

/* --- order --- */

static bool failed(const struct ckpt_saver *saver)
{
    return saver->outcome.code != ERR_OK;
}

/* The manifest of rank 0 goes to all. */
static enum err share_manifest(struct ckpt_saver *saver)
{
    struct ckpt_saver_local *local = saver->local;
    struct comm_request *request;
    if (saver->save.rank == 0) {
        ckpt_saver_set_outcome(saver, make_manifest(saver));
        saver->outcome.bytes = (int64_t)local->bytes;
    }
    TRY(ckpt_saver_tell(saver, 0));
    if (failed(saver))
        return ERR_OK;
    if (saver->save.rank != 0) {
        local->bytes = (size_t)saver->outcome.bytes;
        local->text = malloc(local->bytes);
        /* The others are in the broadcast already: only an end tells them. */
        if (local->text == NULL)
            return err_set(ERR_MEMORY, "checkpoint manifest: out of memory");
    }
    TRY(comm_start_broadcast(saver->comm, local->text, local->bytes, 0,
                             &request));
    return ckpt_saver_meet(saver, request);
}

/* The last that is asked before nodes commit, each for itself. */
static enum err ready(struct ckpt_saver *saver)
{
    const struct ckpt_options *options = &saver->save.options;
    enum err rc = verify(saver);
    if (rc == ERR_OK && saver->save.rank == 0 && options->may_commit != NULL)
        rc = options->may_commit(options->record_arg);
    return rc;
}

/* Copies or parity of all shards on other nodes. */
static enum err protect(struct ckpt_saver *saver)
{
    const struct ckpt_saver_local *local = saver->local;
    double timeout_s = saver->save.options.timeout_s;
    TRY(ckpt_saver_agree(saver, prepare(saver)));
    if (failed(saver) && local->xor != NULL)
        ckpt_xor_release(local->xor);
    else if (failed(saver))
        ckpt_partner_release(local->partner);
    if (failed(saver))
        return ERR_OK;
    ckpt_saver_meets(saver, true);
    TRY(local->xor != NULL ? ckpt_xor_exchange(local->xor, timeout_s)
                           : ckpt_partner_exchange(local->partner, timeout_s));
    ckpt_saver_meets(saver, false);
    return ckpt_saver_agree(saver, ready(saver));
}

/* As far as it goes without a failure on any rank. */
static enum err save(struct ckpt_saver *saver)
{
    TRY(ckpt_saver_agree(saver, write_shard(saver)));
    if (failed(saver))
        return ERR_OK;
    TRY(ckpt_saver_gather(saver));
    TRY(share_manifest(saver));
    if (failed(saver))
        return ERR_OK;
    TRY(protect(saver));
    if (failed(saver))
        return ERR_OK;
    ckpt_saver_persisted(saver);
    return ckpt_saver_agree(saver, commit(saver));
}

/* What could not be removed costs room and nothing else. */
enum err ckpt_saver_save_local(struct ckpt_saver *saver)
{
    TRY(save(saver));
    struct ckpt_saver_outcome end = saver->outcome;
    if (failed(saver))
        TRY(ckpt_saver_agree(saver, clean(saver)));
    saver->outcome = end;
    if (failed(saver))
        err_set((enum err)end.code, "%s", end.text);
    if (saver->save.rank == 0)
        ckpt_saver_record(saver, (enum err)end.code, 0.0);
    if (!failed(saver) && tidy(saver) != ERR_OK)
        log_warn("old node-local checkpoints stay: %s", err_text());
    forget(saver->local);
    return ERR_OK;
}
