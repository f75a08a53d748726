/* Saving: every rank writes its shard, rank 0 writes the manifest and commits.
 * Each stage ends in an agreement, so that all ranks go on or none. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/ckpt_crash.h"
#include "checkpoint/ckpt_index.h"
#include "checkpoint/ckpt_manifest.h"
#include "checkpoint/ckpt_shard.h"
#include "checkpoint/ckpt_view.h"
#include "src/base/clock.h"
#include "src/base/crc32c.h"
#include "src/base/fsio.h"
#include "src/base/log.h"

/* HDF5 metadata, the manifest and the file system's own needs. */
#define SPACE_EXTRA_BYTES ((int64_t)64 << 10)

struct save {
    struct comm *comm;
    const char *run_dir;
    int64_t step;
    const json_t *state;
    const struct ckpt_item *items;
    int item_count;
    const struct ckpt_options *options;
    int rank, ranks;
    int writer, writers; /* place among the ranks that write; -1: none */
    int64_t bytes;       /* payload of all ranks */
    char tmp[FSIO_PATH_MAX];
    struct ckpt_shard shard;
};

static int name_order(const void *a, const void *b)
{
    const struct ckpt_item *x = *(const struct ckpt_item *const *)a;
    const struct ckpt_item *y = *(const struct ckpt_item *const *)b;
    return strcmp(x->name, y->name);
}

