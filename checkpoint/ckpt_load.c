/* Loading: rank 0 lists and chooses, all ranks read what they want, all agree;
 * a damaged checkpoint is set aside and the next older one is tried. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/ckpt_index.h"
#include "checkpoint/ckpt_manifest.h"
#include "checkpoint/ckpt_read.h"
#include "src/base/fsio.h"
#include "src/base/log.h"

#define MISMATCHES_LOGGED 20

struct load {
    struct comm *comm;
    const char *run_dir;
    const struct ckpt_item *items;
    int item_count;
    /* rank 0's list: steps[0 .. left) are still to be tried */
    int64_t *steps;
    int left;
    bool evidence;
    /* the candidate, on all ranks */
    char dir[FSIO_PATH_MAX];
    struct ckpt_manifest *manifest; /* NULL: none left */
    int *item_of_tensor;
};

/* --- matching ------------------------------------------------------------- */

/* An entry of either side, sorted by name so that one walk finds all. */
struct named {
    const char *name;
    int index;
};

static int named_order(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name,
                  ((const struct named *)b)->name);
}

struct mismatches {
    int count;
    bool quiet;
    char text[320]; /* the first few */
};

static void mismatch(struct mismatches *list, const char *name,
                     const char *what)
{
    size_t used = strlen(list->text);
    int room = (int)(sizeof list->text - used);
    if (!list->quiet && list->count < MISMATCHES_LOGGED)
        log_error("checkpoint mismatch: tensor %s %s", name, what);
    list->count++;
    if ((int)(strlen(name) + strlen(what)) + 4 < room)
        snprintf(list->text + used, (size_t)room, "%s%s %s",
                 used == 0 ? "" : "; ", name, what);
}

static void shape_text(enum dtype dtype, int dims, const int64_t *shape,
                       char *text, size_t bytes)
{
    int used = snprintf(text, bytes, "%s[", dtype_name(dtype));
    for (int i = 0; i < dims; i++)
        used += snprintf(text + used, bytes - (size_t)used, "%s%" PRId64,
                         i == 0 ? "" : ",", shape[i]);
    snprintf(text + used, bytes - (size_t)used, "]");
}

static void compare(struct mismatches *list, const struct ckpt_tensor *tensor,
                    const struct ckpt_item *item)
{
    char stored[128], wanted[128], what[300];
    shape_text(tensor->dtype, tensor->dims, tensor->shape, stored,
               sizeof stored);
    shape_text(item->dtype, item->dims, item->shape, wanted, sizeof wanted);
    if (strcmp(stored, wanted) == 0)
        return;
    snprintf(what, sizeof what, "is %s in the checkpoint, %s in the model",
             stored, wanted);
    mismatch(list, tensor->name, what);
}

static void match_sorted(const struct load *load, const struct named *tensors,
                         const struct named *items, struct mismatches *list)
{
    int t = 0, i = 0;
    while (t < load->manifest->tensor_count || i < load->item_count) {
        int order = t == load->manifest->tensor_count ? 1
                    : i == load->item_count
                        ? -1
                        : strcmp(tensors[t].name, items[i].name);
        if (order < 0) {
            mismatch(list, tensors[t++].name, "is not in the model");
        } else if (order > 0) {
            mismatch(list, items[i++].name, "is not in the checkpoint");
        } else {
            compare(list, &load->manifest->tensors[tensors[t].index],
                    &load->items[items[i].index]);
            load->item_of_tensor[tensors[t++].index] = items[i++].index;
        }
    }
}

