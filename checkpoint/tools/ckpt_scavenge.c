/* Copies the newest node-local checkpoint into the run directory before a job
 * ends, for tessera-ckpt scavenge. A load takes node-local shards where they
 * lie (ckpt_load.c).
 *
 * It runs where the training has just died, against the clock of a job that is
 * about to end, so it asks for nothing but the nodes: no GPU, no model, one
 * process each. Each shard is copied by the lowest rank that has it; who finds
 * it damaged says so by not having it any more, and the next round gives it to
 * another. When the rounds are over the commit is the same as a save's. */
#include "checkpoint/tools/ckpt_tools.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "checkpoint/files/ckpt_holders.h"
#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/files/ckpt_shard.h"
#include "checkpoint/files/ckpt_view.h"
#include "checkpoint/local/ckpt_local.h"
#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/new.h"

struct scavenge {
    struct comm *comm;
    const char *run_dir;
    const char *attempt;
    struct ckpt_local local;
    char tmp[FSIO_PATH_MAX];
    int *source;   /* [shards]: the rank that copies it; -1: it is copied */
    bool *mine;    /* [shards]: what this rank tells the others of */
    int64_t bytes; /* of all files */
};

/* --- before --- */

/* Rank 0: the newest step of the run directory that could be loaded; -1: none.
 */
static enum err newest_of_run(const char *run_dir, int64_t *newest)
{
    char path[FSIO_PATH_MAX];
    TRY(ckpt_index_recover(run_dir));
    enum err rc = ckpt_index_newest(path, run_dir);
    *newest = rc == ERR_OK ? ckpt_manifest_step_of(path) : -1;
    return rc == ERR_CHECKPOINT ? ERR_OK : rc;
}

/* Rank 0: the temporary folder, with room for everything. */
static enum err begin(const struct scavenge *s)
{
    TRY(ckpt_index_begin(s->run_dir, s->tmp, s->attempt));
    return ckpt_shard_folder(s->tmp, "copy", s->bytes, 1);
}

/* --- copies --- */

/* The lowest rank that has it of each shard that is not yet copied copies it;
 * ERR_CHECKPOINT, on all ranks, when there is none. */
static enum err choose_sources(struct scavenge *s)
{
    int count = s->local.manifest->shard_count;
    struct ckpt_holders holders;
    for (int i = 0; i < count; i++)
        s->mine[i] = s->source[i] >= 0 && s->local.holds[i];
    enum err rc = ckpt_holders_gather(s->comm, s->mine, count, &holders);
    for (int i = 0; i < count && rc == ERR_OK; i++) {
        s->mine[i] = false;
        if (s->source[i] < 0)
            continue;
        s->source[i] = ckpt_holders_lowest(&holders, i);
        if (s->source[i] < 0)
            rc = err_set(ERR_CHECKPOINT,
                         "no node has %s of the node-local checkpoint step "
                         "%" PRId64 " undamaged",
                         s->local.manifest->shards[i].file, s->local.step);
    }
    ckpt_holders_free(&holders);
    return rc;
}

/* What any rank has copied is done. *left: how many are still to be copied. */
static enum err take_copied(struct scavenge *s, int *left)
{
    int count = s->local.manifest->shard_count;
    struct ckpt_holders holders;
    *left = 0;
    TRY(ckpt_holders_gather(s->comm, s->mine, count, &holders));
    for (int i = 0; i < count; i++) {
        if (ckpt_holders_lowest(&holders, i) >= 0)
            s->source[i] = -1;
        *left += s->source[i] >= 0;
    }
    ckpt_holders_free(&holders);
    return ERR_OK;
}

/* Copies this rank's part of a round. A damaged shard is left to the next
 * round, which takes it from elsewhere. */
static enum err copy_mine(struct scavenge *s)
{
    const struct ckpt_manifest *manifest = s->local.manifest;
    for (int i = 0; i < manifest->shard_count; i++) {
        if (s->source[i] != comm_rank(s->comm))
            continue;
        enum err rc =
            ckpt_shard_copy(s->local.dir, s->tmp, &manifest->shards[i]);
        if (rc == ERR_CHECKPOINT) {
            log_warn("%s: looking whether another node has it", err_text());
            s->local.holds[i] = false;
            continue;
        }
        TRY(rc);
        s->mine[i] = true;
    }
    return ERR_OK;
}

static enum err copy_shards(struct scavenge *s)
{
    int left = s->local.manifest->shard_count;
    while (left > 0) {
        TRY(choose_sources(s));
        TRY(comm_agree(s->comm, copy_mine(s)));
        TRY(take_copied(s, &left));
    }
    return ERR_OK;
}

/* --- the commit --- */

/* Commits, on rank 0: the manifest of the nodes names no view, only here is
 * there one. Older checkpoints stay: how many to keep is the run's affair. */
