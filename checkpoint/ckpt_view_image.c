#include "checkpoint/ckpt_view_image.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt_cover.h"
#include "checkpoint/ckpt_lookup3.h"

#define FORMAT_VERSION 1
#define SUPERBLOCK_BYTES 48
#define UNDEFINED UINT64_MAX
#define HEADER_PREFIX_BYTES 10 /* OHDR, version, flags, size of messages */
/* A collection of heap objects: readers load all of one to see any. */
#define HEAP_BYTES_MIN 4096
#define HEAP_BYTES_MAX 65536
#define HEAP_HEAD_BYTES 16
#define HEAP_OBJECT_BYTES 16

enum message {
    MESSAGE_DATASPACE = 1,
    MESSAGE_LINK_INFO = 2,
    MESSAGE_DATATYPE = 3,
    MESSAGE_FILL = 5,
    MESSAGE_LINK = 6,
    MESSAGE_LAYOUT = 8,
    MESSAGE_GROUP_INFO = 10,
    MESSAGE_ATTRIBUTE = 12
};
enum { MESSAGE_CONSTANT = 1 };
enum { LAYOUT_VERSION = 4, LAYOUT_CONTIGUOUS = 1, LAYOUT_VIRTUAL = 3 };
enum { SELECT_BOX = 2, SELECT_ALL = 3 };

/* A piece and the shard that holds it. */
struct placed {
    const struct ckpt_piece *piece;
    const char *file;
};

struct entry {
    const char *name;
    const struct ckpt_tensor *tensor;
    size_t heap; /* where the collection with its mappings is, 0: it has none */
    unsigned object;  /* in that */
    uint64_t address; /* of its header */
};

struct link {
    const char *name;
    size_t length;
    uint64_t address;
};

struct image {
    unsigned char *data;
    size_t bytes, room;
    bool failed; /* no memory: nothing more is put */
    size_t heap; /* where the open collection begins, 0: none */
    unsigned heap_objects;
    struct placed *pieces;
    struct entry *entries; /* by name */
    struct link *links;    /* a stack: those of the groups being made */
    size_t link_count;
};

/* --- bytes ----------------------------------------------------------------
 */

static void put(struct image *image, const void *data, size_t bytes)
{
    if (image->room - image->bytes < bytes && !image->failed) {
        size_t room = image->room * 2 + bytes;
        unsigned char *grown = realloc(image->data, room);
        image->failed = grown == NULL;
        if (grown != NULL) {
            image->data = grown;
            image->room = room;
        }
    }
    if (image->failed)
        return;
    memcpy(image->data + image->bytes, data, bytes);
    image->bytes += bytes;
}

/* The machine is little-endian, as is the file. */
static void put_number(struct image *image, uint64_t value, size_t bytes)
{
    put(image, &value, bytes);
}

static void put_zeros(struct image *image, size_t bytes)
{
    for (; bytes > 0; bytes--)
        put_number(image, 0, 1);
}

static void set_number(struct image *image, size_t at, uint64_t value,
                       size_t bytes)
{
    if (!image->failed)
        memcpy(image->data + at, &value, bytes);
}

static void put_checksum(struct image *image, size_t begin)
{
    if (!image->failed)
        put_number(image,
                   ckpt_lookup3(image->data + begin, image->bytes - begin), 4);
}

/* --- mappings -------------------------------------------------------------
 */

static void put_selection(struct image *image, int kind, int dims,
                          const int64_t *origin, const int64_t *extent)
{
    put_number(image, (uint64_t)kind, 4);
    if (kind == SELECT_ALL) {
        put_number(image, 1, 4); /* version */
        put_zeros(image, 8);
        return;
    }
    put_number(image, 2, 4); /* version */
    put_number(image, 1, 1); /* regular */
    put_number(image, 4 + (uint64_t)dims * 32, 4);
    put_number(image, (uint64_t)dims, 4);
    for (int d = 0; d < dims; d++) {
        put_number(image, (uint64_t)origin[d], 8);
        put_number(image, 1, 8); /* stride */
        put_number(image, 1, 8); /* count */
        put_number(image, (uint64_t)extent[d], 8);
    }
}

/* A tensor of no dimensions is shown as {1}. */
static int view_shape(const struct ckpt_tensor *tensor,
                      int64_t shape[CKPT_DIMS_MAX])
{
    shape[0] = 1;
    memcpy(shape, tensor->shape, (size_t)tensor->dims * sizeof shape[0]);
    return tensor->dims > 0 ? tensor->dims : 1;
}

