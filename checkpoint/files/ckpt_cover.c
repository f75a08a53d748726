/* Checks that the extents of a checkpoint hold every element of every tensor
 * exactly once.
 *
 * Intervals are sorted and must follow each other. Where a tensor has boxes,
 * everything becomes boxes: if their volumes add up to the tensor's and no two
 * overlap, they cover it. Overlaps are looked for only among boxes that no
 * plane keeps apart: in the grids that models are cut into, planes soon part
 * all. */
#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/new.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

int ckpt_cover_boxes(const struct ckpt_part *part, int dims,
                     const int64_t *shape,
                     struct ckpt_part boxes[CKPT_COVER_BOXES_MAX])
{
    int64_t stride[CKPT_DIMS_MAX];
    int count = 0;
    if (part->boxed) {
        boxes[0] = *part;
        return ckpt_part_elements(part, dims) > 0;
    }
    assert(dims >= 1 && dims <= CKPT_DIMS_MAX);
    /* A row that is begun is ended, then a plane, then whole steps of the
     * outermost dimension, and inwards again to what is left: each dimension
     * gives a box on the way out and one on the way in, the outermost a single one. */
    stride[dims - 1] = 1;
    for (int d = dims - 1; d > 0; d--)
        stride[d - 1] = stride[d] * shape[d];
    for (int64_t at = part->begin; at < part->end; count++) {
        struct ckpt_part *box = &boxes[count];
        int k = 0; /* the outermost dimension in which a step can begin here */
        while (at % stride[k] != 0 || part->end - at < stride[k])
            k++;
        *box = (struct ckpt_part){ .boxed = true };
        for (int d = 0; d < dims; d++) {
            box->origin[d] = at / stride[d] % shape[d];
            box->sides[d] = d < k ? 1 : shape[d];
        }
        int64_t steps = (part->end - at) / stride[k];
        int64_t room = shape[k] - box->origin[k];
        box->sides[k] = steps < room ? steps : room;
        at += box->sides[k] * stride[k];
    }
    assert(count <= CKPT_COVER_BOXES_MAX);
    return count;
}

/* --- boxes --- */

static int order_in(const struct ckpt_part *x, const struct ckpt_part *y, int d)
{
    return (x->origin[d] > y->origin[d]) - (x->origin[d] < y->origin[d]);
}

static int order_0(const void *a, const void *b)
{
    return order_in(a, b, 0);
}

static int order_1(const void *a, const void *b)
{
    return order_in(a, b, 1);
}

static int order_2(const void *a, const void *b)
{
    return order_in(a, b, 2);
}

static int order_3(const void *a, const void *b)
{
    return order_in(a, b, 3);
}

static bool overlap_in_pairs(const struct ckpt_part *boxes, size_t count,
                             int dims)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (!ckpt_part_boxes_apart(&boxes[i], &boxes[k], dims))
                return true;
    return false;
}

/* How many of the boxes, sorted in dimension d, lie before the first plane that
 * cuts none; all of them: there is no such plane. */
static size_t before_plane(const struct ckpt_part *boxes, size_t count, int d)
{
    int64_t end = boxes[0].origin[d] + boxes[0].sides[d];
    size_t n = 1;
    for (; n < count && boxes[n].origin[d] < end; n++)
        if (boxes[n].origin[d] + boxes[n].sides[d] > end)
            end = boxes[n].origin[d] + boxes[n].sides[d];
    return n;
}

/* Whether any two overlap; sorts them. Every level of recursion cuts the boxes
 * into several groups, and there are only so many ways in which a tensor is cut
 * in practice. */
