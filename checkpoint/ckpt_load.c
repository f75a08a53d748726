/* Loading: rank 0 lists and chooses, all ranks read what they want, all agree;
 * a damaged checkpoint is set aside and the next older one is tried.
 *
 * Ranks may see different lists of one folder, as on NFS for some seconds, so
 * only rank 0 looks and tells the others. Candidates come from two places, the
 * run directory and the nodes' own folders, newest first in both together.
 * Damage shows late, when the payload is read: the items are half overwritten
 * then, which does no harm, since the next candidate overwrites all of them and
 * without one the load fails. Damage alone leads to an older step. What may
 * pass (an error of reading) or is the caller's (another model) ends the load,
 * or hours of work would be thrown away for a moment's trouble; and where
 * checkpoints were and none is good there is no fresh start either. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/ckpt_load_private.h"
#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "checkpoint/local/ckpt_local.h"
#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/log.h"

struct load {
    struct comm *comm;
    const char *run_dir;
    const struct ckpt_load_options *options; /* NULL: none */
    const struct ckpt_item *items;
    int item_count;
    /* rank 0's list: steps[0 .. left) are still to be tried */
    int64_t *steps;
    int left;
    bool evidence;
    /* the candidate, on all ranks */
    int64_t candidate; /* its step; -1: none left */
    char dir[FSIO_PATH_MAX];
    struct ckpt_manifest *manifest; /* NULL: none left, or it is damaged */
    /* the node-local level */
    struct ckpt_local local; /* its manifest is the candidate's, or NULL */
    char run_uuid[CKPT_UUID_BYTES];
    int64_t below_local; /* steps to be tried are below; -1: none */
    int64_t ignored;     /* the newest one of another run; -1: none */
    int64_t refused;     /* the newest one without the run's signature */
    struct ckpt_load_stats stats;
};

/* --- candidates --- */

static enum err load_list(struct load *load)
{
    TRY(ckpt_index_recover(load->run_dir));
    TRY(ckpt_index_steps(load->run_dir, &load->steps, &load->left,
                         &load->evidence));
    return ckpt_index_uuid_read(load->run_dir, load->run_uuid);
}

/* Set a damaged checkpoint aside. Where that is not possible (a read-only
 * folder) it is only passed over. */
static void set_aside(const struct load *load, int64_t step)
{
    char reason[512];
    snprintf(reason, sizeof reason, "%s", err_text());
    if (ckpt_index_quarantine(load->run_dir, step, reason) != ERR_OK)
        log_warn("checkpoint step %" PRId64
                 " is damaged (%s) and can't be set aside: %s",
                 step, reason, err_text());
}

/* All ranks: the candidate's manifest, which only rank 0 reads. */
static enum err take_manifest(struct load *load)
{
    enum err rc = ERR_OK;
    char *text = NULL;
    size_t bytes = 0;
    if (comm_rank(load->comm) == 0)
        rc = ckpt_index_quick_check(load->dir, &text, &bytes);
    TRY_OUT(comm_agree(load->comm, rc));
    TRY_OUT(ckpt_manifest_share(load->comm, 0, &text, &bytes));
    rc = ckpt_manifest_parse(text, bytes, load->dir, &load->manifest);
    TRY_OUT(comm_agree(load->comm, rc));
out:
    free(text);
    return rc;
}

/* All ranks: the newest step that the run directory has left is the candidate.
 */
static enum err next_of_run(struct load *load, int64_t step, bool *damaged)
{
    enum err rc = ckpt_index_path(load->dir, load->run_dir, step);
    TRY(comm_agree(load->comm, rc));
    if (comm_rank(load->comm) == 0)
        load->left--;
    rc = take_manifest(load);
    *damaged = rc == ERR_CHECKPOINT;
    return *damaged ? ERR_OK : rc;
}