/* The mappings of a piece; returns how many. Only a piece that is stored as
 * one dimension needs several. */
static uint64_t put_piece(struct image *image, const struct ckpt_tensor *tensor,
                          const struct placed *placed)
{
    int64_t shape[CKPT_DIMS_MAX];
    int dims = view_shape(tensor, shape);
    const struct ckpt_part *part = &placed->piece->part;
    struct ckpt_part boxes[CKPT_COVER_BOXES_MAX];
    int64_t done = 0;
    int count = ckpt_cover_boxes(part, dims, shape, boxes);
    for (int i = 0; i < count; i++) {
        int64_t elements = ckpt_part_elements(&boxes[i], dims);
        put(image, placed->file, strlen(placed->file) + 1);
        put(image, tensor->name, strlen(tensor->name) + 1);
        put_selection(image, count > 1 ? SELECT_BOX : SELECT_ALL, 1, &done,
                      &elements);
        put_selection(image, SELECT_BOX, dims, boxes[i].origin,
                      boxes[i].extent);
        done += elements;
    }
    return (uint64_t)count;
}

/* A collection below the least size is filled up with a free object. */
static void end_heap(struct image *image)
{
    if (image->heap == 0)
        return;
    size_t bytes = image->bytes - image->heap;
    if (bytes + HEAP_OBJECT_BYTES <= HEAP_BYTES_MIN) {
        put_zeros(image, 8);
        put_number(image, HEAP_BYTES_MIN - bytes, 8);
        put_zeros(image, HEAP_BYTES_MIN - bytes - HEAP_OBJECT_BYTES);
    } else if (bytes < HEAP_BYTES_MIN) {
        put_zeros(image, HEAP_BYTES_MIN - bytes);
    }
    set_number(image, image->heap + 8, image->bytes - image->heap, 8);
    image->heap = 0;
}

static void begin_heap(struct image *image)
{
    image->heap = image->bytes;
    image->heap_objects = 0;
    put(image, "GCOL", 4);
    put_number(image, 1, 4);
    put_zeros(image, 8);
}

/* The mappings of a tensor, to the `count` pieces of it, as an object of the
 * heap. */
static void put_mappings(struct image *image, struct entry *entry,
                         const struct placed *pieces, size_t count)
{
    uint64_t mappings = 0;
    if (image->heap != 0 && image->bytes - image->heap > HEAP_BYTES_MAX)
        end_heap(image);
    if (image->heap == 0)
        begin_heap(image);
    size_t head = image->bytes;
    entry->heap = image->heap;
    entry->object = ++image->heap_objects;
    put_number(image, entry->object, 8);
    put_zeros(image, 8);
    size_t begin = image->bytes;
    put_number(image, 0, 1); /* version */
    put_number(image, 0, 8);
    for (size_t i = 0; i < count; i++)
        mappings += put_piece(image, entry->tensor, &pieces[i]);
    set_number(image, begin + 1, mappings, 8);
    put_checksum(image, begin);
    size_t bytes = image->bytes - begin;
    set_number(image, head + 8, bytes, 8);
    put_zeros(image, (8 - bytes % 8) % 8);
}

/* --- headers --------------------------------------------------------------
 */

static size_t begin_header(struct image *image)
{
    size_t at = image->bytes;
    put(image, "OHDR", 4);
    put_number(image, 2, 1); /* version */
    put_number(image, 2, 1); /* four bytes of size */
    put_number(image, 0, 4);
    return at;
}

static void end_header(struct image *image, size_t at)
{
    size_t bytes = image->bytes - at - HEADER_PREFIX_BYTES;
    set_number(image, at + HEADER_PREFIX_BYTES - 4, bytes, 4);
    put_checksum(image, at);
}

static void put_message(struct image *image, enum message kind, size_t bytes,
                        unsigned flags)
{
    put_number(image, kind, 1);
    put_number(image, bytes, 2);
    put_number(image, flags, 1);
}

/* Two's complement, little-endian, signed. */
static void put_integer_type(struct image *image, size_t bytes)
{
    put_number(image, 0x10, 1);
    put_number(image, 0x08, 3);
    put_number(image, bytes, 4);
    put_number(image, 0, 2);
    put_number(image, bytes * 8, 2);
}

