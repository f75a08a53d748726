/* The header of one safetensors file: read, and every number in it checked.
 *
 * A file is a header's length (8 bytes, little-endian), the header, a JSON
 * object, and the data. The header has for each tensor its dtype, shape and
 * data_offsets [begin, end) from the end of the header, and may have
 * "__metadata__", strings; blanks may follow it. Data is little-endian, rows
 * first (C order), without holes: a tensor begins where another ends, the last
 * ends with the file.
 *
 * A header may have 100 MB, all of it from anybody. It is taken apart member by
 * member (json_split_next()), and just one member at a time becomes a tree,
 * which is bounded. Products of shapes are formed with overflow noticed, an
 * empty side makes an empty tensor whatever the others say, and dtype, shape
 * and offsets must agree on the bytes. That there are no holes is seen by
 * sorting the tensors by their offsets. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/base/array.h"
#include "src/formats/safetensors/safetensors_impl.h"

static const struct {
    const char *name;
    int64_t bytes;
} dtypes[SAFETENSORS_DTYPES] = {
    [SAFETENSORS_BOOL] = { "BOOL", 1 },
    [SAFETENSORS_U8] = { "U8", 1 },
    [SAFETENSORS_I8] = { "I8", 1 },
    [SAFETENSORS_F8_E4M3] = { "F8_E4M3", 1 }, /* exponent 4 bits, fraction 3 */
    [SAFETENSORS_F8_E5M2] = { "F8_E5M2", 1 }, /* 5 and 2 */
    [SAFETENSORS_I16] = { "I16", 2 },
    [SAFETENSORS_U16] = { "U16", 2 },
    [SAFETENSORS_F16] = { "F16", 2 },   /* 5 and 10 */
    [SAFETENSORS_BF16] = { "BF16", 2 }, /* 8 and 7 */
    [SAFETENSORS_I32] = { "I32", 4 },
    [SAFETENSORS_U32] = { "U32", 4 },
    [SAFETENSORS_F32] = { "F32", 4 }, /* 8 and 23 */
    [SAFETENSORS_I64] = { "I64", 8 },
    [SAFETENSORS_U64] = { "U64", 8 },
    [SAFETENSORS_F64] = { "F64", 8 }, /* 11 and 52 */
};

const char *safetensors_dtype_name(enum safetensors_dtype dtype)
{
    return dtypes[dtype].name;
}

int64_t safetensors_dtype_bytes(enum safetensors_dtype dtype)
{
    return dtypes[dtype].bytes;
}

static enum err find_dtype(const json_t *value, enum safetensors_dtype *out)
{
    const char *name = json_string_value(value);
    if (name == NULL)
        return err_set(ERR_DATA, "dtype is no string");
    for (int i = 0; i < SAFETENSORS_DTYPES; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            *out = (enum safetensors_dtype)i;
            return ERR_OK;
        }
    }
    return err_set(ERR_UNSUPPORTED, "dtype '%.40s' is not known", name);
}

static enum err read_shape(const json_t *value, struct safetensors_tensor *out)
{
    if (!json_is_array(value))
        return err_set(ERR_DATA, "shape is no array");
    size_t dims = json_array_size(value);
    if (dims > SAFETENSORS_DIMS_MAX)
        return err_set(ERR_UNSUPPORTED, "shape has %zu sides, at most %d", dims,
                       SAFETENSORS_DIMS_MAX);
    out->dims = (int)dims;
    bool empty = false;
    for (size_t i = 0; i < dims; i++) {
        const json_t *side = json_array_get(value, i);
        if (!json_is_integer(side) || json_integer_value(side) < 0)
            return err_set(ERR_DATA, "shape[%zu] is no size", i);
        out->shape[i] = json_integer_value(side);
        empty = empty || out->shape[i] == 0;
    }
    out->numel = empty ? 0 : 1;
    for (int i = 0; i < out->dims && !empty; i++)
        if (__builtin_mul_overflow(out->numel, out->shape[i], &out->numel))
            return err_set(ERR_DATA, "shape has more elements than can be");
    if (__builtin_mul_overflow(out->numel, dtypes[out->dtype].bytes,
                               &out->bytes))
        return err_set(ERR_DATA, "shape has more bytes than can be");
    return ERR_OK;
}

/* room: bytes of data in the file. */
static enum err read_offsets(const json_t *value, int64_t room,
                             struct safetensors_tensor *out)
{
    json_int_t begin, end;
    if (json_unpack((json_t *)value, "[I, I!]", &begin, &end) != 0)
        return err_set(ERR_DATA, "data_offsets are not two whole numbers");
    if (begin < 0 || end < begin || end > room)
        return err_set(ERR_DATA,
                       "data_offsets [%lld, %lld] are not within the file's "
                       "%lld bytes of data: is it whole?",
                       begin, end, (long long)room);
    if (end - begin != out->bytes)
        return err_set(ERR_DATA,
                       "data_offsets have %lld bytes, dtype %s and shape have "
                       "%lld",
                       end - begin, dtypes[out->dtype].name,
                       (long long)out->bytes);
    out->offset = begin;
    return ERR_OK;
}

static enum err read_entry(const json_t *entry, int64_t room,
                           struct safetensors_tensor *out)
{
    if (!json_is_object(entry))
        return err_set(ERR_DATA, "no object");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)entry, key, value)
    {
        if (strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0 &&
            strcmp(key, "data_offsets") != 0)
            return err_set(ERR_DATA, "unknown key '%.60s'", key);
    }
    TRY(find_dtype(json_object_get(entry, "dtype"), &out->dtype));
    TRY(read_shape(json_object_get(entry, "shape"), out));
    return read_offsets(json_object_get(entry, "data_offsets"), room, out);
}

