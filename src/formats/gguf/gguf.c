/* GGUF files: values of keys, and pieces of tensors.
 *
 * All that a file says lies in its head, which gguf_head.c has read and checked
 * when a file is open; what is here only looks it up, so no bound is checked
 * again. Whole numbers come in eight kinds, and which one a writer chose means
 * nothing: whoever wants a number takes any that holds it. */
#include "src/formats/gguf/gguf.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/new.h"
#include "src/formats/gguf/gguf_impl.h"

static const struct {
    const char *name;
    size_t bytes;
} gguf_kinds[] = {
    [GGUF_U8] = { "uint8", 1 },      [GGUF_I8] = { "int8", 1 },
    [GGUF_U16] = { "uint16", 2 },    [GGUF_I16] = { "int16", 2 },
    [GGUF_U32] = { "uint32", 4 },    [GGUF_I32] = { "int32", 4 },
    [GGUF_F32] = { "float32", 4 },   [GGUF_BOOL] = { "bool", 1 },
    [GGUF_STRING] = { "string", 0 }, [GGUF_ARRAY] = { "array", 0 },
    [GGUF_U64] = { "uint64", 8 },    [GGUF_I64] = { "int64", 8 },
    [GGUF_F64] = { "float64", 8 },
};

size_t gguf_kind_bytes(enum gguf_kind kind)
{
    assert(kind < GGUF_KINDS);
    return gguf_kinds[kind].bytes;
}

static const char *gguf_kind_name(enum gguf_kind kind)
{
    assert(kind < GGUF_KINDS);
    return gguf_kinds[kind].name;
}

enum err gguf_open(const char *path, struct gguf **out)
{
    assert(path != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct stat status;
    struct gguf *gguf = NULL;
    TRY(new_zeroed(&gguf, 1));
    gguf->fd = -1;
    TRY_OUT(fsio_path(gguf->path, "%s", path));
    /* a pipe is refused below, and is not waited for */
    gguf->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (gguf->fd < 0 && errno == ENOENT)
        TRY_OUT(err_set(ERR_DATA, "%s: no such file", path));
    if (gguf->fd < 0 || fstat(gguf->fd, &status) != 0)
        TRY_OUT(err_errno("%s", path));
    if (!S_ISREG(status.st_mode))
        TRY_OUT(err_set(ERR_DATA, "%s: not a file", path));
    gguf->file_bytes = (uint64_t)status.st_size;
    TRY_OUT(gguf_head_read(gguf));
out:
    return new_or_none(rc, gguf, out, gguf_close);
}

void gguf_close(struct gguf *gguf)
{
    if (gguf == NULL)
        return;
    fsio_close(gguf->fd);
    gguf_head_release(gguf);
    free(gguf);
}

const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key)
{
    const struct gguf_key *found =
        gguf_head_find((const void *const *)gguf->key_order, gguf->keys, key);
    return found != NULL ? &found->value : NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf,
                                           const char *name)
{
    return gguf_head_find((const void *const *)gguf->tensor_order,
                          gguf->tensors, name);
}

bool gguf_value_whole(const struct gguf_value *value, int64_t *out)
{
    uint64_t bits = 0;
    size_t bytes = gguf_kind_bytes(value->kind);
    bool sign = value->kind == GGUF_I8 || value->kind == GGUF_I16 ||
                value->kind == GGUF_I32 || value->kind == GGUF_I64;
    if (bytes == 0 || value->kind == GGUF_F32 || value->kind == GGUF_F64 ||
        value->kind == GGUF_BOOL)
        return false;
    memcpy(&bits, value->data, bytes);
    /* extend the sign of a shorter number */
    if (sign && bytes < sizeof bits && (bits >> (8 * bytes - 1)) != 0)
        bits |= UINT64_MAX << 8 * bytes;
    if (!sign && bits > INT64_MAX)
        return false;
    *out = (int64_t)bits;
    return true;
}

static enum err gguf_wrong(const struct gguf *gguf, const char *key,
                           const char *wanted)
{
    const struct gguf_value *value = gguf_find(gguf, key);
    if (value == NULL)
        return err_set(ERR_DATA, "%s: it has no key '%s'", gguf->path, key);
    return err_set(ERR_DATA, "%s: key '%s' is %s%s, not %s", gguf->path, key,
                   gguf_kind_name(value->kind),
                   value->kind == GGUF_ARRAY ? "" : " (or out of range)",
                   wanted);
}