/* The caller accepts the candidate and its tensors are the items'. */
static enum err check_candidate(struct load *load, int **item_of_tensor)
{
    enum err rc = ERR_OK;
    const struct ckpt_load_options *options = load->options;
    if (options != NULL && options->accept != NULL)
        rc = options->accept(options->accept_arg, load->manifest->step,
                             load->manifest->state);
    TRY(comm_agree(load->comm, rc));
    rc = ckpt_match(load->manifest, load->dir, options, load->items,
                    load->item_count, comm_rank(load->comm) != 0,
                    item_of_tensor);
    return comm_agree(load->comm, rc);
}

/* Fill the items from the candidate. *damaged: it was fine until its payload
 * was read. */
static enum err load_candidate(struct load *load, bool *damaged)
{
    enum err rc = ERR_OK;
    int *item_of_tensor = NULL;
    struct ckpt_source source = { .dir = load->dir,
                                  .holds = load->local.holds };
    *damaged = false;
    TRY_OUT(check_candidate(load, &item_of_tensor));
    rc = ckpt_exchange(
        load->comm, &source, load->manifest, load->items, item_of_tensor,
        load->options != NULL ? load->options->memory : NULL, &load->stats);
    *damaged = rc == ERR_CHECKPOINT;
out:
    free(item_of_tensor);
    return rc;
}

/* Rank 0, no candidate left: a fresh start only where nothing ever was. */
static enum err nothing_good(const struct load *load)
{
    if (load->evidence)
        return err_set(ERR_CHECKPOINT,
                       "%.200s/checkpoints: no good checkpoint is left (look "
                       "at .bad-step-*/REASON); to start afresh, move that "
                       "folder away",
                       load->run_dir);
    int64_t latest = ckpt_index_latest_read(load->run_dir);
    if (latest >= 0)
        log_warn("LATEST names step %" PRId64 ", but there is no checkpoint",
                 latest);
    return ERR_OK;
}

/* What the nodes have beside what is ours, by its newest step. */
static void tell_once(const struct load *load, int64_t step, int64_t *told,
                      const char *is, const char *so)
{
    if (step > *told && comm_rank(load->comm) == 0)
        log_warn("node-local checkpoint step %" PRId64 " is %s %s%s", step, is,
                 load->run_dir, so);
    if (step > *told)
        *told = step;
}

/* All ranks: what the nodes have together of a step in (above, below_local) is
 * the candidate, if there is something. */
static enum err next_of_nodes(struct load *load, int64_t above)
{
    struct ckpt_local *local = &load->local;
    TRY(ckpt_local_choose(load->comm, load->options->local_dir,
                          load->options->local_key, load->run_uuid, above,
                          load->below_local, local));
    memcpy(load->dir, local->dir, sizeof load->dir);
    load->manifest = local->manifest;
    load->below_local = local->step >= 0 ? local->step : above + 1;
    tell_once(load, local->ignored, &load->ignored,
              "another run's than the one in", ": ignored");
    tell_once(load, local->refused, &load->refused,
              "not signed with the secret of", ": not believed");
    return ERR_OK;
}

static void let_go(struct load *load)
{
    if (load->local.manifest == NULL)
        ckpt_manifest_destroy(load->manifest);
    ckpt_local_free(&load->local);
    load->manifest = NULL;
}

/* The newest candidate of both levels, the nodes' own first where they have the
 * same step; load->manifest is NULL when none is left. *damaged: this one is.
 */
static enum err next_candidate(struct load *load, bool *damaged)
{
    int64_t newest = load->left > 0 ? load->steps[load->left - 1] : -1;
    let_go(load);
    *damaged = false;
    TRY(comm_broadcast(load->comm, &newest, sizeof newest, 0));
    if (load->below_local > newest)
        TRY(next_of_nodes(load, newest - 1));
    load->candidate = load->manifest != NULL ? load->manifest->step : newest;
    if (load->manifest == NULL && newest >= 0)
        TRY(next_of_run(load, newest, damaged));
    return ERR_OK;
}