static enum err check_unique(const struct save *save)
{
    enum err rc = ERR_OK;
    size_t count = (size_t)save->item_count;
    const struct ckpt_item **sorted = malloc((count + 1) * sizeof *sorted);
    if (sorted == NULL)
        return err_set(ERR_MEMORY, "checkpoint: out of memory");
    for (size_t i = 0; i < count; i++)
        sorted[i] = &save->items[i];
    qsort(sorted, count, sizeof *sorted, name_order);
    for (size_t i = 1; i < count && rc == ERR_OK; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            rc = err_set(ERR_INTERNAL, "checkpoint: two tensors are named %s",
                         sorted[i]->name);
    free(sorted);
    return rc;
}

static enum err check_items(const struct save *save)
{
    enum err rc = ERR_OK;
    if (save->step < 0 || strchr(save->options->attempt, '/') != NULL)
        return err_set(ERR_INTERNAL,
                       "checkpoint: step %" PRId64 ", attempt '%s'", save->step,
                       save->options->attempt);
    for (int i = 0; i < save->item_count; i++) {
        const struct ckpt_item *item = &save->items[i];
        int64_t elements;
        assert(memchr(item->name, '\0', sizeof item->name) != NULL);
        assert(item->dims >= 0 && item->dims <= CKPT_DIMS_MAX);
        TRY(ckpt_hdf5_check_name(item->name));
        TRY(ckpt_manifest_elements(item->dtype, item->dims, item->shape,
                                   &elements));
        if (ckpt_part_check(&item->part, item->dims, item->shape, "checkpoint",
                            item->name) != ERR_OK)
            return err_set(ERR_INTERNAL, "%s", err_text());
    }
    TRY(check_unique(save));
out:
    return rc;
}

/* A number that is the same on ranks with the same catalogue of tensors. */
static uint32_t catalogue_crc(const struct save *save)
{
    uint32_t crc = 0;
    for (int i = 0; i < save->item_count; i++) {
        const struct ckpt_item *item = &save->items[i];
        int32_t numbers[2] = { (int32_t)item->dtype, item->dims };
        crc = crc32c(crc, item->name, strlen(item->name) + 1);
        crc = crc32c(crc, numbers, sizeof numbers);
        crc = crc32c(crc, item->shape,
                     (size_t)item->dims * sizeof item->shape[0]);
    }
    return crc;
}

/* Who writes, and how much in all: known to everybody. */
static enum err plan(struct save *save)
{
    enum err rc = ERR_OK;
    size_t ranks = (size_t)save->ranks;
    int64_t *all = calloc(ranks + 2, sizeof *all);
    if (all == NULL)
        rc = err_set(ERR_MEMORY, "checkpoint: out of memory");
    TRY(comm_agree(save->comm, rc));
    for (int i = 0; i < save->item_count; i++)
        all[save->rank] +=
            ckpt_part_elements(&save->items[i].part, save->items[i].dims) *
            (int64_t)dtype_bytes(save->items[i].dtype);
    TRY(comm_all_reduce_i64(save->comm, all, ranks, COMM_SUM));
    int64_t *crc = all + ranks;
    crc[0] = catalogue_crc(save);
    crc[1] = -crc[0];
    TRY(comm_all_reduce_i64(save->comm, crc, 2, COMM_MAX));
    if (crc[0] != -crc[1]) {
        rc = err_set(ERR_INTERNAL,
                     "checkpoint: the ranks list different tensors");
        goto out;
    }
    save->writer = -1;
    for (int r = 0; r < save->ranks; r++) {
        if (r == save->rank && all[r] > 0)
            save->writer = save->writers;
        save->writers += all[r] > 0;
        save->bytes += all[r];
    }
out:
    free(all);
    return rc;
}

static enum err prepare(struct save *save)
{
    enum err rc = ERR_OK;
    uint64_t free_bytes;
    ckpt_crash_point("begin", save->rank);
    TRY(ckpt_index_begin(save->run_dir, save->tmp));
    ckpt_shard_stripe_hint(save->tmp);
    TRY(fsio_free_bytes(save->tmp, &free_bytes));
    uint64_t need = (uint64_t)(save->bytes + SPACE_EXTRA_BYTES);
    if (free_bytes < need)
        rc = err_set(ERR_SPACE,
                     "%s: checkpoint needs %" PRIu64 " bytes, %" PRIu64
                     " are free: make room",
                     save->run_dir, need, free_bytes);
    ckpt_crash_point("folder-made", save->rank);
out:
    return rc;
}

static enum err write_shard(struct save *save)
{
    char file[CKPT_FILE_BYTES];
    struct ckpt_hdf5_identity identity = { .step = save->step,
                                           .rank = save->rank,
                                           .ranks = save->ranks,
                                           .attempt = save->options->attempt };
    if (save->writer < 0)
        return ERR_OK;
    ckpt_shard_name(save->writer, save->writers, CKPT_SHARD_FOLDER_FILES, file);
    return ckpt_shard_write(save->tmp, file, &identity, save->items,
                            save->item_count, &save->shard);
}

/* Every rank's shard record, NUL-terminated, one behind the other; *all and
 * *sizes are malloc'ed, a rank without a shard has size 0. */
static enum err gather_records(struct save *save, char **all, size_t **sizes)
{
    enum err rc = ERR_OK;
    size_t ranks = (size_t)save->ranks;
    char *own = NULL;
    int64_t *lengths = calloc(ranks, sizeof *lengths);
    size_t *offsets = calloc(ranks, sizeof *offsets);
    *sizes = calloc(ranks, sizeof **sizes);
    if (lengths == NULL || offsets == NULL || *sizes == NULL)
        rc = err_set(ERR_MEMORY, "checkpoint: out of memory");
    if (rc == ERR_OK && save->writer >= 0)
        rc = ckpt_manifest_shard_text(&save->shard, &own);
    TRY(comm_agree(save->comm, rc));
    lengths[save->rank] = own == NULL ? 0 : (int64_t)strlen(own) + 1;
    TRY(comm_all_reduce_i64(save->comm, lengths, ranks, COMM_SUM));
    size_t total = 0;
    for (size_t r = 0; r < ranks; r++) {
        (*sizes)[r] = (size_t)lengths[r];
        offsets[r] = total;
        total += (*sizes)[r];
    }
    *all = malloc(total + 1);
    if (*all == NULL)
        rc = err_set(ERR_MEMORY, "checkpoint: out of memory");
    TRY(comm_agree(save->comm, rc));
    if (own != NULL)
        memcpy(*all + offsets[save->rank], own, (*sizes)[save->rank]);
    TRY(comm_all_gather(save->comm, *all, *sizes, offsets));
out:
    free(own);
    free(offsets);
    free(lengths);
    return rc;
}

static enum err write_manifest(const struct save *save, char *const *records)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes;
    struct ckpt_manifest *check = NULL;
    struct ckpt_manifest_head head = { .step = save->step,
                                       .ranks = save->ranks,
                                       .attempt = save->options->attempt,
                                       .state = save->state,
                                       .items = save->items,
                                       .item_count = save->item_count };
    TRY(fsio_path(path, "%s/%s", save->tmp, CKPT_MANIFEST_FILE));
    TRY(ckpt_manifest_format(&head, records, save->writers, &text, &bytes));
    /* What could not be loaded must not be committed; this also finds
     * elements that no rank or two ranks wrote. */
    TRY(ckpt_manifest_parse(text, bytes, path, &check));
    TRY(ckpt_manifest_check_sizes(check, save->tmp));
    TRY(ckpt_view_write(save->tmp, check, &head.view));
    free(text);
    TRY(ckpt_manifest_format(&head, records, save->writers, &text, &bytes));
    TRY(fsio_write_atomic(path, text, bytes));
out:
    ckpt_manifest_destroy(check);
    free(text);
    return rc;
}

