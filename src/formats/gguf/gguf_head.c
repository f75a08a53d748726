/* The head of a GGUF file. Memory for it is as large as the file at most, and
 * is only touched as far as the head goes.
 *
 *   "GGUF", u32 version, u64 tensors, u64 keys
 *   of each key      STRING name, u32 kind, value
 *   of each tensor   STRING name, u32 dims, u64 dim[dims], u32 type, u64 offset
 *   zeros up to a multiple of the alignment, which is itself a key
 *   the tensors' data, each at its offset from here
 *   STRING: u64 bytes, the bytes. An array: u32 kind, u64 count, the items
 *
 * Nothing in it tells its own length: it can only be walked through. So it is
 * read into one piece of memory, a MiB ahead of the walk, and what is found is
 * pointed at there. Every number is compared with what the file has left before
 * it is used, and a count with the fewest bytes that so many things would take;
 * then a file of any bytes costs no more than its own size. */
#include "src/formats/gguf/gguf_impl.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/new.h"

#define HEAD_PIECE ((size_t)1 << 20) /* bytes that are read at once */
#define HEAD_COUNT_MAX (1 << 20)     /* of keys, and of tensors */
/* the fewest bytes that one takes: a name of one byte, and the rest */
#define HEAD_KEY_BYTES (8 + 1 + 4 + 1)
#define HEAD_TENSOR_BYTES (8 + 1 + 4 + 4 + 8)

void gguf_head_release(struct gguf *gguf)
{
    free(gguf->data);
    free(gguf->key);
    free(gguf->tensor);
    free(gguf->key_order);
    free(gguf->tensor_order);
}

/* The next bytes, all at once; NULL with an error set: there are not so many.
 */
static enum err head_take(struct gguf *gguf, uint64_t bytes, const char *what,
                          uint8_t **out)
{
    if (bytes > gguf->capacity - gguf->at) {
        if (gguf->capacity < gguf->file_bytes)
            return err_set(ERR_DATA,
                           "%s: byte %zu: %s: keys and names of more than "
                           "%zu bytes can't be read",
                           gguf->path, gguf->at, what, gguf->capacity);
        return err_set(ERR_DATA,
                       "%s: byte %zu: %s wants %" PRIu64
                       " bytes, but the file has %zu more: truncated or not "
                       "valid",
                       gguf->path, gguf->at, what, bytes,
                       gguf->capacity - gguf->at);
    }
    size_t end = gguf->at + (size_t)bytes;
    if (end > gguf->read) {
        size_t piece = end - gguf->read;
        if (piece < HEAD_PIECE)
            piece = HEAD_PIECE;
        if (piece > gguf->capacity - gguf->read)
            piece = gguf->capacity - gguf->read;
        TRY(fsio_pread(gguf->fd, gguf->data + gguf->read, piece,
                       (int64_t)gguf->read, gguf->path));
        gguf->read += piece;
    }
    *out = gguf->data + gguf->at;
    gguf->at = end;
    return ERR_OK;
}

static enum err head_number(struct gguf *gguf, const char *what, void *out,
                            size_t bytes)
{
    uint8_t *at = NULL;
    TRY(head_take(gguf, bytes, what, &at));
    memcpy(out, at, bytes);
    return ERR_OK;
}

/* A name, which is moved onto its length by one byte to make room for the NUL
 * behind it. */
static enum err head_name(struct gguf *gguf, const char *what, const char **out)
{
    uint64_t bytes = 0;
    uint8_t *at = NULL;
    size_t place = gguf->at;
    TRY(head_number(gguf, what, &bytes, sizeof bytes));
    if (bytes == 0 || bytes > GGUF_NAME_BYTES_MAX)
        return err_set(ERR_DATA,
                       "%s: byte %zu: %s has %" PRIu64 " bytes, not 1 to %d",
                       gguf->path, place, what, bytes, GGUF_NAME_BYTES_MAX);
    TRY(head_take(gguf, bytes, what, &at));
    if (memchr(at, '\0', (size_t)bytes) != NULL)
        return err_set(ERR_DATA, "%s: byte %zu: %s has a NUL in it", gguf->path,
                       place, what);
    memmove(at - 1, at, (size_t)bytes);
    at[bytes - 1] = '\0';
    *out = (const char *)at - 1;
    return ERR_OK;
}

