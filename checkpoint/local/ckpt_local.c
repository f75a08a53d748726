/* Finds the newest checkpoint that the nodes' local folders hold together. The
 * saves are made in ckpt_saver_local.c, parity in ckpt_xor.c.
 *
 * No node sees another's folder, and after a failure they differ: one is new
 * and empty, one has a step that the others did not get to. So the ranks say
 * their newest step, and the largest is the candidate; whoever has it sends its
 * manifest, and what counts is who has that very text, byte for byte, not who
 * has a folder of that name. Then each shard must be somewhere, or be made
 * again from parity; else the next older step is tried. A step counts only if
 * it is this run's and signed with its secret, since a node's folder is often
 * one in which any user may write. */
#include "checkpoint/local/ckpt_local.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/files/ckpt_holders.h"
#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/files/ckpt_read.h"
#include "checkpoint/local/ckpt_nodes.h"
#include "checkpoint/local/ckpt_rebuild.h"
#include "src/base/digest.h"
#include "src/base/new.h"
#include "src/base/log.h"

#define SIGN_FILE "SIGNATURE"
#define SIGN_DIGITS 64

enum err ckpt_sign(const char *checkpoint_dir, const char *key,
                   const char *manifest, size_t bytes)
{
    char path[FSIO_PATH_MAX], hex[SIGN_DIGITS + 1];
    TRY(digest_sign(key != NULL ? key : "", manifest, bytes, hex));
    TRY(fsio_path(path, "%s/%s", checkpoint_dir, SIGN_FILE));
    return fsio_write_hint(path, hex, SIGN_DIGITS);
}

static bool is_signed(const char *checkpoint_dir, const char *key,
                      const char *manifest, size_t bytes)
{
    char path[FSIO_PATH_MAX], hex[SIGN_DIGITS + 1];
    char *found = NULL;
    size_t length;
    bool good =
        digest_sign(key != NULL ? key : "", manifest, bytes, hex) == ERR_OK &&
        fsio_path(path, "%s/%s", checkpoint_dir, SIGN_FILE) == ERR_OK &&
        fsio_read_file(path, SIGN_DIGITS, &found, &length) == ERR_OK &&
        length == SIGN_DIGITS && digest_same(hex, found);
    free(found);
    return good;
}

static bool is_of_run(const struct ckpt_manifest *manifest,
                      const char *run_uuid)
{
    const char *uuid =
        json_string_value(json_object_get(manifest->state, "run_uuid"));
    return uuid != NULL && uuid[0] != '\0' && strcmp(uuid, run_uuid) == 0;
}

/* Where a rank looks, and for what: steps in (above, below). */
struct local_search {
    const char *dir, *key, *run_uuid;
    int64_t above, below;
};

/* This rank's newest step of the run with a good manifest that its key has
 * signed, and its text; -1: none. What can't be read is as good as lost. out
 * has the newest of others. */
static int64_t newest_here(const struct local_search *search, char **text,
                           size_t *bytes, struct ckpt_local *out)
{
    int64_t *steps = NULL;
    int64_t newest = -1;
    int count = 0;
    *text = NULL;
    *bytes = 0;
    if (ckpt_index_steps(search->dir, &steps, &count, NULL) != ERR_OK)
        count = 0;
    for (int i = count - 1; i >= 0 && steps[i] > search->above && newest < 0;
         i--) {
        char path[FSIO_PATH_MAX];
        struct ckpt_manifest *manifest = NULL;
        if (steps[i] >= search->below ||
            ckpt_index_path(path, search->dir, steps[i]) != ERR_OK)
            continue;
        if (ckpt_manifest_read(path, text, bytes, &manifest) != ERR_OK)
            continue;
        int64_t *other = !is_of_run(manifest, search->run_uuid) ? &out->ignored
                         : !is_signed(path, search->key, *text, *bytes)
                             ? &out->refused
                             : NULL;
        if (other == NULL) {
            newest = steps[i];
        } else {
            *other = steps[i] > *other ? steps[i] : *other;
            free(*text);
            *text = NULL;
            *bytes = 0;
        }
        ckpt_manifest_destroy(manifest);
    }
    free(steps);
    return newest;
}

/* All ranks get the text of the lowest rank that has `step`; *same: this rank
 * has that very text. */
static enum err share_manifest(struct comm *comm, int64_t step, int64_t mine,
                               char **text, size_t *bytes, bool *same)
{
    int64_t root = mine == step ? comm_rank(comm) : comm_size(comm);
    TRY(comm_all_reduce_i64(comm, &root, 1, COMM_MIN));
    bool first = root == comm_rank(comm);
    char *shared = first ? *text : NULL;
    size_t size = first ? *bytes : 0;
    enum err rc = ckpt_manifest_share(comm, (int)root, &shared, &size);
    *same = rc == ERR_OK && mine == step && *bytes == size &&
            memcmp(*text, shared, size) == 0;
    if (!first)
        free(*text);
    *text = shared;
    *bytes = size;
    return rc;
}

static bool has_shard(const struct ckpt_local *local, int shard)
{
    assert(shard >= 0 && shard < local->manifest->shard_count);
    char path[FSIO_PATH_MAX];
    struct stat status;
    const struct ckpt_shard *want = &local->manifest->shards[shard];
    return fsio_path(path, "%s/%s", local->dir, want->file) == ERR_OK &&
           stat(path, &status) == 0 && S_ISREG(status.st_mode) &&
           status.st_size == want->bytes;
}

