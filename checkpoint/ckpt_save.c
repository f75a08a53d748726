/* The steps of a save to the run directory: checks, plan, temporary folder,
 * shard, manifest, commit. Their order, and what ranks agree on in between, is
 * ckpt_saver_order.c.
 *
 * A checkpoint is there or not, whenever the power fails: nothing is written
 * into a folder that a load would look at. Shards and manifest go into a folder
 * of another name, and the last thing that happens is one rename(2), which file
 * systems do whole or not at all. It means something only if all that it names
 * is on the disk by then; so each shard is synced by its rank and all ranks have
 * agreed before rank 0 writes the manifest, which lists them with their sums,
 * and that is synced before the rename. What may go wrong behind it (a hint, an
 * old step that stays) is a warning, for the step is safe. */
#include "checkpoint/ckpt_saver_private.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/files/ckpt_crash.h"
#include "checkpoint/files/ckpt_index.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "checkpoint/files/ckpt_shard.h"
#include "checkpoint/files/ckpt_view.h"
#include "src/base/digest.h"
#include "src/base/log.h"
#include "src/base/new.h"

/* The name can be a dataset's: printable ASCII without blanks, no empty and no "."
 * component, not one of the shard's own, not in a group of the view's. */
static enum err check_name(const char *name)
{
    for (const char *c = name; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~' || *c == '"' || *c == '\\')
            return err_set(ERR_INTERNAL,
                           "checkpoint: tensor name '%s' has characters other "
                           "than printable ASCII",
                           name);
    for (const char *part = name; part != NULL;) {
        size_t length = strcspn(part, "/");
        if (length == 0 || (length == 1 && *part == '.'))
            return err_set(ERR_INTERNAL,
                           "checkpoint: tensor name '%s' has an empty "
                           "component or a single dot",
                           name);
        part = part[length] == '/' ? part + length + 1 : NULL;
    }
    static const struct {
        const char *name;
        bool group; /* of the view: a tensor may be called so, in no group */
    } reserved[] = { { CKPT_HDF5_INDEX_NAME, false },
                     { CKPT_HDF5_CRC_NAME, false },
                     { CKPT_VIEW_WEIGHTS, true },
                     { CKPT_VIEW_CONFIG, true } };
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++) {
        size_t length = strlen(reserved[i].name);
        if (strncmp(name, reserved[i].name, length) == 0 &&
            ((name[length] == '\0' && !reserved[i].group) ||
             name[length] == '/'))
            return err_set(ERR_INTERNAL,
                           "checkpoint: the name '%s' is reserved",
                           reserved[i].name);
    }
    return ERR_OK;
}

static enum err check_unique(const struct ckpt_save *save)
{
    enum err rc = ERR_OK;
    size_t count = (size_t)save->item_count;
    struct ckpt_named *sorted = NULL;
    TRY(new_room(&sorted, count + 1));
    for (size_t i = 0; i < count; i++)
        sorted[i] = (struct ckpt_named){ save->items[i].name, (int)i };
    ckpt_named_sort(sorted, count);
    for (size_t i = 1; i < count && rc == ERR_OK; i++)
        if (strcmp(sorted[i - 1].name, sorted[i].name) == 0)
            rc = err_set(ERR_INTERNAL, "checkpoint: two tensors are named %s",
                         sorted[i].name);
    free(sorted);
    return rc;
}

enum err ckpt_save_check(const struct ckpt_save *save)
{
    if (strchr(save->attempt, '/') != NULL)
        return err_set(ERR_INTERNAL, "checkpoint: attempt '%s'", save->attempt);
    for (int i = 0; i < save->item_count; i++) {
        const struct ckpt_item *item = &save->items[i];
        int64_t elements;
        assert(memchr(item->name, '\0', sizeof item->name) != NULL);
        assert(item->dims >= 0 && item->dims <= CKPT_DIMS_MAX);
        TRY(check_name(item->name));
        TRY(ckpt_manifest_elements(item->dtype, item->dims, item->shape,
                                   &elements));
        /* Here it is the caller's mistake and not a damaged file. */
        if (ckpt_part_check(&item->part, item->dims, item->shape, "checkpoint",
                            item->name) != ERR_OK)
            return err_set(ERR_INTERNAL, "%s", err_text());
    }
    return check_unique(save);
}

/* A number that is the same on ranks with the same catalogue of tensors. */
static uint32_t catalogue_crc(const struct ckpt_save *save)
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