static enum err head_kind(struct gguf *gguf, const char *name,
                          enum gguf_kind *out)
{
    uint32_t kind = 0;
    size_t place = gguf->at;
    TRY(head_number(gguf, "a kind", &kind, sizeof kind));
    if (kind >= GGUF_KINDS)
        return err_set(ERR_DATA, "%s: byte %zu: key '%s': there is no kind %u",
                       gguf->path, place, name, kind);
    *out = (enum gguf_kind)kind;
    return ERR_OK;
}

static enum err head_value(struct gguf *gguf, const char *name, int depth,
                           struct gguf_value *value);

/* The items of an array, of which `value` has kind and count. */
static enum err head_items(struct gguf *gguf, const char *name, int depth,
                           struct gguf_value *value)
{
    size_t bytes = gguf_kind_bytes(value->item), place = gguf->at;
    uint8_t *at = NULL;
    uint64_t least = bytes > 0 ? bytes : value->item == GGUF_ARRAY ? 12 : 8;
    /* every item takes some bytes, so no count is believed that has no room */
    if (value->count > (gguf->file_bytes - gguf->at) / least)
        return err_set(ERR_DATA,
                       "%s: byte %zu: key '%s': an array of %" PRIu64
                       " items does not fit into the file",
                       gguf->path, place, name, value->count);
    if (bytes > 0) {
        TRY(head_take(gguf, value->count * bytes, "an array", &at));
        return ERR_OK;
    }
    for (uint64_t i = 0; i < value->count; i++) {
        struct gguf_value item = { .kind = value->item };
        TRY(head_value(gguf, name, depth + 1, &item));
    }
    return ERR_OK;
}

/* A value of value->kind. */
static enum err head_value(struct gguf *gguf, const char *name, int depth,
                           struct gguf_value *value)
{
    uint8_t *at = NULL;
    value->item = value->kind;
    value->count = 1;
    if (value->kind == GGUF_STRING) {
        TRY(head_number(gguf, "the length of a string", &value->count,
                        sizeof value->count));
        TRY(head_take(gguf, value->count, "a string", &at));
    } else if (value->kind == GGUF_ARRAY) {
        if (depth >= GGUF_NESTED_MAX)
            return err_set(ERR_DATA,
                           "%s: byte %zu: key '%s': arrays are nested deeper "
                           "than %d",
                           gguf->path, gguf->at, name, GGUF_NESTED_MAX);
        TRY(head_kind(gguf, name, &value->item));
        TRY(head_number(gguf, "the length of an array", &value->count,
                        sizeof value->count));
        at = gguf->data + gguf->at;
        TRY(head_items(gguf, name, depth, value));
    } else {
        TRY(head_take(gguf, gguf_kind_bytes(value->kind), "a value", &at));
        if (value->kind == GGUF_BOOL && *at > 1)
            return err_set(ERR_DATA, "%s: key '%s': a bool is %d, not 0 or 1",
                           gguf->path, name, *at);
    }
    value->data = at;
    return ERR_OK;
}

static enum err head_count(struct gguf *gguf, const char *what, uint64_t least,
                           size_t *out)
{
    uint64_t count = 0;
    size_t place = gguf->at;
    TRY(head_number(gguf, what, &count, sizeof count));
    if (count > HEAD_COUNT_MAX || count > gguf->file_bytes / least)
        return err_set(ERR_DATA,
                       "%s: byte %zu: %" PRIu64 " %s in a file of %" PRIu64
                       " bytes, at most %d",
                       gguf->path, place, count, what, gguf->file_bytes,
                       HEAD_COUNT_MAX);
    *out = (size_t)count;
    return ERR_OK;
}

/* Magic, version and counts. */
static enum err head_begin(struct gguf *gguf)
{
    uint8_t *magic = NULL;
    TRY(head_take(gguf, 4, "the magic", &magic));
    if (memcmp(magic, GGUF_MAGIC, 4) != 0)
        return err_set(ERR_DATA,
                       "%s: this is no GGUF file: it does not begin "
                       "with " GGUF_MAGIC,
                       gguf->path);
    TRY(head_number(gguf, "the version", &gguf->version, sizeof gguf->version));
    /* a small number, read the wrong way round */
    if ((gguf->version & 0xFFFF) == 0 && gguf->version != 0)
        return err_set(ERR_UNSUPPORTED,
                       "%s: its numbers have their high bytes first: convert "
                       "it (gguf_convert_endian.py of llama.cpp)",
                       gguf->path);
    if (gguf->version != 2 && gguf->version != GGUF_VERSION)
        return err_set(ERR_UNSUPPORTED,
                       "%s: GGUF version %u can't be read; there is: 2, 3",
                       gguf->path, gguf->version);
    TRY(head_count(gguf, "tensors", HEAD_TENSOR_BYTES, &gguf->tensors));
    return head_count(gguf, "keys", HEAD_KEY_BYTES, &gguf->keys);
}