/* Fill `holds`; *whole: every shard is somewhere. */
static enum err take_stock(struct comm *comm, struct ckpt_local *local,
                           bool *whole)
{
    int count = local->manifest->shard_count;
    struct ckpt_holders holders;
    free(local->holds);
    TRY(comm_agree(comm, new_zeroed(&local->holds, (size_t)count + 1)));
    for (int s = 0; s < count; s++)
        local->holds[s] = local->here && has_shard(local, s);
    enum err rc = ckpt_holders_gather(comm, local->holds, count, &holders);
    *whole = rc == ERR_OK;
    for (int s = 0; s < count && *whole; s++)
        *whole = ckpt_holders_lowest(&holders, s) >= 0;
    ckpt_holders_free(&holders);
    return rc;
}

/* Where shards are missing that can be made again, they are. */
static enum err take_whole(struct comm *comm, struct ckpt_local *local,
                           bool *whole)
{
    bool rebuilt;
    TRY(take_stock(comm, local, whole));
    struct ckpt_rebuild lost = { .dir = local->dir,
                                 .manifest = local->manifest,
                                 .manifest_crc = local->manifest_crc,
                                 .holds = local->holds,
                                 .here = local->here };
    if (*whole)
        return ERR_OK;
    /* What a save that was cut off has left takes the room of lost shards;
     * ckpt_rebuild() agrees before it makes files. */
    if (ckpt_nodes_leads(comm) && ckpt_index_sweep(local->root) != ERR_OK)
        log_warn("%s", err_text());
    TRY(ckpt_rebuild(comm, &lost, &rebuilt));
    return rebuilt ? take_stock(comm, local, whole) : ERR_OK;
}

/* Each rank reads its share of the shards on its node. */
static enum err drop_damaged(const struct comm *comm,
                             const struct ckpt_local *local)
{
    enum err rc = ERR_OK;
    int rank = comm_rank(comm);
    char path[FSIO_PATH_MAX];
    struct ckpt_nodes nodes = { 0 };
    struct ckpt_read *reader = NULL;
    TRY_OUT(ckpt_nodes_create(comm, &nodes));
    TRY_OUT(ckpt_read_create(local->dir, local->manifest, &reader));
    for (int s = nodes.place[rank]; s < local->manifest->shard_count;
         s += nodes.ranks[nodes.node[rank]]) {
        enum err read = ERR_OK;
        if (local->holds[s])
            read = ckpt_read_all(reader, s, NULL, NULL);
        if (read == ERR_OK)
            continue;
        if (read != ERR_CHECKPOINT && read != ERR_IO)
            TRY_OUT(read); /* want of memory, say, is no damage */
        log_warn("%s: counts as lost", err_text());
        TRY_OUT(fsio_path(path, "%s/%s", local->dir,
                          local->manifest->shards[s].file));
        if (unlink(path) != 0)
            TRY_OUT(err_errno("%s: remove", path));
    }
out:
    ckpt_read_destroy(reader);
    ckpt_nodes_free(&nodes);
    return rc;
}

enum err ckpt_local_mend(struct comm *comm, struct ckpt_local *local,
                         bool *whole)
{
    *whole = false;
    /* the reader may have let go of a damaged shard, which is still there */
    TRY(take_stock(comm, local, whole));
    TRY(comm_agree(comm, drop_damaged(comm, local)));
    return take_whole(comm, local, whole);
}

/* Tries one candidate, the newest below; sets out->step, -1 when there is
 * none. */
static enum err try_newest(struct comm *comm, const struct local_search *search,
                           struct ckpt_local *out, bool *whole)
{
    enum err rc = ERR_OK;
    char *text = NULL;
    size_t bytes;
    int64_t mine = newest_here(search, &text, &bytes, out);
    int64_t newest[] = { mine, out->ignored, out->refused };
    TRY_OUT(comm_all_reduce_i64(comm, newest, 3, COMM_MAX));
    int64_t step = out->step = newest[0];
    out->ignored = newest[1];
    out->refused = newest[2];
    if (step < 0)
        goto out;
    TRY_OUT(share_manifest(comm, step, mine, &text, &bytes, &out->here));
    rc = ckpt_index_path(out->dir, search->dir, step);
    if (rc == ERR_OK)
        rc = ckpt_manifest_parse(text, bytes, out->dir, &out->manifest);
    TRY_OUT(comm_agree(comm, rc));
    out->manifest_crc = crc32c(0, text, bytes);
    out->root = search->dir;
    TRY_OUT(take_whole(comm, out, whole));
out:
    free(text);
    return rc;
}

enum err ckpt_local_choose(struct comm *comm, const char *local_dir,
                           const char *key, const char *run_uuid, int64_t above,
                           int64_t below, struct ckpt_local *out)
{
    enum err rc = ERR_OK;
    bool whole = false;
    struct local_search search = { local_dir, key, run_uuid, above, below };
    for (;;) {
        *out = (struct ckpt_local){ .step = -1, .ignored = -1, .refused = -1 };
        TRY_OUT(try_newest(comm, &search, out, &whole));
        if (out->step < 0 || whole)
            goto out;
        search.below = out->step;
        ckpt_local_free(out);
    }
out:
    if (rc != ERR_OK)
        ckpt_local_free(out);
    return rc;
}

void ckpt_local_free(struct ckpt_local *local)
{
    ckpt_manifest_destroy(local->manifest);
    free(local->holds);
    *local = (struct ckpt_local){ .step = -1 };
}
