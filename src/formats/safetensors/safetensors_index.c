/* model.safetensors.index.json: which tensor is in which file.
 *
 * Its weight_map is walked over twice: first for the names of the files, which
 * have to be opened before anything can be compared, then to compare each entry
 * with the tensors that were found in them. Neither keeps the map as a tree,
 * which may have a million entries. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/formats/safetensors/safetensors_impl.h"

static bool key_is(const struct json_member *member, const char *name)
{
    size_t bytes = strlen(name);
    return member->key_bytes == bytes + 2 &&
           memcmp(member->key + 1, name, bytes) == 0;
}

/* The text of weight_map. */
static enum err find_map(const struct safetensors_index *index,
                         struct json_member *out)
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

static enum err visit_all(const struct safetensors_index *index, visit *call,
                          void *arg)
{
    struct json_member map = { .value = NULL };
    TRY(find_map(index, &map));
    struct json_split split = json_split_begin(map.value, map.value_bytes);
    for (;;) {
        bool done;
        struct json_member member;
        enum err rc = json_split_next(&split, &member, &done);
        if (rc != ERR_OK)
            return err_prefix(rc, "weight_map");
        if (done)
            return ERR_OK;
        TRY(visit_entry(&member, call, arg));
    }
}

static enum err collect(void *arg, const char *tensor, const char *file)
{
    struct safetensors_index *index = arg;
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

enum err safetensors_index_read(struct safetensors_index *index)
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

void safetensors_index_free(struct safetensors_index *index)
{
    for (int i = 0; i < index->name_count; i++)
        free(index->names[i]);
    free(index->names);
    free(index->text);
}

struct check {
    const struct safetensors *set;
    bool *listed;
};

static enum err check_entry(void *arg, const char *tensor, const char *file)
{
    struct check *check = arg;
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

enum err safetensors_index_check(const struct safetensors_index *index,
                                 const struct safetensors *set)
{
    assert(index != NULL && set != NULL);
    struct check check = { .set = set };
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
