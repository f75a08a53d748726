/* Parts of tensors: the runs of a box against a walk over every element, and
 * what is refused. */

#include "checkpoint/files/ckpt_part.h"
#include "tests/tap.h"

#define ELEMENTS_MAX 4096

struct box_case {
    const char *name;
    int dims;
    int64_t shape[CKPT_DIMS_MAX];
    int64_t origin[CKPT_DIMS_MAX];
    int64_t sides[CKPT_DIMS_MAX];
    int64_t runs;
    bool interval; /* its elements are consecutive */
};

static const struct box_case boxes[] = {
    { "all of a vector", 1, TUPLE(7), { 0 }, { 7 }, 1, true },
    { "middle of a vector", 1, TUPLE(7), { 2 }, { 3 }, 1, true },
    { "all of a matrix", 2, TUPLE(4, 5), { 0, 0 }, { 4, 5 }, 1, true },
    { "rows", 2, TUPLE(4, 5), { 1, 0 }, { 2, 5 }, 1, true },
    { "columns", 2, TUPLE(4, 5), { 0, 1 }, { 4, 2 }, 4, false },
    { "one row of columns", 2, TUPLE(4, 5), { 3, 1 }, { 1, 2 }, 1, true },
    { "a corner", 2, TUPLE(4, 5), { 2, 3 }, { 2, 2 }, 2, false },
    { "middle dimension", 3, TUPLE(3, 4, 5), TUPLE(0, 1, 0), TUPLE(3, 2, 5), 3,
      false },
    { "last dimension", 3, TUPLE(3, 4, 5), TUPLE(0, 0, 4), TUPLE(3, 4, 1), 12,
      false },
    { "one plane", 3, TUPLE(3, 4, 5), { 1, 0, 0 }, { 1, 4, 5 }, 1, true },
    { "four dimensions", 4, TUPLE(2, 3, 4, 5), TUPLE(1, 1, 1, 1),
      TUPLE(1, 2, 2, 3), 4, false },
    { "empty", 2, TUPLE(4, 5), { 4, 0 }, { 0, 5 }, 0, true },
    { "a scalar", 0, TUPLE(0), { 0 }, { 0 }, 1, true },
};

static bool inside(const struct box_case *box, int64_t element)
{
    for (int d = box->dims - 1; d >= 0; d--) {
        int64_t index = element % box->shape[d];
        element /= box->shape[d];
        if (index < box->origin[d] || index >= box->origin[d] + box->sides[d])
            return false;
    }
    return true;
}

/* Marks the elements of the part's runs; false when out of order or range. */
static bool mark_runs(const struct ckpt_part *part, const struct box_case *box,
                      int64_t elements, bool *marked)
{
    struct ckpt_part_runs runs = ckpt_part_runs(part, box->dims, box->shape);
    int64_t last = 0;
    memset(marked, 0, ELEMENTS_MAX * sizeof *marked);
    for (int64_t r = 0; r < runs.count; r++) {
        int64_t begin = ckpt_part_run_begin(&runs, r);
        if (begin < last || begin + runs.elements > elements)
            return false;
        for (int64_t e = begin; e < begin + runs.elements; e++)
            marked[e] = true;
        last = begin + runs.elements;
    }
    return true;
}

static bool marked_right(const struct box_case *box, int64_t elements,
                         const bool *marked)
{
    for (int64_t e = 0; e < elements; e++)
        if (marked[e] != inside(box, e))
            return false;
    return true;
}

static void test_box(const struct box_case *box)
{
    static bool marked[ELEMENTS_MAX];
    int64_t elements = 1;
    struct ckpt_part part = { .boxed = true };
    for (int d = 0; d < box->dims; d++) {
        elements *= box->shape[d];
        part.origin[d] = box->origin[d];
        part.sides[d] = box->sides[d];
    }
    tap_ok(
        ckpt_part_check(&part, box->dims, box->shape, "w", "t") == ERR_OK &&
            ckpt_part_runs(&part, box->dims, box->shape).count == box->runs &&
            mark_runs(&part, box, elements, marked) &&
            marked_right(box, elements, marked),
        "%s: %lld runs of the right elements", box->name, (long long)box->runs);
    int64_t count = ckpt_part_elements(&part, box->dims);
    ckpt_part_normalise(&part, box->dims, box->shape);
    tap_ok(part.boxed == !box->interval &&
               ckpt_part_elements(&part, box->dims) == count &&
               mark_runs(&part, box, elements, marked) &&
               marked_right(box, elements, marked),
           "%s: the same elements as %s", box->name,
           box->interval ? "an interval" : "a box");
}

static void test_failures(void)
{
    static const int64_t shape[CKPT_DIMS_MAX] = { 4, 5 };
    static const struct ckpt_part wrong[] = {
        { .begin = -1, .end = 3 },
        { .begin = 4, .end = 3 },
        { .begin = 0, .end = 21 },
        { .boxed = true, .origin = { 0, -1 }, .sides = { 1, 1 } },
        { .boxed = true, .origin = { 0, 0 }, .sides = { 1, -1 } },
        { .boxed = true, .origin = { 3, 0 }, .sides = { 2, 1 } },
        { .boxed = true, .origin = { 5, 0 }, .sides = { 0, 1 } },
        { .boxed = true, .origin = { 1, 1 }, .sides = { 1, INT64_MAX } },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        tap_ok(ckpt_part_check(&wrong[i], 2, shape, "w", "t") ==
                       ERR_CHECKPOINT &&
                   strstr(err_text(), "tensor t") != NULL,
               "wrong part %zu: %s", i, err_text());
}

int main(void)
{
    for (size_t i = 0; i < sizeof boxes / sizeof boxes[0]; i++)
        test_box(&boxes[i]);
    test_failures();
    return tap_done();
}