enum err ckpt_save_plan(struct ckpt_save *save, struct comm *comm)
{
    enum err rc = ERR_OK;
    int64_t *all = NULL;
    int64_t crc[2] = { catalogue_crc(save), -(int64_t)catalogue_crc(save) };
    assert(save->ranks == comm_size(comm) && save->rank == comm_rank(comm));
    assert(save->writers == 0 && save->bytes == 0); /* planned once */
    TRY_OUT(comm_agree(comm, new_zeroed(&all, (size_t)save->ranks)));
    for (int i = 0; i < save->item_count; i++)
        all[save->rank] +=
            ckpt_part_elements(&save->items[i].part, save->items[i].dims) *
            (int64_t)dtype_bytes(save->items[i].dtype);
    TRY_OUT(comm_gather_rows(comm, all, sizeof *all));
    TRY_OUT(comm_all_reduce_i64(comm, crc, 2, COMM_MAX));
    if (crc[0] != -crc[1])
        TRY_OUT(err_set(ERR_INTERNAL,
                        "checkpoint: the ranks list different tensors"));
    for (int r = 0; r < save->ranks; r++) {
        save->shard_of[r] = all[r] > 0 ? save->writers++ : -1;
        save->bytes += all[r];
    }
    int together = save->options.file_ranks;
    TRY_OUT(ckpt_group_create(comm, save->items, save->item_count, all,
                              together > 0 ? together : 1, save->file_of,
                              &save->files, &save->group));
    /* files have the numbers of their makers' order */
    for (int r = 0, next = 0; r < save->ranks; r++)
        if (save->file_of[r] == next) {
            save->makes[r] = true;
            next++;
        }
out:
    free(all);
    return rc;
}

enum err ckpt_save_begin(struct ckpt_saver *saver)
{
    struct ckpt_save *save = &saver->save;
    assert(save->rank == 0);
    ckpt_crash_point("begin", save->rank);
    TRY(ckpt_index_begin(save->run_dir, save->tmp, save->attempt));
    int files = save->files > 0 ? save->files : 1;
    return ckpt_shard_folder(save->tmp, "checkpoint", save->bytes,
                             (save->writers + files - 1) / files);
}

static struct ckpt_hdf5_identity identity_of(const struct ckpt_save *save)
{
    return (struct ckpt_hdf5_identity){ .step = save->step,
                                        .rank = save->rank,
                                        .ranks = save->ranks,
                                        .attempt = save->attempt };
}

_Static_assert(sizeof(struct ckpt_shard) % sizeof(int64_t) == 0 &&
                   sizeof(struct ckpt_extent) % sizeof(int64_t) == 0,
               "records lie one behind the other");

/* What was written, for rank 0; the shard is freed. */
static enum err keep_record(struct ckpt_save *save, enum err rc,
                            struct ckpt_shard *shard)
{
    size_t bytes = (size_t)shard->extent_count * sizeof *shard->extents;
    assert(save->record == NULL);
    if (rc == ERR_OK && bytes > 0)
        rc = new_room(&save->record, sizeof *shard + bytes);
    if (save->record != NULL) {
        save->record_bytes = sizeof *shard + bytes;
        memcpy(save->record, shard, sizeof *shard);
        memcpy(save->record + sizeof *shard, shard->extents, bytes);
    }
    ckpt_manifest_free_shard(shard);
    return rc;
}

enum err ckpt_save_write(struct ckpt_save *save)
{
    struct ckpt_shard shard = { 0 };
    char file[sizeof shard.file];
    struct ckpt_hdf5_identity identity = identity_of(save);
    int number = save->shard_of[save->rank];
    if (number < 0)
        return ERR_OK;
    ckpt_shard_name(number, save->writers, CKPT_SHARD_FOLDER_FILES, file);
    enum err rc = ckpt_shard_write(save->tmp, file, &identity, save->items,
                                   save->item_count, NULL, NULL, &shard);
    return keep_record(save, rc, &shard);
}

enum err ckpt_save_write_group(struct ckpt_saver *saver, enum err rc)
{
    struct ckpt_save *save = &saver->save;
    struct ckpt_shard shard = { 0 };
    char file[sizeof shard.file];
    struct ckpt_hdf5_identity identity = identity_of(save);
    int number = save->file_of[save->rank];
    if (number < 0)
        return rc;
    ckpt_shard_name(number, save->files, CKPT_SHARD_FOLDER_FILES, file);
    rc = ckpt_save_shared(saver, rc, file, &identity, &shard);
    return keep_record(save, rc, &shard);
}

