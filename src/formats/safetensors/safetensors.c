/* Opens a file or a folder of safetensors and reads from it. Files stay open,
 * so that reading needs no state and several threads may read at once.
 *
 * The tensors of all files are one list, sorted by name. A folder's index and
 * its files say the same thing twice, so both are read, and each tensor has to
 * be where the index says: an index of another version of the model would pass
 * otherwise. */
#include "src/formats/safetensors/safetensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/new.h"
#include "src/base/regular.h"
#include "src/formats/safetensors/half.h"
#include "src/formats/safetensors/safetensors_impl.h"

#define CHUNK 8192 /* elements that are converted at a time */

static int by_name(const void *left, const void *right)
{
    const struct safetensors_tensor *a = left;
    const struct safetensors_tensor *b = right;
    return strcmp(a->name, b->name);
}

static enum err open_shard(struct safetensors_shard *shard)
{
    const char *slash = strrchr(shard->path, '/');
    shard->name = slash == NULL ? shard->path : slash + 1;
    return regular_open(shard->path, &shard->fd, &shard->bytes);
}

static enum err add_shards(struct safetensors *set, int count)
{
    TRY(new_zeroed(&set->shards, (size_t)count));
    set->shard_count = count;
    for (int i = 0; i < count; i++)
        set->shards[i].fd = -1;
    return ERR_OK;
}

static enum err read_shards(struct safetensors *set)
{
    for (int i = 0; i < set->shard_count; i++) {
        TRY(open_shard(&set->shards[i]));
        TRY(safetensors_header_read(set, i));
    }
    if (set->count == 0)
        return err_set(ERR_DATA, "%s: no tensors", set->shards[0].path);
    qsort(set->list, (size_t)set->count, sizeof set->list[0], by_name);
    /* sorted, so those of one name are neighbours */
    for (int i = 1; i < set->count; i++) {
        const struct safetensors_tensor *a = &set->list[i - 1];
        const struct safetensors_tensor *b = &set->list[i];
        if (strcmp(a->name, b->name) == 0)
            return err_set(ERR_DATA, "%s: tensor '%.200s' is there twice%s%s",
                           set->shards[a->file].path, a->name,
                           a->file == b->file ? "" : ", also in ",
                           a->file == b->file ? "" : set->shards[b->file].name);
    }
    return ERR_OK;
}

/* Every file that is missing, not the first one only. */
static enum err check_missing(const struct safetensors *set, const char *index)
{
    char names[ERR_TEXT_BYTES / 2] = "";
    size_t used = 0;
    int missing = 0;
    for (int i = 0; i < set->shard_count; i++) {
        const char *path = set->shards[i].path;
        if (fsio_exists(path))
            continue;
        const char *name = strrchr(path, '/') + 1;
        size_t bytes = strlen(name);
        missing++;
        if (used + bytes + 2 > sizeof names)
            continue;
        names[used++] = ' ';
        memcpy(names + used, name, bytes + 1);
        used += bytes;
    }
    if (missing > 0)
        return err_set(ERR_DATA, "%s: %d of its %d files are missing:%s", index,
                       missing, set->shard_count, names);
    return ERR_OK;
}

static enum err open_sharded(struct safetensors *set, const char *folder)
{
    enum err rc = ERR_OK;
    struct safetensors_index index = { .text = NULL };
    TRY_OUT(fsio_path(index.path, "%s/%s", folder, SAFETENSORS_INDEX));
    TRY_OUT(safetensors_index_read(&index));
    TRY_OUT(add_shards(set, index.name_count));
    for (int i = 0; i < index.name_count; i++)
        TRY_OUT(
            fsio_path(set->shards[i].path, "%s/%s", folder, index.names[i]));
    TRY_OUT(check_missing(set, index.path));
    TRY_OUT(read_shards(set));
    TRY_OUT(safetensors_index_check(&index, set));
out:
    safetensors_index_free(&index);
    return rc;
}