/* An IEEE-like layout: sign, exponent, mantissa with its first bit implied. */
static void put_float_type(struct image *image, size_t bytes, unsigned exponent,
                           uint32_t bias)
{
    unsigned bits = (unsigned)bytes * 8, mantissa = bits - 1 - exponent;
    put_message(image, MESSAGE_DATATYPE, 20, MESSAGE_CONSTANT);
    put_number(image, 0x11, 1);
    put_number(image, 0x20, 1);
    put_number(image, bits - 1, 2);
    put_number(image, bytes, 4);
    put_number(image, 0, 2);
    put_number(image, bits, 2);
    put_number(image, mantissa, 1); /* where the exponent begins */
    put_number(image, exponent, 1);
    put_number(image, 0, 1);
    put_number(image, mantissa, 1);
    put_number(image, bias, 4);
}

static void put_datatype(struct image *image, enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        put_float_type(image, 4, 8, 127);
        break;
    case DTYPE_BF16:
        put_float_type(image, 2, 8, 127);
        break;
    case DTYPE_F64:
        put_float_type(image, 8, 11, 1023);
        break;
    case DTYPE_I32:
        put_message(image, MESSAGE_DATATYPE, 12, MESSAGE_CONSTANT);
        put_integer_type(image, 4);
        break;
    }
}

static uint64_t put_dataset(struct image *image, const struct entry *entry)
{
    int64_t shape[CKPT_DIMS_MAX];
    int dims = view_shape(entry->tensor, shape);
    bool mapped = entry->heap != 0;
    size_t at = begin_header(image);
    put_message(image, MESSAGE_DATASPACE, 4 + (size_t)dims * 8, 0);
    put_number(image, 2, 1); /* version */
    put_number(image, (uint64_t)dims, 1);
    put_number(image, 0, 1);
    put_number(image, 1, 1); /* simple */
    for (int d = 0; d < dims; d++)
        put_number(image, (uint64_t)shape[d], 8);
    put_datatype(image, entry->tensor->dtype);
    put_message(image, MESSAGE_FILL, 2, MESSAGE_CONSTANT);
    put_number(image, 3, 1);    /* version */
    put_number(image, 0x0a, 1); /* late, if set; the default value */
    put_message(image, MESSAGE_LAYOUT, mapped ? 14 : 18, 0);
    put_number(image, LAYOUT_VERSION, 1);
    put_number(image, mapped ? LAYOUT_VIRTUAL : LAYOUT_CONTIGUOUS, 1);
    put_number(image, mapped ? entry->heap : UNDEFINED, 8);
    put_number(image, entry->object, mapped ? 4 : 8);
    end_header(image, at);
    return at;
}

static void put_version(struct image *image)
{
    static const char name[] = "format_version";
    put_message(image, MESSAGE_ATTRIBUTE, 33 + sizeof name, 0);
    put_number(image, 3, 2); /* version, flags */
    put_number(image, sizeof name, 2);
    put_number(image, 12, 2); /* of the type */
    put_number(image, 4, 2);  /* of the space, a scalar */
    put_number(image, 0, 1);  /* ASCII */
    put(image, name, sizeof name);
    put_integer_type(image, 8);
    put_number(image, 2, 4);
    put_number(image, FORMAT_VERSION, 8);
}

static uint64_t put_header(struct image *image, const struct link *links,
                           size_t count, bool root)
{
    size_t at = begin_header(image);
    put_message(image, MESSAGE_LINK_INFO, 18, 0);
    put_number(image, 0, 2); /* version, flags */
    put_number(image, UNDEFINED, 8);
    put_number(image, UNDEFINED, 8);
    put_message(image, MESSAGE_GROUP_INFO, 2, MESSAGE_CONSTANT);
    put_number(image, 0, 2); /* version, flags */
    if (root)
        put_version(image);
    for (size_t i = 0; i < count; i++) {
        put_message(image, MESSAGE_LINK, 12 + links[i].length, 0);
        put_number(image, 1, 1); /* version */
        put_number(image, 1, 1); /* two bytes of length */
        put_number(image, links[i].length, 2);
        put(image, links[i].name, links[i].length);
        put_number(image, links[i].address, 8);
    }
    end_header(image, at);
    return at;
}

/* The group of these entries, whose names begin with the same `skip` bytes;
 * groups inside come first. Names with a common beginning are neighbours. */