enum err gguf_get_count(const struct gguf *gguf, const char *key, uint64_t *out)
{
    const struct gguf_value *value = gguf_find(gguf, key);
    int64_t whole = 0;
    if (value == NULL || !gguf_value_whole(value, &whole) || whole < 0)
        return gguf_wrong(gguf, key, "a whole number from 0 on");
    *out = (uint64_t)whole;
    return ERR_OK;
}

enum err gguf_get_real(const struct gguf *gguf, const char *key, double *out)
{
    const struct gguf_value *value = gguf_find(gguf, key);
    int64_t whole = 0;
    float single = 0;
    /* any kind of number: writers differ */
    if (value == NULL)
        return gguf_wrong(gguf, key, "");
    if (value->kind == GGUF_F32) {
        memcpy(&single, value->data, sizeof single);
        *out = single;
    } else if (value->kind == GGUF_F64) {
        memcpy(out, value->data, sizeof *out);
    } else if (gguf_value_whole(value, &whole)) {
        *out = (double)whole;
    } else {
        return gguf_wrong(gguf, key, "a number");
    }
    return ERR_OK;
}

enum err gguf_get_bool(const struct gguf *gguf, const char *key, bool *out)
{
    const struct gguf_value *value = gguf_find(gguf, key);
    if (value == NULL || value->kind != GGUF_BOOL)
        return gguf_wrong(gguf, key, "a bool");
    *out = *value->data != 0;
    return ERR_OK;
}

enum err gguf_get_string(const struct gguf *gguf, const char *key,
                         const char **out, size_t *bytes)
{
    const struct gguf_value *value = gguf_find(gguf, key);
    if (value == NULL || value->kind != GGUF_STRING)
        return gguf_wrong(gguf, key, "a string");
    *out = (const char *)value->data;
    *bytes = (size_t)value->count;
    return ERR_OK;
}

enum err gguf_get_array(const struct gguf *gguf, const char *key,
                        enum gguf_kind item, struct gguf_value *out)
{
    const struct gguf_value *value = gguf_find(gguf, key);
    if (value == NULL || value->kind != GGUF_ARRAY)
        return gguf_wrong(gguf, key, "an array");
    if (value->item != item)
        return err_set(ERR_DATA, "%s: key '%s' is an array of %s, not of %s",
                       gguf->path, key, gguf_kind_name(value->item),
                       gguf_kind_name(item));
    *out = *value;
    return ERR_OK;
}

bool gguf_value_next(struct gguf_value *array, struct gguf_value *item)
{
    assert(array->kind == GGUF_ARRAY);
    if (array->count == 0)
        return false;
    const uint8_t *at = array->data;
    *item = (struct gguf_value){ array->item, array->item, at, 1 };
    if (array->item == GGUF_STRING) {
        memcpy(&item->count, at, 8);
        item->data = at + 8;
        at = item->data + item->count;
    } else if (array->item == GGUF_ARRAY) {
        uint32_t kind = 0;
        memcpy(&kind, at, 4);
        memcpy(&item->count, at + 4, 8);
        item->item = (enum gguf_kind)kind;
        item->data = at + 12;
        /* items have no length of their own: it ends where its last item does
         */
        struct gguf_value inner = *item, skipped;
        while (gguf_value_next(&inner, &skipped))
            continue;
        at = inner.data;
    } else {
        at += gguf_kind_bytes(array->item);
    }
    array->data = at;
    array->count--;
    return true;
}

enum err gguf_read_floats(const struct gguf *gguf,
                          const struct gguf_tensor *tensor, uint64_t first,
                          size_t count, void *scratch, float *out)
{
    size_t bytes = gguf_blocks_layout(tensor->type)->bytes;
    assert(first <= tensor->blocks && count <= tensor->blocks - first);
    TRY(fsio_pread(gguf->fd, scratch, count * bytes,
                   (int64_t)(tensor->offset + first * bytes), gguf->path));
    gguf_blocks_read(tensor->type, scratch, count, out);
    return ERR_OK;
}

/* Pair p of a head is rows 2p and 2p + 1 in the one order, p and p + head_dim /
 * 2 in the other. */
uint64_t gguf_row_to_halves(uint64_t row, uint64_t head_dim)
{
    uint64_t in = row % head_dim;
    assert(head_dim % 2 == 0);
    return row - in + in % 2 * (head_dim / 2) + in / 2;
}

uint64_t gguf_row_to_pairs(uint64_t row, uint64_t head_dim)
{
    uint64_t in = row % head_dim, half = head_dim / 2;
    assert(head_dim % 2 == 0);
    return row - in + in % half * 2 + in / half;
}