static enum err open_folder(struct safetensors *set, const char *folder)
{
    char file[FSIO_PATH_MAX];
    char index[FSIO_PATH_MAX];
    TRY(fsio_path(file, "%s/%s", folder, SAFETENSORS_FILE));
    TRY(fsio_path(index, "%s/%s", folder, SAFETENSORS_INDEX));
    if (fsio_exists(index)) {
        /* two models, or a leftover: to choose one would be to guess */
        if (fsio_exists(file))
            return err_set(ERR_DATA,
                           "%s has %s and %s: which is the model? Remove one",
                           folder, SAFETENSORS_FILE, SAFETENSORS_INDEX);
        return open_sharded(set, folder);
    }
    if (!fsio_exists(file))
        return err_set(ERR_DATA, "%s has neither %s nor %s", folder,
                       SAFETENSORS_FILE, SAFETENSORS_INDEX);
    TRY(add_shards(set, 1));
    TRY(fsio_path(set->shards[0].path, "%s", file));
    return read_shards(set);
}

static enum err open_path(struct safetensors *set, const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return err_errno("%s", path);
    if (S_ISDIR(status.st_mode))
        return open_folder(set, path);
    TRY(add_shards(set, 1));
    TRY(fsio_path(set->shards[0].path, "%s", path));
    return read_shards(set);
}

enum err safetensors_open(const char *path, struct safetensors **out)
{
    assert(path != NULL && out != NULL);
    struct safetensors *set = NULL;
    TRY(new_zeroed(&set, 1));
    enum err rc = open_path(set, path);
    if (rc != ERR_OK) {
        safetensors_close(set);
        return rc;
    }
    *out = set;
    return ERR_OK;
}

void safetensors_close(struct safetensors *set)
{
    if (set == NULL)
        return;
    for (int i = 0; i < set->shard_count; i++)
        if (set->shards[i].fd >= 0)
            close(set->shards[i].fd);
    for (int i = 0; i < set->count; i++)
        free((char *)set->list[i].name);
    free(set->shards);
    free(set->list);
    free(set);
}

int safetensors_count(const struct safetensors *set)
{
    return set->count;
}

const struct safetensors_tensor *
safetensors_tensor(const struct safetensors *set, int index)
{
    assert(index >= 0 && index < set->count);
    return &set->list[index];
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *set,
                                                  const char *name)
{
    struct safetensors_tensor key = { .name = name };
    return bsearch(&key, set->list, (size_t)set->count, sizeof set->list[0],
                   by_name);
}

enum err safetensors_read(const struct safetensors *set,
                          const struct safetensors_tensor *tensor,
                          int64_t first, int64_t count, void *out)
{
    assert(first >= 0 && count >= 0 && first <= tensor->numel - count);
    const struct safetensors_shard *shard = &set->shards[tensor->file];
    int64_t bytes = safetensors_dtype_bytes(tensor->dtype);
    return fsio_pread(shard->fd, out, (size_t)(count * bytes),
                      tensor->offset + first * bytes, shard->path);
}

static enum err read_halves(const struct safetensors *set,
                            const struct safetensors_tensor *tensor,
                            int64_t first, int64_t count, float *out)
{
    uint16_t chunk[CHUNK];
    bool is_bf16 = tensor->dtype == SAFETENSORS_BF16;
    while (count > 0) {
        int64_t n = count < CHUNK ? count : CHUNK;
        TRY(safetensors_read(set, tensor, first, n, chunk));
        for (int64_t i = 0; i < n; i++)
            out[i] =
                is_bf16 ? half_from_bf16(chunk[i]) : half_from_f16(chunk[i]);
        first += n;
        count -= n;
        out += n;
    }
    return ERR_OK;
}

enum err safetensors_read_f32(const struct safetensors *set,
                              const struct safetensors_tensor *tensor,
                              int64_t first, int64_t count, float *out)
{
    if (tensor->dtype == SAFETENSORS_F32)
        return safetensors_read(set, tensor, first, count, out);
    if (tensor->dtype == SAFETENSORS_F16 || tensor->dtype == SAFETENSORS_BF16)
        return read_halves(set, tensor, first, count, out);
    return err_set(ERR_UNSUPPORTED,
                   "%s: tensor '%.200s' is of %s; weights are of F32, F16 or "
                   "BF16",
                   set->shards[tensor->file].path, tensor->name,
                   safetensors_dtype_name(tensor->dtype));
}