enum err ckpt_save_manifest(const struct ckpt_save *save, char **text,
                            size_t *bytes)
{
    char *record = save->records;
    struct ckpt_shard *shards;
    int count = 0;
    struct ckpt_manifest_head head = { .step = save->step,
                                       .ranks = save->ranks,
                                       .attempt = save->attempt,
                                       .state = save->state,
                                       .items = save->items,
                                       .item_count = save->item_count };
    TRY(new_zeroed(&shards, (size_t)save->writers + 1));
    for (int r = 0; r < save->ranks; record += save->lengths[r], r++)
        if (save->lengths[r] > 0) {
            memcpy(&shards[count], record, sizeof *shards);
            shards[count++].extents = (void *)(record + sizeof *shards);
        }
    assert(count == (text != NULL ? save->writers : save->files));
    enum err rc = text != NULL
                      ? ckpt_manifest_format(&head, shards, count, text, bytes)
                      : ckpt_view_seal(save->tmp, &head, shards, count);
    free(shards);
    return rc;
}

void ckpt_save_tidy(struct ckpt_saver *saver)
{
    struct ckpt_save *save = &saver->save;
    char trash[FSIO_PATH_MAX];
    struct ckpt_retention retention = { .keep = save->options.keep,
                                        .keep_every = save->options.keep_every,
                                        .keep_best = save->options.keep_best,
                                        .known = &save->known };
    if (save->options.spared != NULL)
        retention.spare = save->options.spared(save->options.record_arg);
    ckpt_index_know(&save->known, save->step);
    if (ckpt_index_latest_write(save->run_dir, save->step) != ERR_OK)
        log_warn("LATEST is not up to date: %s", err_text());
    ckpt_crash_point("latest-written", save->rank);
    if (ckpt_index_prune(save->run_dir, &retention, save->step, trash) !=
        ERR_OK)
        log_warn("old checkpoints stay: %s", err_text());
    if (trash[0] != '\0')
        snprintf(saver->outcome.trash, sizeof saver->outcome.trash, "%s",
                 strrchr(trash, '/') + 1);
    ckpt_crash_point("pruned", save->rank);
}

enum err ckpt_save_commit(struct ckpt_saver *saver)
{
    struct ckpt_save *save = &saver->save;
    assert(save->rank == 0);
    ckpt_crash_point("records-gathered", save->rank);
    TRY(ckpt_save_manifest(save, NULL, NULL));
    ckpt_crash_point("manifest-written", save->rank);
    if (save->options.may_commit != NULL)
        TRY(save->options.may_commit(save->options.record_arg));
    return ckpt_index_commit(save->run_dir, save->step, save->tmp, true,
                             &save->known);
}

/* A step of another number of ranks has other names, and one that is not there is
 * no matter: rank 0 removes all that is left. A step that is a link is not gone
 * into. */
enum err ckpt_save_remove_file(struct ckpt_saver *saver)
{
    const struct ckpt_save *save = &saver->save;
    char file[CKPT_FILE_BYTES], path[FSIO_PATH_MAX];
    int fd = -1;
    if (saver->outcome.trash[0] != '\0' &&
        (save->makes[save->rank] || save->rank == 0) &&
        fsio_path(path, "%s/checkpoints/%s", save->run_dir,
                  saver->outcome.trash) == ERR_OK)
        fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && save->makes[save->rank]) {
        ckpt_shard_name(save->file_of[save->rank], save->files,
                        CKPT_SHARD_FOLDER_FILES, file);
        (void)unlinkat(fd, file, 0);
    }
    if (fd >= 0 && save->rank == 0) {
        (void)unlinkat(fd, CKPT_VIEW_FILE, 0);
        (void)unlinkat(fd, CKPT_MANIFEST_FILE, 0);
    }
    fsio_close(fd);
    ckpt_crash_point("file-removed", save->rank);
    return ERR_OK;
}

enum err ckpt_save_remove_rest(struct ckpt_saver *saver)
{
    char path[FSIO_PATH_MAX];
    if (saver->outcome.trash[0] != '\0' &&
        (fsio_path(path, "%s/checkpoints/%s", saver->save.run_dir,
                   saver->outcome.trash) != ERR_OK ||
         (rmdir(path) != 0 && fsio_remove_tree(path) != ERR_OK)))
        log_warn("an old checkpoint stays as trash: %s", err_text());
    return ERR_OK;
}

enum err ckpt_save_give_up(struct ckpt_saver *saver)
{
    const struct ckpt_save *save = &saver->save;
    if (ckpt_index_discard(save->run_dir, save->tmp) != ERR_OK)
        log_warn("unfinished checkpoint stays: %s", err_text());
    return ERR_OK;
}