static enum err head_keys(struct gguf *gguf)
{
    for (size_t i = 0; i < gguf->keys; i++) {
        struct gguf_key *key = &gguf->key[i];
        TRY(head_name(gguf, "a key", &key->name));
        TRY(head_kind(gguf, key->name, &key->value.kind));
        TRY(head_value(gguf, key->name, 0, &key->value));
    }
    return ERR_OK;
}

/* Type, number of blocks and bytes of a tensor whose dims are known. */
static enum err head_shape(const struct gguf *gguf, uint32_t type,
                           struct gguf_tensor *tensor)
{
    const struct gguf_blocks_layout *layout = gguf_blocks_layout(type);
    if (layout == NULL)
        return err_set(ERR_UNSUPPORTED,
                       "%s: tensor '%s' is of type %u (%s), which can't be "
                       "read; there is: " GGUF_BLOCKS_NAMES,
                       gguf->path, tensor->name, type, gguf_blocks_name(type));
    tensor->type = (enum gguf_blocks_type)type;
    tensor->numbers = 1;
    for (unsigned d = 0; d < tensor->dims; d++) {
        if (tensor->dim[d] == 0 || tensor->dim[d] > INT64_MAX ||
            tensor->numbers > (uint64_t)INT64_MAX / 8 / tensor->dim[d])
            return err_set(ERR_DATA,
                           "%s: tensor '%s': dimension %u of %" PRIu64
                           " cannot be",
                           gguf->path, tensor->name, d, tensor->dim[d]);
        tensor->numbers *= tensor->dim[d];
    }
    /* blocks do not go over the ends of rows */
    if (tensor->dim[0] % layout->numbers != 0)
        return err_set(ERR_DATA,
                       "%s: tensor '%s': rows of %" PRIu64
                       " numbers are no blocks of %u, as %s has them",
                       gguf->path, tensor->name, tensor->dim[0],
                       layout->numbers, gguf_blocks_name(type));
    tensor->blocks = tensor->numbers / layout->numbers;
    tensor->bytes = tensor->blocks * layout->bytes;
    return ERR_OK;
}

static enum err head_tensor(struct gguf *gguf, struct gguf_tensor *tensor)
{
    uint32_t dims = 0, type = 0;
    TRY(head_name(gguf, "a tensor's name", &tensor->name));
    TRY(head_number(gguf, "a number of dimensions", &dims, sizeof dims));
    if (dims > GGUF_DIMS_MAX)
        return err_set(ERR_DATA, "%s: tensor '%s': %u dimensions, at most %d",
                       gguf->path, tensor->name, dims, GGUF_DIMS_MAX);
    tensor->dims = dims;
    for (unsigned d = 0; d < GGUF_DIMS_MAX; d++) {
        tensor->dim[d] = 1;
        if (d < dims)
            TRY(head_number(gguf, "a dimension", &tensor->dim[d],
                            sizeof tensor->dim[d]));
    }
    TRY(head_number(gguf, "a tensor's type", &type, sizeof type));
    TRY(head_number(gguf, "a tensor's offset", &tensor->offset,
                    sizeof tensor->offset));
    return head_shape(gguf, type, tensor);
}

static const char *head_name_of(const void *entry)
{
    return *(const char *const *)entry;
}

static int head_by_name(const void *a, const void *b)
{
    return strcmp(head_name_of(*(const void *const *)a),
                  head_name_of(*(const void *const *)b));
}

