/* Loading: rank 0 lists and chooses, all ranks read what they want, all agree;
 * a damaged checkpoint is set aside and the next older one is tried. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/ckpt_exchange.h"
#include "checkpoint/ckpt_index.h"
#include "checkpoint/ckpt_local.h"
#include "checkpoint/ckpt_manifest.h"
#include "checkpoint/ckpt_match.h"
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
    char dir[FSIO_PATH_MAX];
    struct ckpt_manifest *manifest; /* NULL: none left */
    bool *holds; /* [shards], of a node-local one; NULL: of the run */
    struct ckpt_load_stats stats;
};

/* --- candidates ----------------------------------------------------------- */

static enum err load_list(struct load *load)
{
    enum err rc = ERR_OK;
    TRY(ckpt_index_recover(load->run_dir));
    TRY(ckpt_index_steps(load->run_dir, &load->steps, &load->left,
                         &load->evidence));
out:
    return rc;
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

/* Rank 0: the newest checkpoint whose manifest and sizes are good, as the text
 * of its manifest; NULL: none is left. */
static enum err choose(struct load *load, int64_t *step, char **text,
                       size_t *bytes)
{
    enum err rc = ERR_OK;
    struct ckpt_manifest *manifest = NULL;
    *text = NULL;
    *bytes = 0;
    while (load->left > 0 && *text == NULL) {
        char path[FSIO_PATH_MAX];
        *step = load->steps[--load->left];
        TRY(ckpt_index_path(path, load->run_dir, *step));
        rc = ckpt_manifest_read(path, text, bytes, &manifest);
        if (rc == ERR_OK)
            rc = ckpt_manifest_check_sizes(manifest, path);
        ckpt_manifest_destroy(manifest);
        manifest = NULL;
        if (rc == ERR_OK)
            break;
        free(*text);
        *text = NULL;
        *bytes = 0;
        if (rc != ERR_CHECKPOINT)
            goto out;
        set_aside(load, *step);
        rc = ERR_OK;
    }
out:
    return rc;
}

/* All ranks get rank 0's text of a manifest and parse it; no bytes: there is
 * none. `text` is freed. */
static enum err share_manifest(struct load *load, char *text, size_t bytes)
{
    enum err rc = ERR_OK;
    bool first = comm_rank(load->comm) == 0;
    int64_t size = (int64_t)bytes;
    TRY(comm_broadcast(load->comm, &size, sizeof size, 0));
    if (size == 0)
        goto out;
    bytes = (size_t)size;
    if (!first) {
        text = malloc(bytes);
        if (text == NULL)
            rc = err_set(ERR_MEMORY, "checkpoint manifest: out of memory");
    }
    TRY(comm_agree(load->comm, rc));
    TRY(comm_broadcast(load->comm, text, bytes, 0));
    rc = ckpt_manifest_parse(text, bytes, load->dir, &load->manifest);
    TRY(comm_agree(load->comm, rc));
out:
    free(text);
    return rc;
}

/* All ranks: the next candidate. Only rank 0 reads the manifest. */
static enum err next_candidate(struct load *load)
{
    enum err rc = ERR_OK;
    char *text = NULL;
    size_t bytes = 0;
    int64_t step = -1;
    ckpt_manifest_destroy(load->manifest);
    load->manifest = NULL;
    if (comm_rank(load->comm) == 0)
        rc = choose(load, &step, &text, &bytes);
    TRY(comm_agree(load->comm, rc));
    TRY(comm_broadcast(load->comm, &step, sizeof step, 0));
    if (step >= 0)
        rc = ckpt_index_path(load->dir, load->run_dir, step);
    TRY(comm_agree(load->comm, rc));
    rc = share_manifest(load, text, bytes);
    text = NULL;
out:
    free(text);
    return rc;
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
    TRY(comm_agree(load->comm, rc));
out:
    return rc;
}

/* Fill the items from the candidate. *damaged: it was fine until its payload
 * was read. */
static enum err load_candidate(struct load *load, bool *damaged)
{
    enum err rc = ERR_OK;
    int *item_of_tensor = NULL;
    struct ckpt_source source = { .dir = load->dir, .holds = load->holds };
    *damaged = false;
    TRY(check_candidate(load, &item_of_tensor));
    rc = ckpt_exchange(load->comm, &source, load->manifest, load->items,
                       item_of_tensor, &load->stats);
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

/* Take the newest node-local candidate of a step in (above, below). */
static enum err next_local(struct load *load, int64_t above, int64_t below)
{
    enum err rc = ERR_OK;
    struct ckpt_local local;
    ckpt_manifest_destroy(load->manifest);
    free(load->holds);
    load->manifest = NULL;
    load->holds = NULL;
    TRY(ckpt_local_choose(load->comm, load->options->local_dir, above, below,
                          &local));
    memcpy(load->dir, local.dir, sizeof load->dir);
    load->manifest = local.manifest;
    load->holds = local.holds;
out:
    return rc;
}

/* Fill the items from the nodes' own folders if they have something as new as
 * the run; else load->manifest is NULL. Damage is not set aside: the next save
 * replaces the folder. */
static enum err load_local(struct load *load)
{
    enum err rc = ERR_OK;
    bool damaged = false;
    int64_t newest = load->left > 0 ? load->steps[load->left - 1] : -1;
    int64_t below = INT64_MAX;
    TRY(comm_broadcast(load->comm, &newest, sizeof newest, 0));
    do {
        TRY(next_local(load, newest - 1, below));
        if (load->manifest == NULL)
            break;
        below = load->manifest->step;
        rc = load_candidate(load, &damaged);
        if (damaged && comm_rank(load->comm) == 0)
            log_warn("node-local checkpoint step %" PRId64 ": %s", below,
                     err_text());
    } while (damaged);
    load->stats.local = load->manifest != NULL;
out:
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
        TRY(load_local(load));
        if (load->manifest != NULL)
            goto out;
    }
    do {
        TRY(next_candidate(load));
        if (load->manifest == NULL) {
            if (first)
                rc = nothing_good(load);
            TRY(comm_agree(load->comm, rc));
            break;
        }
        rc = load_candidate(load, &damaged);
        if (damaged && first)
            set_aside(load, load->manifest->step);
    } while (damaged);
out:
    return rc;
}

static enum err load_folder(struct load *load)
{
    enum err rc = ERR_OK;
    struct ckpt_manifest *manifest = NULL;
    char *text = NULL;
    size_t bytes = 0;
    bool damaged;
    if (comm_rank(load->comm) == 0) {
        rc = ckpt_manifest_read(load->dir, &text, &bytes, &manifest);
        if (rc == ERR_OK)
            rc = ckpt_manifest_check_sizes(manifest, load->dir);
    }
    TRY(comm_agree(load->comm, rc));
    rc = share_manifest(load, text, bytes);
    text = NULL;
    TRY(rc);
    TRY(load_candidate(load, &damaged));
out:
    free(text);
    ckpt_manifest_destroy(manifest);
    return rc;
}

/* Give out what was loaded, if it was, and free the rest. */
static void finish(struct load *load, enum err rc, double begin_s,
                   int64_t *step, json_t **state, struct ckpt_load_stats *stats)
{
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
    free(load->holds);
    ckpt_manifest_destroy(load->manifest);
}

enum err ckpt_load(struct comm *comm, const char *run_dir,
                   const struct ckpt_load_options *options,
                   const struct ckpt_item *items, int item_count, int64_t *step,
                   json_t **state, struct ckpt_load_stats *stats)
{
    double begin_s = clock_now();
    struct load load = { .comm = comm,
                         .run_dir = run_dir,
                         .options = options,
                         .items = items,
                         .item_count = item_count };
    enum err rc = load_newest(&load);
    finish(&load, rc, begin_s, step, state, stats);
    return rc;
}

enum err ckpt_load_from(struct comm *comm, const char *checkpoint_dir,
                        const struct ckpt_load_options *options,
                        const struct ckpt_item *items, int item_count,
                        int64_t *step, json_t **state,
                        struct ckpt_load_stats *stats)
{
    double begin_s = clock_now();
    struct load load = { .comm = comm,
                         .options = options,
                         .items = items,
                         .item_count = item_count };
    enum err rc = fsio_path(load.dir, "%s", checkpoint_dir);
    rc = comm_agree(comm, rc);
    if (rc == ERR_OK)
        rc = load_folder(&load);
    finish(&load, rc, begin_s, step, state, stats);
    return rc;
}
