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

void gguf_head_release(struct gguf_head *head)
{
    free(head->data);
    free(head->key);
    free(head->tensor);
    free(head->key_order);
    free(head->tensor_order);
}

/* The next bytes, all at once; NULL with an error set: there are not so many.
 */
static enum err head_take(struct gguf_head *head, uint64_t bytes,
                          const char *what, uint8_t **out)
{
    if (bytes > head->capacity - head->at) {
        if (head->capacity < head->file_bytes)
            return err_set(ERR_DATA,
                           "%s: byte %zu: %s: keys and names of more than "
                           "%zu bytes can't be read",
                           head->path, head->at, what, head->capacity);
        return err_set(ERR_DATA,
                       "%s: byte %zu: %s wants %" PRIu64
                       " bytes, but the file has %zu more: truncated or not "
                       "valid",
                       head->path, head->at, what, bytes,
                       head->capacity - head->at);
    }
    size_t end = head->at + (size_t)bytes;
    if (end > head->read) {
        size_t piece = end - head->read;
        if (piece < HEAD_PIECE)
            piece = HEAD_PIECE;
        if (piece > head->capacity - head->read)
            piece = head->capacity - head->read;
        TRY(fsio_pread(head->fd, head->data + head->read, piece,
                       (int64_t)head->read, head->path));
        head->read += piece;
    }
    *out = head->data + head->at;
    head->at = end;
    return ERR_OK;
}

static enum err head_u32(struct gguf_head *head, const char *what,
                         uint32_t *out)
{
    uint8_t *at = NULL;
    TRY(head_take(head, sizeof *out, what, &at));
    memcpy(out, at, sizeof *out);
    return ERR_OK;
}

static enum err head_u64(struct gguf_head *head, const char *what,
                         uint64_t *out)
{
    uint8_t *at = NULL;
    TRY(head_take(head, sizeof *out, what, &at));
    memcpy(out, at, sizeof *out);
    return ERR_OK;
}

/* A name, which is moved onto its length by one byte to make room for the NUL
 * behind it. */
static enum err head_name(struct gguf_head *head, const char *what,
                          const char **out)
{
    uint64_t bytes = 0;
    uint8_t *at = NULL;
    size_t place = head->at;
    TRY(head_u64(head, what, &bytes));
    if (bytes == 0 || bytes > GGUF_NAME_BYTES_MAX)
        return err_set(ERR_DATA,
                       "%s: byte %zu: %s has %" PRIu64 " bytes, not 1 to %d",
                       head->path, place, what, bytes, GGUF_NAME_BYTES_MAX);
    TRY(head_take(head, bytes, what, &at));
    if (memchr(at, '\0', (size_t)bytes) != NULL)
        return err_set(ERR_DATA, "%s: byte %zu: %s has a NUL in it", head->path,
                       place, what);
    memmove(at - 1, at, (size_t)bytes);
    at[bytes - 1] = '\0';
    *out = (const char *)at - 1;
    return ERR_OK;
}

static enum err head_kind(struct gguf_head *head, const char *name,
                          enum gguf_kind *out)
{
    uint32_t kind = 0;
    size_t place = head->at;
    TRY(head_u32(head, "a kind", &kind));
    if (kind >= GGUF_KINDS)
        return err_set(ERR_DATA, "%s: byte %zu: key '%s': there is no kind %u",
                       head->path, place, name, kind);
    *out = (enum gguf_kind)kind;
    return ERR_OK;
}

static enum err head_value(struct gguf_head *head, const char *name, int depth,
                           struct gguf_value *value);

/* The items of an array, of which `value` has kind and count. */
static enum err head_items(struct gguf_head *head, const char *name, int depth,
                           struct gguf_value *value)
{
    size_t bytes = gguf_kind_bytes(value->item), place = head->at;
    uint8_t *at = NULL;
    uint64_t least = bytes > 0 ? bytes : value->item == GGUF_ARRAY ? 12 : 8;
    /* every item takes some bytes, so no count is believed that has no room */
    if (value->count > (head->file_bytes - head->at) / least)
        return err_set(ERR_DATA,
                       "%s: byte %zu: key '%s': an array of %" PRIu64
                       " items does not fit into the file",
                       head->path, place, name, value->count);
    if (bytes > 0) {
        TRY(head_take(head, value->count * bytes, "an array", &at));
        return ERR_OK;
    }
    for (uint64_t i = 0; i < value->count; i++) {
        struct gguf_value item = { .kind = value->item };
        TRY(head_value(head, name, depth + 1, &item));
    }
    return ERR_OK;
}

