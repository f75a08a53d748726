/* Makes the bytes of checkpoint.h5: groups, and virtual datasets that point
 * into the shards.
 *
 * Whoever opens a checkpoint with h5py wants tensors whole, though each rank
 * wrote its extents into a file of its own. HDF5 has virtual datasets for that:
 * a dataset without numbers, whose header lists boxes of it and where each one
 * lies in which file. A file of them for a large run has some hundred thousand
 * boxes; the library takes up to 45 times as long to make it, and the bytes
 * depend on its version. So the few structures that are needed are laid out
 * here, as the HDF5 File Format Specification 3.0 has them (ckpt_h5.h has the
 * parts): first the mappings, in a heap, then a header for each dataset, then
 * the groups from the leaves to the root, each after what it points to. */

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/files/ckpt_manifest.h"
#include "checkpoint/files/ckpt_h5.h"
#include "checkpoint/files/ckpt_view.h"
#include "checkpoint/files/ckpt_view_about.h"
#include "src/base/new.h"

enum { LAYOUT_VERSION = 4, LAYOUT_CONTIGUOUS = 1, LAYOUT_VIRTUAL = 3 };
enum { SELECT_BOX = 2, SELECT_ALL = 3 };

struct entry {
    const char *name;
    const struct ckpt_tensor *tensor;
    struct ckpt_h5_object mappings;
    uint64_t address; /* of its header */
};

struct link {
    const char *name;
    size_t length;
    uint64_t address;
};

struct image {
    struct ckpt_h5 file;
    struct ckpt_view_about about;
    const struct ckpt_manifest *manifest;
    struct ckpt_placed *extents;
    size_t *first;         /* [tensors + 1]: of its extents */
    struct entry *entries; /* in the end those of no group first, by name */
    struct link *links;    /* a stack: those of the groups being made */
    size_t link_count;
};

/* --- mappings --- */