static uint64_t put_group(struct image *image, const struct entry *entries,
                          size_t count, size_t skip)
{
    size_t first = image->link_count;
    for (size_t i = 0; i < count;) {
        const char *name = entries[i].name + skip;
        const char *slash = strchr(name, '/');
        struct link link = { name, strlen(name), entries[i].address };
        size_t same = 1;
        if (slash != NULL) {
            link.length = (size_t)(slash - name);
            while (i + same < count && strncmp(entries[i + same].name + skip,
                                               name, link.length + 1) == 0)
                same++;
            link.address =
                put_group(image, entries + i, same, skip + link.length + 1);
        }
        image->links[image->link_count++] = link;
        i += same;
    }
    uint64_t at = put_header(image, image->links + first,
                             image->link_count - first, skip == 0);
    image->link_count = first;
    return at;
}

/* --- the whole ------------------------------------------------------------
 */

static int placed_order(const void *a, const void *b)
{
    const struct ckpt_piece *x = ((const struct placed *)a)->piece;
    const struct ckpt_piece *y = ((const struct placed *)b)->piece;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static int entry_order(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name,
                  ((const struct entry *)b)->name);
}

static enum err prepare(struct image *image, const struct ckpt_manifest *m)
{
    size_t count = 0;
    for (int s = 0; s < m->shard_count; s++)
        count += (size_t)m->shards[s].piece_count;
    size_t tensors = (size_t)m->tensor_count;
    image->pieces = malloc((count + 1) * sizeof *image->pieces);
    image->entries = malloc((tensors + 1) * sizeof *image->entries);
    image->links = malloc((tensors + 1) * sizeof *image->links);
    if (image->pieces == NULL || image->entries == NULL || image->links == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", CKPT_VIEW_FILE);
    count = 0;
    for (int s = 0; s < m->shard_count; s++)
        for (int p = 0; p < m->shards[s].piece_count; p++)
            image->pieces[count++] =
                (struct placed){ &m->shards[s].pieces[p], m->shards[s].file };
    qsort(image->pieces, count, sizeof *image->pieces, placed_order);
    image->pieces[count].piece = NULL;
    return ERR_OK;
}

/* All mappings, then all headers: a collection of the heap is in one piece. */
static void put_tensors(struct image *image, const struct ckpt_manifest *m)
{
    const struct placed *next = image->pieces;
    for (int t = 0; t < m->tensor_count; t++) {
        struct entry *entry = &image->entries[t];
        *entry = (struct entry){ .name = m->tensors[t].name,
                                 .tensor = &m->tensors[t] };
        size_t count = 0;
        while (next[count].piece != NULL && next[count].piece->tensor == t)
            count++;
        if (count > 0)
            put_mappings(image, entry, next, count);
        next += count;
    }
    end_heap(image);
    for (int t = 0; t < m->tensor_count; t++)
        image->entries[t].address = put_dataset(image, &image->entries[t]);
}

static void put_superblock(struct image *image, uint64_t root)
{
    size_t end = image->bytes;
    image->bytes = 0;
    put(image, "\x89HDF\r\n\x1a\n", 8);
    put_number(image, 3, 1); /* version */
    put_number(image, 8, 1); /* bytes of an offset */
    put_number(image, 8, 1); /* bytes of a length */
    put_number(image, 0, 1);
    put_number(image, 0, 8);
    put_number(image, UNDEFINED, 8);
    put_number(image, end, 8);
    put_number(image, root, 8);
    put_checksum(image, 0);
    image->bytes = end;
}

enum err ckpt_view_image(const struct ckpt_manifest *manifest, void **out,
                         size_t *bytes)
{
    enum err rc = ERR_OK;
    struct image image = { 0 };
    size_t tensors = (size_t)manifest->tensor_count;
    TRY(prepare(&image, manifest));
    put_zeros(&image, SUPERBLOCK_BYTES);
    put_tensors(&image, manifest);
    qsort(image.entries, tensors, sizeof *image.entries, entry_order);
    put_superblock(&image, put_group(&image, image.entries, tensors, 0));
    if (image.failed) {
        rc = err_set(ERR_MEMORY, "%s: out of memory", CKPT_VIEW_FILE);
        goto out;
    }
    *out = image.data;
    *bytes = image.bytes;
    image.data = NULL;
out:
    free(image.data);
    free(image.links);
    free(image.entries);
    free(image.pieces);
    return rc;
}