/* Rank 0: manifest and commit. */
static enum err commit(const struct save *save, char *all, const size_t *sizes)
{
    enum err rc = ERR_OK;
    char **records = calloc((size_t)save->writers + 1, sizeof *records);
    if (records == NULL)
        return err_set(ERR_MEMORY, "checkpoint: out of memory");
    int count = 0;
    for (int r = 0; r < save->ranks; all += sizes[r], r++)
        if (sizes[r] > 0)
            records[count++] = all;
    assert(count == save->writers);
    TRY(write_manifest(save, records));
    ckpt_crash_point("manifest-written", save->rank);
    TRY(ckpt_index_commit(save->run_dir, save->step, save->tmp, true));
out:
    free(records);
    return rc;
}

/* Rank 0, after the commit: nothing here can make the save fail any more. */
static void tidy(const struct save *save)
{
    if (ckpt_index_latest_write(save->run_dir, save->step) != ERR_OK)
        log_warn("LATEST is not up to date: %s", err_text());
    ckpt_crash_point("latest-written", save->rank);
    if (ckpt_index_prune(save->run_dir, save->options->keep, save->step) !=
        ERR_OK)
        log_warn("old checkpoints stay: %s", err_text());
}

/* Rank 0, after a failure: hide and remove, keeping the first error's text. */
static void give_up(const struct save *save, enum err rc)
{
    char text[512];
    snprintf(text, sizeof text, "%s", err_text());
    if (ckpt_index_discard(save->run_dir, save->tmp) != ERR_OK)
        log_warn("unfinished checkpoint stays: %s", err_text());
    err_set(rc, "%s", text);
}

static enum err save_all(struct save *save)
{
    enum err rc = ERR_OK;
    char *records = NULL;
    size_t *sizes = NULL;
    TRY(comm_agree(save->comm, check_items(save)));
    TRY(plan(save));
    rc = ckpt_index_tmp_path(save->tmp, save->run_dir, save->step,
                             save->options->attempt);
    if (rc == ERR_OK && save->rank == 0)
        rc = prepare(save);
    TRY(comm_agree(save->comm, rc));
    TRY(comm_agree(save->comm, write_shard(save)));
    ckpt_crash_point("shards-agreed", save->rank);
    TRY(gather_records(save, &records, &sizes));
    if (save->rank == 0)
        rc = commit(save, records, sizes);
    TRY(comm_agree(save->comm, rc));
out:
    free(sizes);
    free(records);
    return rc;
}

enum err ckpt_save(struct comm *comm, const char *run_dir, int64_t step,
                   const json_t *state, const struct ckpt_item *items,
                   int item_count, const struct ckpt_options *options,
                   struct ckpt_result *result)
{
    double start_s = clock_now();
    struct save save = { .comm = comm,
                         .run_dir = run_dir,
                         .step = step,
                         .state = state,
                         .items = items,
                         .item_count = item_count,
                         .options = options,
                         .rank = comm_rank(comm),
                         .ranks = comm_size(comm) };
    enum err rc = save_all(&save);
    if (rc == ERR_OK && save.rank == 0)
        tidy(&save);
    if (rc != ERR_OK && save.rank == 0 && save.tmp[0] != '\0')
        give_up(&save, rc);
    ckpt_manifest_free_shard(&save.shard);
    if (rc == ERR_OK)
        ckpt_crash_point("done", save.rank);
    if (result != NULL)
        *result = (struct ckpt_result){ .bytes = save.bytes,
                                        .persist_s = clock_now() - start_s };
    return rc;
}