static void put_selection(struct ckpt_h5 *file, int kind, int dims,
                          const int64_t *origin, const int64_t *sides)
{
    ckpt_h5_number(file, (uint64_t)kind, 4);
    if (kind == SELECT_ALL) {
        ckpt_h5_number(file, 1, 4); /* version */
        ckpt_h5_zeros(file, 8);
        return;
    }
    ckpt_h5_number(file, 2, 4); /* version */
    ckpt_h5_number(file, 1, 1); /* regular */
    ckpt_h5_number(file, 4 + (uint64_t)dims * 32, 4);
    ckpt_h5_number(file, (uint64_t)dims, 4);
    for (int d = 0; d < dims; d++) {
        ckpt_h5_number(file, (uint64_t)origin[d], 8);
        ckpt_h5_number(file, 1, 8); /* stride */
        ckpt_h5_number(file, 1, 8); /* count */
        ckpt_h5_number(file, (uint64_t)sides[d], 8);
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

/* The mappings of an extent; returns how many. Only an extent that is stored as
 * one dimension needs several. */
static uint64_t put_extent(struct ckpt_h5 *file,
                           const struct ckpt_tensor *tensor,
                           const struct ckpt_extent *extent, const char *where,
                           const char *dataset)
{
    int64_t shape[CKPT_DIMS_MAX];
    int dims = view_shape(tensor, shape);
    const struct ckpt_part *part = &extent->part;
    struct ckpt_part boxes[CKPT_COVER_BOXES_MAX];
    int64_t done = 0;
    int count = ckpt_cover_boxes(part, dims, shape, boxes);
    for (int i = 0; i < count; i++) {
        int64_t elements = ckpt_part_elements(&boxes[i], dims);
        ckpt_h5_put(file, where, strlen(where) + 1);
        ckpt_h5_put(file, dataset, strlen(dataset) + 1);
        put_selection(file, count > 1 ? SELECT_BOX : SELECT_ALL, 1, &done,
                      &elements);
        put_selection(file, SELECT_BOX, dims, boxes[i].origin, boxes[i].sides);
        done += elements;
    }
    return (uint64_t)count;
}

/* The mappings of tensor t, as an object of the heap. */
static void put_mappings(struct image *image, int t)
{
    struct ckpt_h5 *file = &image->file;
    struct entry *entry = &image->entries[t];
    uint64_t mappings = 0;
    entry->mappings = ckpt_h5_object_begin(file);
    size_t begin = file->bytes;
    ckpt_h5_number(file, 0, 1); /* version */
    ckpt_h5_number(file, 0, 8);
    int number = 0; /* among those of its shard */
    for (size_t i = image->first[t]; i < image->first[t + 1]; i++) {
        const struct ckpt_placed *placed = &image->extents[i];
        char dataset[CKPT_DATASET_BYTES];
        bool more = i > image->first[t] && placed->shard == placed[-1].shard;
        number = more ? number + 1 : 0;
        ckpt_manifest_dataset(entry->tensor->name, number, dataset);
        mappings +=
            put_extent(file, entry->tensor, placed->extent,
                       image->manifest->shards[placed->shard].file, dataset);
    }
    ckpt_h5_set(file, begin + 1, mappings, 8);
    ckpt_h5_checksum(file, begin);
    ckpt_h5_object_end(file, &entry->mappings);
}

/* --- datasets and groups --- */

static uint64_t put_dataset(struct image *image, const struct entry *entry)
{
    struct ckpt_h5 *file = &image->file;
    int64_t shape[CKPT_DIMS_MAX];
    int dims = view_shape(entry->tensor, shape);
    bool mapped = entry->mappings.heap != 0;
    size_t at = ckpt_h5_header_begin(file);
    ckpt_h5_message(file, CKPT_H5_DATASPACE, 4 + (size_t)dims * 8, 0);
    ckpt_h5_number(file, 2, 1); /* version */
    ckpt_h5_number(file, (uint64_t)dims, 1);
    ckpt_h5_number(file, 0, 1);
    ckpt_h5_number(file, 1, 1); /* simple */
    for (int d = 0; d < dims; d++)
        ckpt_h5_number(file, (uint64_t)shape[d], 8);
    ckpt_h5_datatype(file, entry->tensor->dtype);
    ckpt_h5_fill(file, entry->tensor->dtype);
    ckpt_h5_message(file, CKPT_H5_LAYOUT, mapped ? 14 : 18, 0);
    ckpt_h5_number(file, LAYOUT_VERSION, 1);
    ckpt_h5_number(file, mapped ? LAYOUT_VIRTUAL : LAYOUT_CONTIGUOUS, 1);
    ckpt_h5_number(file, mapped ? entry->mappings.heap : CKPT_H5_UNDEFINED, 8);
    ckpt_h5_number(file, entry->mappings.index, mapped ? 4 : 8);
    ckpt_view_about_tensor(&image->about, file, entry->name);
    ckpt_h5_header_end(file, at);
    return at;
}

static size_t begin_group(struct ckpt_h5 *file)
{
    size_t at = ckpt_h5_header_begin(file);
    ckpt_h5_message(file, CKPT_H5_LINK_INFO, 18, 0);
    ckpt_h5_number(file, 0, 2); /* version, flags */
    ckpt_h5_number(file, CKPT_H5_UNDEFINED, 8);
    ckpt_h5_number(file, CKPT_H5_UNDEFINED, 8);
    ckpt_h5_message(file, CKPT_H5_GROUP_INFO, 2, CKPT_H5_CONSTANT);
    ckpt_h5_number(file, 0, 2); /* version, flags */
    return at;
}

/* The links that were pushed after the first `first` go into the header, which
 * is complete then. */
static uint64_t end_group(struct image *image, size_t at, size_t first)
{
    for (size_t i = first; i < image->link_count; i++)
        ckpt_h5_link(&image->file, image->links[i].name, image->links[i].length,
                     image->links[i].address);
    image->link_count = first;
    ckpt_h5_header_end(&image->file, at);
    return at;
}

static void push_link(struct image *image, const char *name, size_t length,
                      uint64_t address)
{
    image->links[image->link_count++] = (struct link){ name, length, address };
}

/* Push links to these entries, whose names begin with the same `skip` bytes;
 * groups inside are made. Names with a common beginning are neighbours. */
static void push_entries(struct image *image, const struct entry *entries,
                         size_t count, size_t skip)
{
    for (size_t i = 0; i < count;) {
        const char *name = entries[i].name + skip;
        const char *slash = strchr(name, '/');
        size_t length = strlen(name), same = 1, first = image->link_count;
        uint64_t address = entries[i].address;
        if (slash != NULL) {
            length = (size_t)(slash - name);
            while (i + same < count && strncmp(entries[i + same].name + skip,
                                               name, length + 1) == 0)
                same++;
            push_entries(image, entries + i, same, skip + length + 1);
            address = end_group(image, begin_group(&image->file), first);
        }
        push_link(image, name, length, address);
        i += same;
    }
}

static uint64_t put_config(struct image *image)
{
    struct ckpt_h5 *file = &image->file;
    const struct ckpt_view_sets *config = &image->about.config;
    size_t first = image->link_count;
    for (size_t i = 0; i < config->count; i++) {
        const struct ckpt_view_attributes *set = &config->list[i];
        if (set->of[0] == '\0')
            continue;
        size_t at = begin_group(file);
        ckpt_view_about_put(file, set);
        ckpt_h5_header_end(file, at);
        push_link(image, set->of, strlen(set->of), at);
    }
    size_t at = begin_group(file);
    ckpt_view_about_put(file, ckpt_view_about_find(config, ""));
    return end_group(image, at, first);
}

/* Tensors without a group of their own are the weights. */
static uint64_t put_root(struct image *image, size_t tensors)
{
    struct ckpt_h5 *file = &image->file;
    const struct entry *entries = image->entries;
    size_t weights = 0;
    while (weights < tensors && strchr(entries[weights].name, '/') == NULL)
        weights++;
    bool configured = image->about.config.count > 0;
    uint64_t config = configured ? put_config(image) : 0;
    push_entries(image, entries, weights, 0);
    uint64_t group = end_group(image, begin_group(file), 0);
    push_entries(image, entries + weights, tensors - weights, 0);
    if (configured)
        push_link(image, CKPT_VIEW_CONFIG, strlen(CKPT_VIEW_CONFIG), config);
    push_link(image, CKPT_VIEW_WEIGHTS, strlen(CKPT_VIEW_WEIGHTS), group);
    size_t at = begin_group(file);
    ckpt_view_about_put(file, &image->about.root);
    return end_group(image, at, 0);
}

/* --- the whole --- */

static int entry_order(const void *a, const void *b)
{
    const char *x = ((const struct entry *)a)->name;
    const char *y = ((const struct entry *)b)->name;
    bool x_grouped = strchr(x, '/') != NULL, y_grouped = strchr(y, '/') != NULL;
    return x_grouped != y_grouped ? x_grouped - y_grouped : strcmp(x, y);
}

static enum err prepare(struct image *image)
{
    const struct ckpt_manifest *m = image->manifest;
    size_t tensors = (size_t)m->tensor_count;
    /* all of a group's at most, weights, config and what is in that */
    size_t links =
        tensors + 2 + json_object_size(json_object_get(m->state, "fixed"));
    TRY(ckpt_manifest_extents(m, &image->extents, &image->first));
    TRY(new_room(&image->entries, tensors + 1));
    return new_room(&image->links, links);
}

/* All mappings, then all headers: a collection of the heap is in one piece. */
static void put_tensors(struct image *image)
{
    const struct ckpt_manifest *m = image->manifest;
    for (int t = 0; t < m->tensor_count; t++) {
        image->entries[t] = (struct entry){ .name = m->tensors[t].name,
                                            .tensor = &m->tensors[t] };
        if (image->first[t] < image->first[t + 1])
            put_mappings(image, t);
    }
    ckpt_h5_heap_end(&image->file);
    for (int t = 0; t < m->tensor_count; t++)
        image->entries[t].address = put_dataset(image, &image->entries[t]);
}

enum err ckpt_view_image(const struct ckpt_manifest *manifest, void **out,
                         size_t *bytes)
{
    enum err rc = ERR_OK;
    struct image image = { .manifest = manifest };
    size_t tensors = (size_t)manifest->tensor_count;
    TRY_OUT(prepare(&image));
    ckpt_h5_zeros(&image.file, CKPT_H5_SUPERBLOCK_BYTES);
    ckpt_view_about_create(&image.file, manifest, &image.about);
    put_tensors(&image);
    qsort(image.entries, tensors, sizeof *image.entries, entry_order);
    ckpt_h5_superblock(&image.file, put_root(&image, tensors));
    if (image.file.failed)
        TRY_OUT(err_set(ERR_MEMORY, "%s: out of memory", CKPT_VIEW_FILE));
    *bytes = image.file.bytes;
out:
    ckpt_view_about_destroy(&image.about);
    free(image.links);
    free(image.entries);
    free(image.first);
    free(image.extents);
    return new_or_none(rc, image.file.data, out, free);
}