/* A value of value->kind. */
static enum err head_value(struct gguf_head *head, const char *name, int depth,
                           struct gguf_value *value)
{
    uint8_t *at = NULL;
    value->item = value->kind;
    value->count = 1;
    if (value->kind == GGUF_STRING) {
        TRY(head_u64(head, "the length of a string", &value->count));
        TRY(head_take(head, value->count, "a string", &at));
    } else if (value->kind == GGUF_ARRAY) {
        if (depth >= GGUF_NESTED_MAX)
            return err_set(ERR_DATA,
                           "%s: byte %zu: key '%s': arrays are nested deeper "
                           "than %d",
                           head->path, head->at, name, GGUF_NESTED_MAX);
        TRY(head_kind(head, name, &value->item));
        TRY(head_u64(head, "the length of an array", &value->count));
        at = head->data + head->at;
        TRY(head_items(head, name, depth, value));
    } else {
        TRY(head_take(head, gguf_kind_bytes(value->kind), "a value", &at));
        if (value->kind == GGUF_BOOL && *at > 1)
            return err_set(ERR_DATA, "%s: key '%s': a bool is %d, not 0 or 1",
                           head->path, name, *at);
    }
    value->data = at;
    return ERR_OK;
}

static enum err head_count(struct gguf_head *head, const char *what,
                           uint64_t least, size_t *out)
{
    uint64_t count = 0;
    size_t place = head->at;
    TRY(head_u64(head, what, &count));
    if (count > HEAD_COUNT_MAX || count > head->file_bytes / least)
        return err_set(ERR_DATA,
                       "%s: byte %zu: %" PRIu64 " %s in a file of %" PRIu64
                       " bytes, at most %d",
                       head->path, place, count, what, head->file_bytes,
                       HEAD_COUNT_MAX);
    *out = (size_t)count;
    return ERR_OK;
}

/* Magic, version and counts. */
static enum err head_begin(struct gguf_head *head)
{
    uint8_t *magic = NULL;
    TRY(head_take(head, 4, "the magic", &magic));
    if (memcmp(magic, GGUF_MAGIC, 4) != 0)
        return err_set(ERR_DATA,
                       "%s: this is no GGUF file: it does not begin "
                       "with " GGUF_MAGIC,
                       head->path);
    TRY(head_u32(head, "the version", &head->version));
    /* a small number, read the wrong way round */
    if ((head->version & 0xFFFF) == 0 && head->version != 0)
        return err_set(ERR_UNSUPPORTED,
                       "%s: its numbers have their high bytes first: convert "
                       "it (gguf_convert_endian.py of llama.cpp)",
                       head->path);
    if (head->version != 2 && head->version != GGUF_VERSION)
        return err_set(ERR_UNSUPPORTED,
                       "%s: GGUF version %u can't be read; there is: 2, 3",
                       head->path, head->version);
    TRY(head_count(head, "tensors", HEAD_TENSOR_BYTES, &head->tensors));
    return head_count(head, "keys", HEAD_KEY_BYTES, &head->keys);
}

static enum err head_keys(struct gguf_head *head)
{
    for (size_t i = 0; i < head->keys; i++) {
        struct gguf_head_key *key = &head->key[i];
        TRY(head_name(head, "a key", &key->name));
        TRY(head_kind(head, key->name, &key->value.kind));
        TRY(head_value(head, key->name, 0, &key->value));
    }
    return ERR_OK;
}

/* Type, number of blocks and bytes of a tensor whose dims are known. */
static enum err head_shape(const struct gguf_head *head, uint32_t type,
                           struct gguf_tensor *tensor)
{
    const struct gguf_blocks_layout *layout = gguf_blocks_layout(type);
    if (layout == NULL)
        return err_set(ERR_UNSUPPORTED,
                       "%s: tensor '%s' is of type %u (%s), which can't be "
                       "read; there is: " GGUF_BLOCKS_NAMES,
                       head->path, tensor->name, type, gguf_blocks_name(type));
    tensor->type = (enum gguf_blocks_type)type;
    tensor->numbers = 1;
    for (unsigned d = 0; d < tensor->dims; d++) {
        if (tensor->dim[d] == 0 || tensor->dim[d] > INT64_MAX ||
            tensor->numbers > (uint64_t)INT64_MAX / 8 / tensor->dim[d])
            return err_set(ERR_DATA,
                           "%s: tensor '%s': dimension %u of %" PRIu64
                           " cannot be",
                           head->path, tensor->name, d, tensor->dim[d]);
        tensor->numbers *= tensor->dim[d];
    }
    /* blocks do not go over the ends of rows */
    if (tensor->dim[0] % layout->numbers != 0)
        return err_set(ERR_DATA,
                       "%s: tensor '%s': rows of %" PRIu64
                       " numbers are no blocks of %u, as %s has them",
                       head->path, tensor->name, tensor->dim[0],
                       layout->numbers, layout->name);
    tensor->blocks = tensor->numbers / layout->numbers;
    tensor->bytes = tensor->blocks * layout->bytes;
    return ERR_OK;
}