static int head_by_offset(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const void *const *)a;
    const struct gguf_tensor *y = *(const void *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

const void *gguf_head_find(const void *const *order, size_t count,
                           const char *name)
{
    const void *wanted = &name;
    const void *const *found =
        count > 0 ? bsearch(&wanted, order, count, sizeof *order, head_by_name)
                  : NULL;
    return found != NULL ? *found : NULL;
}

static enum err head_sort(const struct gguf *gguf, const void **order,
                          size_t count, const char *what)
{
    if (count > 0)
        qsort(order, count, sizeof *order, head_by_name);
    for (size_t i = 1; i < count; i++)
        if (head_by_name(&order[i - 1], &order[i]) == 0)
            return err_set(ERR_DATA, "%s: the %s '%s' is there twice",
                           gguf->path, what, head_name_of(order[i]));
    return ERR_OK;
}

/* Where tensors begin, which until here count from each other. */
static enum err head_places(struct gguf *gguf)
{
    uint64_t begin =
        (gguf->at + gguf->alignment - 1) / gguf->alignment * gguf->alignment;
    uint64_t end = 0;
    uint64_t room = begin < gguf->file_bytes ? gguf->file_bytes - begin : 0;
    for (size_t i = 0; i < gguf->tensors; i++) {
        const struct gguf_tensor *tensor = &gguf->tensor[i];
        if (tensor->offset % gguf->alignment != 0)
            return err_set(ERR_DATA,
                           "%s: tensor '%s': its offset %" PRIu64
                           " is no multiple of %" PRIu64,
                           gguf->path, tensor->name, tensor->offset,
                           gguf->alignment);
        if (tensor->offset > room || tensor->bytes > room - tensor->offset)
            return err_set(ERR_DATA,
                           "%s: tensor '%s': %" PRIu64 " bytes at %" PRIu64
                           " of the data, of which there are %" PRIu64
                           ": truncated or not valid",
                           gguf->path, tensor->name, tensor->bytes,
                           tensor->offset, room);
    }
    if (gguf->tensors > 0)
        qsort(gguf->tensor_order, gguf->tensors, sizeof *gguf->tensor_order,
              head_by_offset);
    /* gaps are fine, but no byte may be of two */
    for (size_t i = 0; i < gguf->tensors; i++) {
        const struct gguf_tensor *tensor = gguf->tensor_order[i];
        if (tensor->offset < end)
            return err_set(ERR_DATA, "%s: tensors '%s' and '%s' overlap",
                           gguf->path, head_name_of(gguf->tensor_order[i - 1]),
                           tensor->name);
        end = tensor->offset + tensor->bytes;
    }
    for (size_t i = 0; i < gguf->tensors; i++)
        gguf->tensor[i].offset += begin;
    return ERR_OK;
}

static enum err head_alignment(struct gguf *gguf)
{
    const struct gguf_key *key = gguf_head_find(
        (const void *const *)gguf->key_order, gguf->keys, GGUF_ALIGNMENT_KEY);
    int64_t alignment = GGUF_ALIGNMENT;
    if (key != NULL &&
        (!gguf_value_whole(&key->value, &alignment) || alignment < 1 ||
         alignment > UINT32_MAX || (alignment & (alignment - 1)) != 0))
        return err_set(ERR_DATA, "%s: %s is no power of two", gguf->path,
                       GGUF_ALIGNMENT_KEY);
    gguf->alignment = (uint64_t)alignment;
    return ERR_OK;
}

static enum err head_room(struct gguf *gguf)
{
    TRY(new_zeroed(&gguf->key, gguf->keys + 1));
    TRY(new_zeroed(&gguf->tensor, gguf->tensors + 1));
    TRY(new_zeroed(&gguf->key_order, gguf->keys + 1));
    TRY(new_zeroed(&gguf->tensor_order, gguf->tensors + 1));
    for (size_t i = 0; i < gguf->keys; i++)
        gguf->key_order[i] = &gguf->key[i];
    for (size_t i = 0; i < gguf->tensors; i++)
        gguf->tensor_order[i] = &gguf->tensor[i];
    return ERR_OK;
}

enum err gguf_head_read(struct gguf *gguf)
{
    assert(gguf != NULL);
    gguf->capacity =
        (size_t)(gguf->file_bytes < GGUF_HEAD_BYTES_MAX ? gguf->file_bytes
                                                        : GGUF_HEAD_BYTES_MAX);
    TRY(new_room(&gguf->data, gguf->capacity + 1));
    TRY(head_begin(gguf));
    TRY(head_room(gguf));
    TRY(head_keys(gguf));
    /* the alignment is found among the keys, and is needed for the tensors */
    TRY(head_sort(gguf, gguf->key_order, gguf->keys, "key"));
    TRY(head_alignment(gguf));
    for (size_t i = 0; i < gguf->tensors; i++)
        TRY(head_tensor(gguf, &gguf->tensor[i]));
    TRY(head_places(gguf));
    return head_sort(gguf, gguf->tensor_order, gguf->tensors, "tensor");
}