static enum err commit(const struct scavenge *s)
{
    enum err rc = ERR_OK;
    const struct ckpt_manifest *manifest = s->local.manifest;
    struct ckpt_manifest_head head = { .step = manifest->step,
                                       .ranks = manifest->ranks,
                                       .attempt = s->attempt,
                                       .state = manifest->state,
                                       .item_count = manifest->tensor_count };
    struct ckpt_item *items = NULL;
    TRY_OUT(ckpt_manifest_items(manifest, &items));
    head.items = items;
    TRY_OUT(
        ckpt_view_seal(s->tmp, &head, manifest->shards, manifest->shard_count));
    TRY_OUT(ckpt_index_commit(s->run_dir, s->local.step, s->tmp, true, NULL));
    if (ckpt_index_latest_write(s->run_dir, s->local.step) != ERR_OK)
        log_warn("LATEST is not up to date: %s", err_text());
out:
    free(items);
    return rc;
}

/* Removes what was made, on rank 0, keeping the first error's text. */
static void give_up(const struct scavenge *s, enum err rc)
{
    struct err_kept kept;
    err_keep(&kept, rc);
    if (ckpt_index_discard(s->run_dir, s->tmp) != ERR_OK)
        log_warn("unfinished checkpoint stays: %s", err_text());
    err_again(&kept);
}

/* All ranks: the chosen step. Where a peer is dead, or late, it may still write
 * to the temporary folder, which the next sweep removes. */
static enum err take(struct scavenge *s)
{
    enum err rc = ERR_OK;
    bool first = comm_rank(s->comm) == 0;
    size_t count = (size_t)s->local.manifest->shard_count;
    assert(s->local.step >= 0 && s->source == NULL);
    s->bytes = 0;
    for (size_t i = 0; i < count; i++)
        s->bytes += s->local.manifest->shards[i].bytes;
    rc = new_zeroed(&s->source, count + 1); /* of 0: all are left */
    if (rc == ERR_OK)
        rc = new_zeroed(&s->mine, count + 1);
    if (rc == ERR_OK)
        rc = ckpt_index_tmp_path(s->tmp, s->run_dir, s->local.step, s->attempt);
    TRY_OUT(comm_agree(s->comm, rc));
    TRY_OUT(comm_agree(s->comm, first ? begin(s) : ERR_OK));
    TRY_OUT(copy_shards(s));
    TRY_OUT(comm_agree(s->comm, first ? commit(s) : ERR_OK));
out:
    if (rc != ERR_OK && rc != ERR_COMM && first)
        give_up(s, rc);
    free(s->source);
    free(s->mine);
    s->source = NULL;
    s->mine = NULL;
    return rc;
}

/* A shard that no node has undamaged may be made again from parity. */
static enum err take_or_mend(struct scavenge *s)
{
    struct err_kept kept;
    bool whole;
    enum err rc = take(s);
    if (rc != ERR_CHECKPOINT)
        return rc;
    err_keep(&kept, rc);
    TRY(ckpt_local_mend(s->comm, &s->local, &whole));
    return whole ? take(s) : err_again(&kept);
}

enum err ckpt_scavenge(struct comm *comm, const char *run_dir,
                       const char *local_dir, const char *local_key,
                       const char *attempt, struct ckpt_scavenged *out)
{
    enum err rc = ERR_OK;
    double begin_s = clock_now();
    struct scavenge s = { .comm = comm,
                          .run_dir = run_dir,
                          .attempt = attempt };
    char run_uuid[CKPT_UUID_BYTES] = "";
    int64_t newest = -1, below = INT64_MAX;
    *out = (struct ckpt_scavenged){ .step = -1 };
    if (comm_rank(comm) == 0) {
        rc = newest_of_run(run_dir, &newest);
        if (rc == ERR_OK)
            rc = ckpt_index_uuid_read(run_dir, run_uuid);
    }
    TRY_OUT(comm_agree(comm, rc));
    TRY_OUT(comm_broadcast(comm, &newest, sizeof newest, 0));
    TRY_OUT(comm_broadcast(comm, run_uuid, sizeof run_uuid, 0));
    do {
        ckpt_local_free(&s.local);
        TRY_OUT(ckpt_local_choose(comm, local_dir, local_key, run_uuid, newest,
                                  below, &s.local));
        if (s.local.refused >= 0 && comm_rank(comm) == 0)
            log_warn("node-local checkpoint step %" PRId64
                     " is not signed with the secret of %s: not believed",
                     s.local.refused, run_dir);
        if (s.local.step < 0)
            goto out;
        below = s.local.step;
        rc = take_or_mend(&s);
        if (rc == ERR_CHECKPOINT && comm_rank(comm) == 0)
            log_warn("%s", err_text());
    } while (rc == ERR_CHECKPOINT);
    if (rc == ERR_OK)
        *out = (struct ckpt_scavenged){ .step = s.local.step,
                                        .bytes = s.bytes,
                                        .seconds = clock_now() - begin_s };
out:
    ckpt_local_free(&s.local);
    return rc;
}
