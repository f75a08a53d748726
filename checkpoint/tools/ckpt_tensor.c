/* Reads any interval of a tensor as if it lay in one piece, for the tools that
 * compare, digest and copy. Loads go by ckpt_exchange.c instead.
 *
 * A tensor that was cut into columns lies in extents that all have a bit of each
 * row: who walks its rows comes by every extent again and again. A block must be
 * read whole to be checked, so without keeping some each would be read as often
 * as it has rows. */
#include "checkpoint/tools/ckpt_tensor.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/files/ckpt_read.h"
#include "src/base/new.h"

/* An extent, the shard that holds it, and what it spans of its tensor. */
struct placed {
    const struct ckpt_extent *extent;
    int shard;
    struct ckpt_part_runs runs;
    int64_t begin, end;
};

struct block {
    const struct ckpt_extent *extent; /* NULL: holds nothing */
    int64_t index;
    uint64_t used; /* when, for finding the one to replace */
    char *data;    /* CKPT_BLOCK_BYTES, allocated on first use */
};

struct ckpt_tensor_reader {
    const struct ckpt_manifest *manifest;
    struct ckpt_read *read;
    struct placed *placed; /* by tensor and begin */
    size_t *first;         /* per tensor, and one behind the last */
    struct block blocks[CKPT_TENSOR_BLOCKS];
    uint64_t clock;
};

static int placed_order(const void *a, const void *b)
{
    int64_t x = ((const struct placed *)a)->begin;
    int64_t y = ((const struct placed *)b)->begin;
    return (x > y) - (x < y);
}

static struct placed place(const struct ckpt_tensor *tensor,
                           const struct ckpt_placed *at)
{
    struct placed placed = { .extent = at->extent, .shard = at->shard };
    placed.runs =
        ckpt_part_runs(&at->extent->part, tensor->dims, tensor->shape);
    int64_t last = placed.runs.count - 1;
    if (last >= 0) {
        placed.begin = ckpt_part_run_begin(&placed.runs, 0);
        placed.end =
            ckpt_part_run_begin(&placed.runs, last) + placed.runs.elements;
    }
    return placed;
}

static enum err index_extents(struct ckpt_tensor_reader *reader)
{
    enum err rc = ERR_OK;
    const struct ckpt_manifest *manifest = reader->manifest;
    struct ckpt_placed *extents = NULL;
    TRY_OUT(ckpt_manifest_extents(manifest, &extents, &reader->first));
    const size_t *first = reader->first;
    TRY_OUT(new_zeroed(&reader->placed, first[manifest->tensor_count] + 1));
    for (int t = 0; t < manifest->tensor_count; t++) {
        struct placed *placed = reader->placed + first[t];
        size_t count = first[t + 1] - first[t];
        for (size_t i = 0; i < count; i++)
            placed[i] = place(&manifest->tensors[t], &extents[first[t] + i]);
        qsort(placed, count, sizeof *placed, placed_order);
    }
out:
    free(extents);
    return rc;
}

enum err ckpt_tensor_create(const char *checkpoint_dir,
                            const struct ckpt_manifest *manifest,
                            struct ckpt_tensor_reader **out)
{
    enum err rc = ERR_OK;
    struct ckpt_tensor_reader *reader = NULL;
    *out = NULL;
    TRY(new_zeroed(&reader, 1));
    reader->manifest = manifest;
    TRY_OUT(index_extents(reader));
    TRY_OUT(ckpt_read_create(checkpoint_dir, manifest, &reader->read));
out:
    return new_or_none(rc, reader, out, ckpt_tensor_destroy);
}

void ckpt_tensor_destroy(struct ckpt_tensor_reader *reader)
{
    if (reader == NULL)
        return;
    for (int i = 0; i < CKPT_TENSOR_BLOCKS; i++)
        free(reader->blocks[i].data);
    ckpt_read_destroy(reader->read);
    free(reader->first);
    free(reader->placed);
    free(reader);
}

int64_t ckpt_tensor_window(const struct ckpt_tensor *tensor, int64_t at)
{
    assert(at >= 0 && at <= tensor->elements);
    int64_t most =
        CKPT_TENSOR_WINDOW_BYTES / (int64_t)dtype_bytes(tensor->dtype);
    return tensor->elements - at < most ? tensor->elements - at : most;
}

static enum err keep_sink(void *arg, const void *data, size_t bytes)
{
    char **to = arg;
    memcpy(*to, data, bytes);
    *to += bytes;
    return ERR_OK;
}

/* Block number `index` of the extent into `to`. */
static enum err read_block(struct ckpt_tensor_reader *reader,
                           const struct placed *placed, int64_t index, char *to)
{
    int64_t size = (int64_t)dtype_bytes(
        reader->manifest->tensors[placed->extent->tensor].dtype);
    int64_t block_elements = CKPT_BLOCK_BYTES / size;
    int64_t elements = placed->extent->bytes / size;
    int64_t begin = index * block_elements;
    int64_t end =
        begin + block_elements < elements ? begin + block_elements : elements;
    return ckpt_read_extent(reader->read, placed->shard, placed->extent, begin,
                            end, keep_sink, &to);
}

