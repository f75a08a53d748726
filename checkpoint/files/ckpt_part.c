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

/* The dimensions [first, dims) are taken whole, and dimension first - 1 in one
 * stretch: together they make a run. */
static int whole_from(const struct ckpt_part *part, int dims,
                      const int64_t *shape)
{
    assert(dims >= 0 && dims <= CKPT_DIMS_MAX);
    int first = dims;
    while (first > 0 && part->sides[first - 1] == shape[first - 1])
        first--;
    return first;
}

int64_t ckpt_part_runs(const struct ckpt_part *part, int dims,
                       const int64_t *shape, int64_t *run_elements)
{
    int64_t elements = ckpt_part_elements(part, dims);
    *run_elements = elements;
    if (!part->boxed || elements == 0)
        return elements > 0;
    int whole = whole_from(part, dims, shape);
    *run_elements = 1;
    for (int d = whole > 0 ? whole - 1 : 0; d < dims; d++)
        *run_elements *= part->sides[d];
    return elements / *run_elements;
}

int64_t ckpt_part_run_begin(const struct ckpt_part *part, int dims,
                            const int64_t *shape, int64_t run)
{
    if (!part->boxed)
        return part->begin;
    assert(run >= 0);
    int64_t begin = 0;
    int64_t stride = 1;
    int whole = whole_from(part, dims, shape);
    for (int d = dims - 1; d >= 0; d--) {
        int64_t index = part->origin[d];
        if (d < whole - 1) {
            index += run % part->sides[d];
            run /= part->sides[d];
        }
        begin += index * stride;
        stride *= shape[d];
    }
    return begin;
}

int64_t ckpt_part_run_after(const struct ckpt_part *part, int dims,
                            const int64_t *shape, int64_t at)
{
    int64_t elements;
    int64_t low = 0, high = ckpt_part_runs(part, dims, shape, &elements);
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (ckpt_part_run_begin(part, dims, shape, middle) + elements > at)
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
    int64_t run_elements;
    if (!part->boxed)
        return;
    int64_t runs = ckpt_part_runs(part, dims, shape, &run_elements);
    if (runs > 1)
        return;
    int64_t begin = runs == 0 ? 0 : ckpt_part_run_begin(part, dims, shape, 0);
    *part = (struct ckpt_part){ .begin = begin, .end = begin + run_elements };
}
