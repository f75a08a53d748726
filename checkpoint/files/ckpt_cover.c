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

/* By where they begin in dimension *d. */
static int box_order(const void *a, const void *b, void *d)
{
    int64_t x = ((const struct ckpt_part *)a)->origin[*(int *)d];
    int64_t y = ((const struct ckpt_part *)b)->origin[*(int *)d];
    return (x > y) - (x < y);
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
    for (int d = 0; d < dims && count > 1; d++) {
        qsort_r(boxes, count, sizeof boxes[0], box_order, &d);
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

static int begin_order(const void *a, const void *b)
{
    int64_t x = ((const struct ckpt_placed *)a)->extent->part.begin;
    int64_t y = ((const struct ckpt_placed *)b)->extent->part.begin;
    return (x > y) - (x < y);
}

/* Each must start where the one before it ended, and the last end where the
 * tensor does. */
static enum err check_intervals(const struct ckpt_tensor *tensor,
                                struct ckpt_placed *extents, size_t count)
{
    int64_t done = 0;
    qsort(extents, count, sizeof *extents, begin_order);
    for (size_t i = 0; i < count; i++) {
        const struct ckpt_part *part = &extents[i].extent->part;
        if (part->begin < done)
            return err_set(ERR_CHECKPOINT,
                           "tensor %s: element %" PRId64 " is stored twice",
                           tensor->name, part->begin);
        if (part->begin > done)
            break;
        done = part->end;
    }
    if (done != tensor->elements)
        return err_set(ERR_CHECKPOINT,
                       "tensor %s: element %" PRId64 " of %" PRId64
                       " is stored by no rank",
                       tensor->name, done, tensor->elements);
    return ERR_OK;
}

static enum err check_boxes(const struct ckpt_tensor *tensor,
                            struct ckpt_placed *extents, size_t count)
{
    enum err rc = ERR_OK;
    int64_t missing = tensor->elements;
    size_t box_count = 0;
    struct ckpt_part *boxes = NULL;
    TRY(new_room(&boxes, count * CKPT_COVER_BOXES_MAX));
    for (size_t i = 0; i < count && missing >= 0; i++) {
        missing -= ckpt_part_elements(&extents[i].extent->part, tensor->dims);
        box_count +=
            (size_t)ckpt_cover_boxes(&extents[i].extent->part, tensor->dims,
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

enum err ckpt_cover_check(const struct ckpt_manifest *manifest)
{
    struct ckpt_placed *extents = NULL;
    size_t *first = NULL;
    enum err rc = ckpt_manifest_extents(manifest, &extents, &first);
    for (int t = 0; t < manifest->tensor_count && rc == ERR_OK; t++) {
        bool boxed = false;
        for (size_t i = first[t]; i < first[t + 1]; i++)
            boxed |= extents[i].extent->part.boxed;
        rc = (boxed ? check_boxes : check_intervals)(
            &manifest->tensors[t], extents + first[t], first[t + 1] - first[t]);
    }
    free(first);
    free(extents);
    return rc;
}