/* The candidate, and where shards on the nodes are damaged that candidate again
 * from what others have of it. Damage on the nodes is not set aside: the next
 * save replaces the folder. */
static enum err load_or_mend(struct load *load, bool *damaged)
{
    bool whole;
    bool first = comm_rank(load->comm) == 0;
    enum err rc = load_candidate(load, damaged);
    for (int tries = 0; *damaged && load->local.manifest != NULL; tries++) {
        if (first)
            log_warn("node-local checkpoint step %" PRId64 ": %s",
                     load->candidate, err_text());
        if (tries > 0)
            break;
        TRY(ckpt_local_mend(load->comm, &load->local, &whole));
        if (!whole)
            break;
        if (first)
            log_warn("node-local checkpoint step %" PRId64
                     ": the nodes have all of it without what is damaged",
                     load->candidate);
        rc = load_candidate(load, damaged);
    }
    return rc;
}

static enum err load_newest(struct load *load)
{
    enum err rc = ERR_OK;
    bool first = comm_rank(load->comm) == 0;
    bool damaged;
    if (first)
        rc = load_list(load);
    TRY(comm_agree(load->comm, rc));
    if (load->options != NULL && load->options->local_dir != NULL) {
        TRY(comm_broadcast(load->comm, load->run_uuid, sizeof load->run_uuid,
                           0));
        load->below_local = INT64_MAX;
    }
    do {
        TRY(next_candidate(load, &damaged));
        if (load->candidate < 0) {
            rc = comm_agree(load->comm, first ? nothing_good(load) : ERR_OK);
            break;
        }
        if (!damaged)
            rc = load_or_mend(load, &damaged);
        if (damaged && first && load->local.manifest == NULL)
            set_aside(load, load->candidate);
    } while (damaged);
    load->stats.local = load->local.manifest != NULL;
    return rc;
}

/* The one folder that run_dir is here. */
static enum err load_folder(struct load *load)
{
    bool damaged;
    enum err rc = fsio_path(load->dir, "%s", load->run_dir);
    TRY(comm_agree(load->comm, rc));
    TRY(take_manifest(load));
    return load_candidate(load, &damaged);
}

/* Load, give out what was loaded, if it was, and free the rest. */
static enum err run(struct load *load, enum err (*how)(struct load *load),
                    int64_t *step, json_t **state,
                    struct ckpt_load_stats *stats)
{
    double begin_s = clock_now();
    enum err rc = how(load);
    *step = -1;
    *state = NULL;
    if (rc == ERR_OK && load->manifest != NULL) {
        *step = load->manifest->step;
        *state = json_incref(load->manifest->state);
    }
    load->stats.seconds = clock_now() - begin_s;
    if (stats != NULL)
        *stats = load->stats;
    free(load->steps);
    let_go(load);
    return rc;
}

enum err ckpt_load(struct comm *comm, const char *run_dir,
                   const struct ckpt_load_options *options,
                   const struct ckpt_item *items, int item_count, int64_t *step,
                   json_t **state, struct ckpt_load_stats *stats)
{
    struct load load = { .comm = comm,
                         .run_dir = run_dir,
                         .options = options,
                         .items = items,
                         .item_count = item_count,
                         .below_local = -1,
                         .ignored = -1,
                         .refused = -1 };
    return run(&load, load_newest, step, state, stats);
}

enum err ckpt_load_from(struct comm *comm, const char *checkpoint_dir,
                        const struct ckpt_load_options *options,
                        const struct ckpt_item *items, int item_count,
                        int64_t *step, json_t **state,
                        struct ckpt_load_stats *stats)
{
    struct load load = { .comm = comm,
                         .run_dir = checkpoint_dir,
                         .options = options,
                         .items = items,
                         .item_count = item_count };
    return run(&load, load_folder, step, state, stats);
}
