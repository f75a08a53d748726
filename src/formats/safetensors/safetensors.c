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

#include "src/base/jsontext.h"
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

/* --- model.safetensors.index.json: which tensor is in which file --- */

/* Its weight_map is walked over twice: first for the names of the files, which
 * have to be opened before anything can be compared, then to compare each entry
 * with the tensors that were found in them. Neither keeps the map as a tree,
 * which may have a million entries. */
struct index {
    char path[FSIO_PATH_MAX];
    char *text;
    size_t bytes;
    char **names; /* of its files, sorted */
    int name_count;
};

static bool key_is(const struct json_member *member, const char *name)
{
    size_t bytes = strlen(name);
    return member->key_bytes == bytes + 2 &&
           memcmp(member->key + 1, name, bytes) == 0;
}

/* The text of weight_map. */
static enum err find_map(const struct index *index, struct json_member *out)
{
    bool done = false;
    struct json_member member;
    struct json_split split = json_split_begin(index->text, index->bytes);
    out->value = NULL;
    while (true) {
        TRY(json_split_next(&split, &member, &done));
        if (done)
            break;
        if (key_is(&member, "metadata"))
            continue;
        if (!key_is(&member, "weight_map"))
            return err_set(ERR_DATA, "%.*s: unknown key",
                           member.key_bytes < 100 ? (int)member.key_bytes : 100,
                           member.key);
        if (out->value != NULL)
            return err_set(ERR_DATA, "weight_map is there twice");
        *out = member;
    }
    if (out->value == NULL)
        return err_set(ERR_DATA, "no weight_map");
    return ERR_OK;
}

/* A name in the same folder, whatever the file wishes. */
static bool is_plain(const char *name)
{
    size_t bytes = strlen(name);
    static const char end[] = ".safetensors";
    return bytes > sizeof end - 1 && bytes < 256 && name[0] != '.' &&
           strchr(name, '/') == NULL &&
           strcmp(name + bytes - (sizeof end - 1), end) == 0;
}

/* Each entry of weight_map: the object has one key, the tensor, and its value
 * is the file. */
typedef enum err visit(void *arg, const char *tensor, const char *file);

static enum err visit_entry(const struct json_member *member, visit *call,
                            void *arg)
{
    json_t *object;
    TRY(json_split_value(member, &object));
    const char *tensor = json_object_iter_key(json_object_iter(object));
    const char *file = json_string_value(json_object_get(object, tensor));
    enum err rc = ERR_OK;
    if (file == NULL || !is_plain(file))
        rc = err_set(ERR_DATA,
                     "tensor '%.200s': '%.100s' is no NAME.safetensors in this "
                     "folder",
                     tensor, file == NULL ? "?" : file);
    else
        rc = call(arg, tensor, file);
    json_decref(object);
    return rc;
}

static enum err visit_all(const struct index *index, visit *call, void *arg)
{
    struct json_member map = { .value = NULL };
    TRY(find_map(index, &map));
    struct json_split split = json_split_begin(map.value, map.value_bytes);
    for (;;) {
        bool done;
        struct json_member member;
        TRY(err_prefix(json_split_next(&split, &member, &done), "weight_map"));
        if (done)
            return ERR_OK;
        TRY(visit_entry(&member, call, arg));
    }
}

static enum err collect(void *arg, const char *tensor, const char *file)
{
    struct index *index = arg;
    /* few files and many entries: a sorted list that each looks into */
    int low = 0;
    int high = index->name_count;
    while (low < high) {
        int middle = (low + high) / 2;
        int order = strcmp(index->names[middle], file);
        if (order == 0)
            return ERR_OK;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (index->name_count == SAFETENSORS_SHARDS_MAX)
        return err_set(ERR_UNSUPPORTED, "tensor '%.200s': more than %d files",
                       tensor, SAFETENSORS_SHARDS_MAX);
    char *copy = NULL;
    TRY(new_text(&copy, file));
    memmove(index->names + low + 1, index->names + low,
            (size_t)(index->name_count - low) * sizeof index->names[0]);
    index->names[low] = copy;
    index->name_count++;
    return ERR_OK;
}

static enum err index_read(struct index *index)
{
    assert(index != NULL);
    TRY(fsio_read_file(index->path, SAFETENSORS_HEADER_MAX, &index->text,
                       &index->bytes));
    TRY(new_zeroed(&index->names, SAFETENSORS_SHARDS_MAX));
    enum err rc = visit_all(index, collect, index);
    if (rc == ERR_OK && index->name_count == 0)
        rc = err_set(ERR_DATA, "weight_map is empty");
    return rc == ERR_OK ? ERR_OK : err_prefix(rc, "%s", index->path);
}

struct index_check {
    const struct safetensors *set;
    bool *listed;
};

static enum err check_entry(void *arg, const char *tensor, const char *file)
{
    struct index_check *check = arg;
    const struct safetensors_tensor *found =
        safetensors_find(check->set, tensor);
    if (found == NULL)
        return err_set(ERR_DATA, "tensor '%.200s' is not in %.200s", tensor,
                       file);
    const char *name = check->set->shards[found->file].name;
    if (strcmp(name, file) != 0)
        return err_set(ERR_DATA,
                       "tensor '%.200s' is in %.100s, not in %.100s as "
                       "weight_map says",
                       tensor, name, file);
    bool *listed = &check->listed[found - check->set->list];
    if (*listed)
        return err_set(ERR_DATA, "weight_map has '%.200s' twice", tensor);
    *listed = true;
    return ERR_OK;
}

/* The index has each tensor of the set once, where it is, and no others. */
static enum err index_compare(const struct index *index,
                              const struct safetensors *set)
{
    assert(index != NULL && set != NULL);
    struct index_check check = { .set = set };
    TRY(new_zeroed(&check.listed, (size_t)set->count));
    enum err rc = visit_all(index, check_entry, &check);
    for (int i = 0; i < set->count && rc == ERR_OK; i++)
        if (!check.listed[i])
            rc = err_set(
                ERR_DATA, "weight_map lacks tensor '%.200s', which %.200s has",
                set->list[i].name, set->shards[set->list[i].file].name);
    free(check.listed);
    return rc == ERR_OK ? ERR_OK : err_prefix(rc, "%s", index->path);
}

/* --- opening --- */

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
    struct index index = { .text = NULL };
    TRY_OUT(fsio_path(index.path, "%s/%s", folder, SAFETENSORS_INDEX));
    TRY_OUT(index_read(&index));
    TRY_OUT(add_shards(set, index.name_count));
    for (int i = 0; i < index.name_count; i++)
        TRY_OUT(
            fsio_path(set->shards[i].path, "%s/%s", folder, index.names[i]));
    TRY_OUT(check_missing(set, index.path));
    TRY_OUT(read_shards(set));
    TRY_OUT(index_compare(&index, set));
out:
    for (int i = 0; i < index.name_count; i++)
        free(index.names[i]);
    free(index.names);
    free(index.text);
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
    return new_or_none(rc, set, out, safetensors_close);
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