static enum err fill_block(struct ckpt_tensor_reader *reader,
                           const struct placed *placed, int64_t index,
                           struct block *block)
{
    block->extent = NULL;
    if (block->data == NULL)
        TRY(new_room(&block->data, CKPT_BLOCK_BYTES));
    TRY(read_block(reader, placed, index, block->data));
    block->extent = placed->extent;
    block->index = index;
    return ERR_OK;
}

/* NULL: the block is not among the kept ones. */
static struct block *find_block(struct ckpt_tensor_reader *reader,
                                const struct placed *placed, int64_t index)
{
    for (int i = 0; i < CKPT_TENSOR_BLOCKS; i++)
        if (reader->blocks[i].extent == placed->extent &&
            reader->blocks[i].index == index)
            return &reader->blocks[i];
    return NULL;
}

/* Blocks that a walk of this tensor needs at a time: of boxes, which lie side by
 * side, one each; of intervals two, for who goes a few steps back. */
static int blocks_of(const struct ckpt_tensor_reader *reader, int tensor)
{
    int boxes = 0;
    for (size_t i = reader->first[tensor];
         i < reader->first[tensor + 1] && boxes < CKPT_TENSOR_BLOCKS; i++)
        boxes += reader->placed[i].extent->part.boxed;
    return boxes > 2 ? boxes : 2;
}

/* The block's bytes, from the kept ones if it is among them; else it replaces
 * the one that was not used for the longest time. */
static enum err get_block(struct ckpt_tensor_reader *reader,
                          const struct placed *placed, int64_t index,
                          const char **data)
{
    struct block *block = find_block(reader, placed, index);
    if (block == NULL) {
        int count = blocks_of(reader, placed->extent->tensor);
        block = &reader->blocks[0];
        for (int i = 1; i < count; i++)
            if (reader->blocks[i].used < block->used)
                block = &reader->blocks[i];
        TRY(fill_block(reader, placed, index, block));
    }
    block->used = ++reader->clock;
    *data = block->data;
    return ERR_OK;
}

/* Bytes [from, from + bytes) of the extent. A block that is wanted whole will
 * hardly be wanted again, and goes where it is wanted. */
static enum err copy_bytes(struct ckpt_tensor_reader *reader,
                           const struct placed *placed, int64_t from,
                           int64_t bytes, char *to)
{
    assert(from >= 0 && from + bytes <= placed->extent->bytes);
    while (bytes > 0) {
        const char *data;
        int64_t index = from / CKPT_BLOCK_BYTES;
        int64_t at = from % CKPT_BLOCK_BYTES;
        int64_t part =
            CKPT_BLOCK_BYTES - at < bytes ? CKPT_BLOCK_BYTES - at : bytes;
        bool whole = at == 0 && (part == CKPT_BLOCK_BYTES ||
                                 from + part == placed->extent->bytes);
        if (whole && find_block(reader, placed, index) == NULL) {
            TRY(read_block(reader, placed, index, to));
        } else {
            TRY(get_block(reader, placed, index, &data));
            memcpy(to, data + at, (size_t)part);
        }
        from += part;
        to += part;
        bytes -= part;
    }
    return ERR_OK;
}

/* Copy what the extent holds of [begin, end); *found counts its elements. */
static enum err copy_runs(struct ckpt_tensor_reader *reader,
                          const struct placed *placed, int64_t begin,
                          int64_t end, char *data, int64_t *found)
{
    const struct ckpt_tensor *tensor =
        &reader->manifest->tensors[placed->extent->tensor];
    int64_t size = (int64_t)dtype_bytes(tensor->dtype);
    const struct ckpt_part_runs *runs = &placed->runs;
    for (int64_t r = ckpt_part_run_after(runs, begin); r < runs->count; r++) {
        int64_t run = ckpt_part_run_begin(runs, r);
        int64_t from = run > begin ? run : begin;
        int64_t to = run + runs->elements < end ? run + runs->elements : end;
        if (run >= end)
            break;
        TRY(copy_bytes(reader, placed, (r * runs->elements + from - run) * size,
                       (to - from) * size, data + (from - begin) * size));
        *found += to - from;
    }
    return ERR_OK;
}

enum err ckpt_tensor_read(struct ckpt_tensor_reader *reader, int tensor,
                          int64_t begin, int64_t end, void *data)
{
    int64_t found = 0;
    assert(tensor >= 0 && tensor < reader->manifest->tensor_count);
    assert(begin >= 0 && begin <= end &&
           end <= reader->manifest->tensors[tensor].elements);
    for (size_t i = reader->first[tensor]; i < reader->first[tensor + 1]; i++) {
        const struct placed *placed = &reader->placed[i];
        if (placed->begin >= end)
            break;
        if (placed->end > begin)
            TRY(copy_runs(reader, placed, begin, end, data, &found));
    }
    if (found != end - begin)
        return err_set(ERR_CHECKPOINT,
                       "tensor %s: %" PRId64 " elements of [%" PRId64
                       ", %" PRId64 ") are stored",
                       reader->manifest->tensors[tensor].name, found, begin,
                       end);
    return ERR_OK;
}