static bool any_overlap(struct ckpt_part *boxes, size_t count, int dims)
{
    static int (*const orders[CKPT_DIMS_MAX])(
        const void *, const void *) = { order_0, order_1, order_2, order_3 };
    for (int d = 0; d < dims && count > 1; d++) {
        qsort(boxes, count, sizeof boxes[0], orders[d]);
        if (before_plane(boxes, count, d) == count)
            continue;
        while (count > 0) {
            size_t group = before_plane(boxes, count, d);
            if (any_overlap(boxes, group, dims))
                return true;
            boxes += group;
            count -= group;
        }
        return false;
    }
    return overlap_in_pairs(boxes, count, dims);
}

/* --- tensors --- */

static int extent_order(const void *a, const void *b)
{
    const struct ckpt_extent *x = *(const struct ckpt_extent *const *)a;
    const struct ckpt_extent *y = *(const struct ckpt_extent *const *)b;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return (x->part.begin > y->part.begin) - (x->part.begin < y->part.begin);
}

/* Each must start where the one before it ended, and the last end where the
 * tensor does. */
static enum err check_intervals(const struct ckpt_tensor *tensor,
                                const struct ckpt_extent *const *extents,
                                size_t count)
{
    int64_t done = 0;
    for (size_t i = 0; i < count && extents[i]->part.begin <= done; i++) {
        if (extents[i]->part.begin < done)
            return err_set(ERR_CHECKPOINT,
                           "tensor %s: element %" PRId64 " is stored twice",
                           tensor->name, extents[i]->part.begin);
        done = extents[i]->part.end;
    }
    if (done != tensor->elements)
        return err_set(ERR_CHECKPOINT,
                       "tensor %s: element %" PRId64 " of %" PRId64
                       " is stored by no rank",
                       tensor->name, done, tensor->elements);
    return ERR_OK;
}

static enum err check_boxes(const struct ckpt_tensor *tensor,
                            const struct ckpt_extent *const *extents,
                            size_t count)
{
    enum err rc = ERR_OK;
    int64_t missing = tensor->elements;
    size_t box_count = 0;
    struct ckpt_part *boxes = NULL;
    TRY(new_room(&boxes, count * CKPT_COVER_BOXES_MAX));
    for (size_t i = 0; i < count && missing >= 0; i++) {
        missing -= ckpt_part_elements(&extents[i]->part, tensor->dims);
        box_count += (size_t)ckpt_cover_boxes(&extents[i]->part, tensor->dims,
                                              tensor->shape, boxes + box_count);
    }
    if (missing > 0)
        rc = err_set(ERR_CHECKPOINT,
                     "tensor %s: %" PRId64 " of %" PRId64
                     " elements are stored by no rank",
                     tensor->name, missing, tensor->elements);
    else if (missing < 0 || any_overlap(boxes, box_count, tensor->dims))
        rc = err_set(ERR_CHECKPOINT, "tensor %s: elements are stored twice",
                     tensor->name);
    free(boxes);
    return rc;
}

static enum err check_sorted(const struct ckpt_manifest *m,
                             const struct ckpt_extent *const *extents,
                             size_t count)
{
    size_t first = 0;
    for (int t = 0; t < m->tensor_count; t++) {
        bool boxed = false;
        size_t end = first;
        for (; end < count && extents[end]->tensor == t; end++)
            boxed |= extents[end]->part.boxed;
        TRY((boxed ? check_boxes : check_intervals)(
            &m->tensors[t], extents + first, end - first));
        first = end;
    }
    return ERR_OK;
}

enum err ckpt_cover_check(const struct ckpt_manifest *manifest)
{
    size_t count = 0;
    for (int s = 0; s < manifest->shard_count; s++)
        count += (size_t)manifest->shards[s].extent_count;
    const struct ckpt_extent **sorted = NULL;
    TRY(new_room(&sorted, count + 1));
    count = 0;
    for (int s = 0; s < manifest->shard_count; s++)
        for (int p = 0; p < manifest->shards[s].extent_count; p++)
            sorted[count++] = &manifest->shards[s].extents[p];
    qsort(sorted, count, sizeof *sorted, extent_order);
    enum err rc = check_sorted(manifest, sorted, count);
    free(sorted);
    return rc;
}
