/* Arithmetic of parts of a tensor: intervals, boxes, and the runs of
 * consecutive elements that they are made of.
 *
 * Of a box, the innermost dimensions that it takes whole and the one outside of
 * them make a run; those further out count the runs, as the digits of a number
 * with different bases. */
#include "checkpoint/files/ckpt_part.h"

#include <assert.h>
#include <inttypes.h>

enum err ckpt_part_check(const struct ckpt_part *part, int dims,
                         const int64_t *shape, const char *where,
                         const char *name)
{
    int64_t elements = 1;
    for (int d = 0; d < dims; d++)
        elements *= shape[d];
    if (!part->boxed) {
        if (part->begin >= 0 && part->begin <= part->end &&
            part->end <= elements)
            return ERR_OK;
        return err_set(ERR_CHECKPOINT,
                       "%s: tensor %s has %" PRId64 " elements, not [%" PRId64
                       ", %" PRId64 ")",
                       where, name, elements, part->begin, part->end);
    }
    for (int d = 0; d < dims; d++)
        if (part->origin[d] < 0 || part->sides[d] < 0 ||
            part->origin[d] > shape[d] ||
            part->sides[d] > shape[d] - part->origin[d])
            return err_set(
                ERR_CHECKPOINT,
                "%s: tensor %s has %" PRId64
                " elements in dimension %d, not [%" PRId64 ", +%" PRId64 ")",
                where, name, shape[d], d, part->origin[d], part->sides[d]);
    return ERR_OK;
}

int64_t ckpt_part_elements(const struct ckpt_part *part, int dims)
{
    assert(dims >= 0 && dims <= CKPT_DIMS_MAX);
    if (!part->boxed)
        return part->end - part->begin;
    int64_t elements = 1;
    for (int d = 0; d < dims; d++)
        elements *= part->sides[d];
    return elements;
}

/* The dimensions [whole, dims) are taken whole, and dimension whole - 1 in one
 * stretch: together they make a run. */
struct ckpt_part_runs ckpt_part_runs(const struct ckpt_part *part, int dims,
                                     const int64_t *shape)
{
    int64_t elements = ckpt_part_elements(part, dims);
    struct ckpt_part_runs runs = { .part = part,
                                   .dims = dims,
                                   .shape = shape,
                                   .count = elements > 0,
                                   .elements = elements };
    if (!part->boxed || elements == 0)
        return runs;
    runs.whole = dims;
    while (runs.whole > 0 &&
           part->sides[runs.whole - 1] == shape[runs.whole - 1])
        runs.whole--;
    runs.elements = 1;
    for (int d = runs.whole > 0 ? runs.whole - 1 : 0; d < dims; d++)
        runs.elements *= part->sides[d];
    runs.count = elements / runs.elements;
    return runs;
}

int64_t ckpt_part_run_begin(const struct ckpt_part_runs *runs, int64_t run)
{
    const struct ckpt_part *part = runs->part;
    if (!part->boxed)
        return part->begin;
    assert(run >= 0 && run < runs->count);
    int64_t begin = 0;
    int64_t stride = 1;
    for (int d = runs->dims - 1; d >= 0; d--) {
        int64_t index = part->origin[d];
        if (d < runs->whole - 1) {
            index += run % part->sides[d];
            run /= part->sides[d];
        }
        begin += index * stride;
        stride *= runs->shape[d];
    }
    return begin;
}

int64_t ckpt_part_run_after(const struct ckpt_part_runs *runs, int64_t at)
{
    int64_t low = 0, high = runs->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (ckpt_part_run_begin(runs, middle) + runs->elements > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool ckpt_part_boxes_apart(const struct ckpt_part *a, const struct ckpt_part *b,
                           int dims)
{
    assert(a->boxed && b->boxed);
    for (int d = 0; d < dims; d++)
        if (a->origin[d] >= b->origin[d] + b->sides[d] ||
            b->origin[d] >= a->origin[d] + a->sides[d])
            return true;
    return false;
}

void ckpt_part_normalise(struct ckpt_part *part, int dims, const int64_t *shape)
{
    if (!part->boxed)
        return;
    struct ckpt_part_runs runs = ckpt_part_runs(part, dims, shape);
    if (runs.count > 1)
        return;
    int64_t begin = runs.count == 0 ? 0 : ckpt_part_run_begin(&runs, 0);
    *part = (struct ckpt_part){ .begin = begin, .end = begin + runs.elements };
}