static enum err grow(struct safetensors *set)
{
    if (set->count < set->capacity)
        return ERR_OK;
    if (set->count == SAFETENSORS_TENSORS_MAX)
        return err_set(ERR_UNSUPPORTED, "more than %d tensors",
                       SAFETENSORS_TENSORS_MAX);
    return array_room(&set->list, &set->capacity, set->count + 1);
}

static enum err add_entry(struct safetensors *set, int file,
                          const struct json_member *member)
{
    enum err rc = ERR_OK;
    json_t *object = NULL;
    char *name = NULL;
    struct safetensors_shard *shard = &set->shards[file];
    struct safetensors_tensor tensor = { .file = file };
    TRY_OUT(grow(set));
    TRY_OUT(json_split_value(member, &object));
    const char *key = json_object_iter_key(json_object_iter(object));
    TRY_OUT(new_text(&name, key));
    rc = read_entry(json_object_get(object, key), shard->bytes - shard->data,
                    &tensor);
    TRY_OUT(err_prefix(rc, "tensor '%.200s'", key));
    tensor.name = name;
    /* from the file's beginning from here on */
    tensor.offset += shard->data;
    set->list[set->count++] = tensor;
    name = NULL;
out:
    free(name);
    json_decref(object);
    return rc;
}

/* Strings that nothing here depends on; they may be long. */
static enum err skip_metadata(const struct json_member *member)
{
    bool done = false;
    struct json_member string;
    struct json_split split =
        json_split_begin(member->value, member->value_bytes);
    while (!done) {
        TRY(err_prefix(json_split_next(&split, &string, &done),
                       "__metadata__"));
        if (!done && string.value[0] != '"')
            return err_set(ERR_DATA, "__metadata__ has what is no string");
    }
    return ERR_OK;
}

static enum err read_entries(struct safetensors *set, int file,
                             const char *text, size_t bytes)
{
    static const char metadata[] = "\"__metadata__\"";
    bool seen = false;
    struct json_split split = json_split_begin(text, bytes);
    for (;;) {
        bool done;
        struct json_member member;
        TRY(json_split_next(&split, &member, &done));
        if (done)
            return ERR_OK;
        if (member.key_bytes != sizeof metadata - 1 ||
            memcmp(member.key, metadata, sizeof metadata - 1) != 0) {
            TRY(add_entry(set, file, &member));
            continue;
        }
        if (seen)
            return err_set(ERR_DATA, "__metadata__ is there twice");
        seen = true;
        TRY(skip_metadata(&member));
    }
}

static int by_offset(const void *left, const void *right)
{
    const struct safetensors_tensor *a = left;
    const struct safetensors_tensor *b = right;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* One tensor after the other from the header to the end. */
static enum err check_places(const struct safetensors_shard *shard,
                             struct safetensors_tensor *list, int count)
{
    int64_t at = shard->data;
    if (count > 0)
        qsort(list, (size_t)count, sizeof list[0], by_offset);
    for (int i = 0; i < count; i++) {
        if (list[i].offset < at)
            return err_set(ERR_DATA, "tensors '%.150s' and '%.150s' overlap",
                           list[i - 1].name, list[i].name);
        if (list[i].offset > at)
            return err_set(ERR_DATA,
                           "%lld bytes before tensor '%.200s' belong to none",
                           (long long)(list[i].offset - at), list[i].name);
        at += list[i].bytes;
    }
    if (at != shard->bytes)
        return err_set(ERR_DATA, "%lld bytes at its end belong to no tensor",
                       (long long)(shard->bytes - at));
    return ERR_OK;
}

static enum err read_length(struct safetensors_shard *shard, uint64_t *bytes)
{
    unsigned char raw[8];
    if (shard->bytes < 8)
        return err_set(ERR_DATA,
                       "%s: %lld bytes: no safetensors file, which begins "
                       "with 8 bytes of length",
                       shard->path, (long long)shard->bytes);
    TRY(fsio_pread(shard->fd, raw, sizeof raw, 0, shard->path));
    /* little-endian, whatever this machine is */
    *bytes = 0;
    for (int i = 7; i >= 0; i--)
        *bytes = *bytes << 8 | raw[i];
    if (*bytes > SAFETENSORS_HEADER_MAX || *bytes > (uint64_t)shard->bytes - 8)
        return err_set(ERR_DATA,
                       "%s: a header of %llu bytes, but the file has %lld and "
                       "headers at most %d: cut off, or no safetensors file",
                       shard->path, (unsigned long long)*bytes,
                       (long long)shard->bytes, SAFETENSORS_HEADER_MAX);
    shard->data = 8 + (int64_t)*bytes;
    return ERR_OK;
}

enum err safetensors_header_read(struct safetensors *set, int file)
{
    assert(set != NULL && file >= 0);
    enum err rc = ERR_OK;
    struct safetensors_shard *shard = &set->shards[file];
    int first = set->count;
    uint64_t bytes = 0;
    char *text = NULL;
    TRY(read_length(shard, &bytes));
    TRY(new_room(&text, (size_t)bytes + 1));
    TRY_OUT(fsio_pread(shard->fd, text, (size_t)bytes, 8, shard->path));
    rc = read_entries(set, file, text, (size_t)bytes);
    if (rc == ERR_OK)
        rc = check_places(shard, set->list == NULL ? NULL : set->list + first,
                          set->count - first); /* there may be none */
    err_prefix(rc, "%s", shard->path);
out:
    free(text);
    return rc;
}