static enum err head_tensor(struct gguf_head *head, struct gguf_tensor *tensor)
{
    uint32_t dims = 0, type = 0;
    TRY(head_name(head, "a tensor's name", &tensor->name));
    TRY(head_u32(head, "a number of dimensions", &dims));
    if (dims > GGUF_DIMS_MAX)
        return err_set(ERR_DATA, "%s: tensor '%s': %u dimensions, at most %d",
                       head->path, tensor->name, dims, GGUF_DIMS_MAX);
    tensor->dims = dims;
    for (unsigned d = 0; d < GGUF_DIMS_MAX; d++) {
        tensor->dim[d] = 1;
        if (d < dims)
            TRY(head_u64(head, "a dimension", &tensor->dim[d]));
    }
    TRY(head_u32(head, "a tensor's type", &type));
    TRY(head_u64(head, "a tensor's offset", &tensor->offset));
    return head_shape(head, type, tensor);
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

static enum err head_sort(const struct gguf_head *head, const void **order,
                          size_t count, const char *what)
{
    if (count > 0)
        qsort(order, count, sizeof *order, head_by_name);
    for (size_t i = 1; i < count; i++)
        if (head_by_name(&order[i - 1], &order[i]) == 0)
            return err_set(ERR_DATA, "%s: the %s '%s' is there twice",
                           head->path, what, head_name_of(order[i]));
    return ERR_OK;
}

/* Where tensors begin, which until here count from each other. */
static enum err head_places(struct gguf_head *head)
{
    uint64_t begin =
        (head->at + head->alignment - 1) / head->alignment * head->alignment;
    uint64_t end = 0;
    uint64_t room = begin < head->file_bytes ? head->file_bytes - begin : 0;
    for (size_t i = 0; i < head->tensors; i++) {
        const struct gguf_tensor *tensor = &head->tensor[i];
        if (tensor->offset % head->alignment != 0)
            return err_set(ERR_DATA,
                           "%s: tensor '%s': its offset %" PRIu64
                           " is no multiple of %" PRIu64,
                           head->path, tensor->name, tensor->offset,
                           head->alignment);
        if (tensor->offset > room || tensor->bytes > room - tensor->offset)
            return err_set(ERR_DATA,
                           "%s: tensor '%s': %" PRIu64 " bytes at %" PRIu64
                           " of the data, of which there are %" PRIu64
                           ": truncated or not valid",
                           head->path, tensor->name, tensor->bytes,
                           tensor->offset, room);
    }
    if (head->tensors > 0)
        qsort(head->tensor_order, head->tensors, sizeof *head->tensor_order,
              head_by_offset);
    /* gaps are fine, but no byte may be of two */
    for (size_t i = 0; i < head->tensors; i++) {
        const struct gguf_tensor *tensor = head->tensor_order[i];
        if (tensor->offset < end)
            return err_set(ERR_DATA, "%s: tensors '%s' and '%s' overlap",
                           head->path, head_name_of(head->tensor_order[i - 1]),
                           tensor->name);
        end = tensor->offset + tensor->bytes;
    }
    for (size_t i = 0; i < head->tensors; i++)
        head->tensor[i].offset += begin;
    return ERR_OK;
}

static enum err head_alignment(struct gguf_head *head)
{
    const struct gguf_head_key *key = gguf_head_find(
        (const void *const *)head->key_order, head->keys, GGUF_ALIGNMENT_KEY);
    int64_t alignment = GGUF_ALIGNMENT;
    if (key != NULL &&
        (!gguf_value_whole(&key->value, &alignment) || alignment < 1 ||
         alignment > UINT32_MAX || (alignment & (alignment - 1)) != 0))
        return err_set(ERR_DATA, "%s: %s is no power of two", head->path,
                       GGUF_ALIGNMENT_KEY);
    head->alignment = (uint64_t)alignment;
    return ERR_OK;
}

static enum err head_room(struct gguf_head *head)
{
    TRY(new_zeroed(&head->key, head->keys + 1));
    TRY(new_zeroed(&head->tensor, head->tensors + 1));
    TRY(new_zeroed(&head->key_order, head->keys + 1));
    TRY(new_zeroed(&head->tensor_order, head->tensors + 1));
    for (size_t i = 0; i < head->keys; i++)
        head->key_order[i] = &head->key[i];
    for (size_t i = 0; i < head->tensors; i++)
        head->tensor_order[i] = &head->tensor[i];
    return ERR_OK;
}

enum err gguf_head_read(struct gguf_head *head)
{
    assert(head != NULL);
    head->capacity =
        (size_t)(head->file_bytes < GGUF_HEAD_BYTES_MAX ? head->file_bytes
                                                        : GGUF_HEAD_BYTES_MAX);
    TRY(new_room(&head->data, head->capacity + 1));
    TRY(head_begin(head));
    TRY(head_room(head));
    TRY(head_keys(head));
    /* the alignment is found among the keys, and is needed for the tensors */
    TRY(head_sort(head, head->key_order, head->keys, "key"));
    TRY(head_alignment(head));
    for (size_t i = 0; i < head->tensors; i++)
        TRY(head_tensor(head, &head->tensor[i]));
    TRY(head_places(head));
    return head_sort(head, head->tensor_order, head->tensors, "tensor");
}