/* Names, dtypes and shapes must be the same on both sides. */
static enum err match(struct load *load)
{
    enum err rc = ERR_OK;
    struct mismatches list = { .quiet = comm_rank(load->comm) != 0 };
    size_t tensor_count = (size_t)load->manifest->tensor_count;
    size_t item_count = (size_t)load->item_count;
    struct named *tensors = calloc(tensor_count + 1, sizeof *tensors);
    struct named *items = calloc(item_count + 1, sizeof *items);
    free(load->item_of_tensor);
    load->item_of_tensor =
        calloc(tensor_count + 1, sizeof *load->item_of_tensor);
    if (tensors == NULL || items == NULL || load->item_of_tensor == NULL) {
        rc = err_set(ERR_MEMORY, "checkpoint: out of memory");
        goto out;
    }
    for (size_t t = 0; t < tensor_count; t++)
        tensors[t] = (struct named){ load->manifest->tensors[t].name, (int)t };
    for (size_t i = 0; i < item_count; i++)
        items[i] = (struct named){ load->items[i].name, (int)i };
    qsort(tensors, tensor_count, sizeof *tensors, named_order);
    qsort(items, item_count, sizeof *items, named_order);
    match_sorted(load, tensors, items, &list);
    if (list.count > 0)
        rc = err_set(ERR_CHECKPOINT,
                     "%.150s is of another model, %d mismatches: %s", load->dir,
                     list.count, list.text);
out:
    free(items);
    free(tensors);
    return rc;
}

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

/* All ranks: the next candidate. Only rank 0 reads the manifest. */
static enum err next_candidate(struct load *load)
{
    enum err rc = ERR_OK;
    bool first = comm_rank(load->comm) == 0;
    char *text = NULL;
    size_t bytes = 0;
    int64_t head[2] = { -1, 0 }; /* step, bytes of manifest */
    ckpt_manifest_destroy(load->manifest);
    load->manifest = NULL;
    if (first)
        rc = choose(load, &head[0], &text, &bytes);
    TRY(comm_agree(load->comm, rc));
    head[1] = (int64_t)bytes;
    TRY(comm_broadcast(load->comm, head, sizeof head, 0));
    if (head[1] == 0)
        goto out;
    if (!first) {
        bytes = (size_t)head[1];
        text = malloc(bytes);
        if (text == NULL)
            rc = err_set(ERR_MEMORY, "checkpoint manifest: out of memory");
    }
    TRY(comm_agree(load->comm, rc));
    TRY(comm_broadcast(load->comm, text, bytes, 0));
    rc = ckpt_index_path(load->dir, load->run_dir, head[0]);
    if (rc == ERR_OK)
        rc = ckpt_manifest_parse(text, bytes, load->dir, &load->manifest);
    TRY(comm_agree(load->comm, rc));
out:
    free(text);
    return rc;
}

static enum err read_payload(struct load *load)
{
    enum err rc = ERR_OK;
    struct ckpt_read *reader = NULL;
    TRY(ckpt_read_create(load->dir, load->manifest, &reader));
    TRY(ckpt_read_items(reader, load->items, load->item_of_tensor));
out:
    ckpt_read_destroy(reader);
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

static enum err load_loop(struct load *load, ckpt_accept_fn accept,
                          void *accept_arg)
{
    enum err rc = ERR_OK;
    bool first = comm_rank(load->comm) == 0;
    if (first)
        rc = load_list(load);
    TRY(comm_agree(load->comm, rc));
    for (;;) {
        TRY(next_candidate(load));
        if (load->manifest == NULL) {
            if (first)
                rc = nothing_good(load);
            TRY(comm_agree(load->comm, rc));
            break;
        }
        if (accept != NULL)
            rc =
                accept(accept_arg, load->manifest->step, load->manifest->state);
        TRY(comm_agree(load->comm, rc));
        TRY(comm_agree(load->comm, match(load)));
        rc = comm_agree(load->comm, read_payload(load));
        if (rc != ERR_CHECKPOINT)
            break;
        if (first)
            set_aside(load, load->manifest->step);
        rc = ERR_OK;
    }
out:
    return rc;
}

enum err ckpt_load_newest(struct comm *comm, const char *run_dir,
                          ckpt_accept_fn accept, void *accept_arg,
                          const struct ckpt_item *items, int item_count,
                          int64_t *step, json_t **state)
{
    struct load load = { .comm = comm,
                         .run_dir = run_dir,
                         .items = items,
                         .item_count = item_count };
    *step = -1;
    *state = NULL;
    enum err rc = load_loop(&load, accept, accept_arg);
    if (rc == ERR_OK && load.manifest != NULL) {
        *step = load.manifest->step;
        *state = json_incref(load.manifest->state);
    }
    free(load.steps);
    free(load.item_of_tensor);
    ckpt_manifest_destroy(load.manifest);
    return rc;
}
