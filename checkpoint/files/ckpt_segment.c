/* Lists of segments, and their sums. */
#include "checkpoint/files/ckpt_segment.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/digest.h"
#include "src/base/new.h"

enum err ckpt_segments_create(const struct ckpt_item *items, int item_count,
                              int rank, struct ckpt_segment **out, int *count)
{
    *count = 0;
    TRY(new_zeroed(out, (size_t)item_count + 1));
    for (int i = 0; i < item_count; i++) {
        const struct ckpt_item *item = &items[i];
        struct ckpt_segment *segment = &(*out)[*count];
        *segment = (struct ckpt_segment){ .item = i,
                                          .rank = rank,
                                          .part = item->part };
        ckpt_part_normalise(&segment->part, item->dims, item->shape);
        segment->bytes = ckpt_part_elements(&segment->part, item->dims) *
                         (int64_t)dtype_bytes(item->dtype);
        *count += segment->bytes > 0;
    }
    return ERR_OK;
}

/* Boxes behind intervals. */
static int place_order(const void *a, const void *b)
{
    const struct ckpt_segment *x = *(struct ckpt_segment *const *)a;
    const struct ckpt_segment *y = *(struct ckpt_segment *const *)b;
    if (x->item != y->item)
        return x->item - y->item;
    if (x->part.boxed != y->part.boxed)
        return x->part.boxed - y->part.boxed;
    if (x->part.begin != y->part.begin)
        return x->part.begin < y->part.begin ? -1 : 1;
    return x->rank - y->rank;
}

enum err ckpt_segments_sort(struct ckpt_segment *segments, int count,
                            struct ckpt_segment ***out)
{
    TRY(new_room(out, (size_t)count + 1));
    for (int i = 0; i < count; i++)
        (*out)[i] = &segments[i];
    qsort(*out, (size_t)count, sizeof **out, place_order);
    return ERR_OK;
}

enum err ckpt_segments_merge(struct ckpt_segment *const *sorted, int count,
                             const struct ckpt_item *items,
                             struct ckpt_extent **out, int *extent_count)
{
    struct ckpt_extent *last = NULL;
    *extent_count = 0;
    TRY(new_zeroed(out, (size_t)count + 1));
    for (int i = 0; i < count; i++) {
        struct ckpt_segment *segment = sorted[i];
        bool follows = last != NULL && last->tensor == segment->item &&
                       !last->part.boxed && !segment->part.boxed &&
                       last->part.end == segment->part.begin;
        if (!follows) {
            last = &(*out)[(*extent_count)++];
            *last = (struct ckpt_extent){ .tensor = segment->item,
                                          .dims = items[segment->item].dims,
                                          .part = segment->part };
        }
        segment->at = last->bytes;
        last->bytes += segment->bytes;
        last->part.end = segment->part.end;
    }
    return ERR_OK;
}

int64_t ckpt_segment_sums(const struct ckpt_segment *segment)
{
    assert(segment->bytes > 0);
    return ckpt_manifest_block_count(segment->at + segment->bytes) -
           segment->at / CKPT_BLOCK_BYTES;
}

void ckpt_segment_fold(const struct ckpt_segment *segment, const uint32_t *sums,
                       uint32_t *blocks)
{
    int64_t at = segment->at, end = segment->at + segment->bytes, next;
    for (; at < end; at = next) {
        int64_t block = at / CKPT_BLOCK_BYTES;
        next = (block + 1) * CKPT_BLOCK_BYTES;
        next = next < end ? next : end;
        blocks[block] =
            crc32c_shift(blocks[block], (uint64_t)(next - at)) ^ *sums++;
    }
}
