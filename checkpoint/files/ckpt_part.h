/* A part of a tensor, as a rank holds it or a shard stores it: an interval of
 * the row-major flattened tensor, or a box. The elements of a part lie one
 * after the other, in the order of the flattened tensor.
 *
 * Either form is a number of equally long runs of consecutive elements of the
 * flattened tensor: an interval is one run. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/base/dtype.h"

#define CKPT_DIMS_MAX 4

/* Elements [begin, end); or, if `boxed`, elements whose index in every
 * dimension d is in [origin[d], origin[d] + sides[d]), with begin = end = 0.
 */
struct ckpt_part {
    bool boxed;
    int64_t begin, end;
    int64_t origin[CKPT_DIMS_MAX], sides[CKPT_DIMS_MAX];
};

/* ERR_CHECKPOINT unless the part lies inside the tensor; `where` and `name` are
 * for the error text. */
enum err ckpt_part_check(const struct ckpt_part *part, int dims,
                         const int64_t *shape, const char *where,
                         const char *name);

int64_t ckpt_part_elements(const struct ckpt_part *part, int dims);

/* A box whose elements are consecutive becomes an interval; others stay. */
void ckpt_part_normalise(struct ckpt_part *part, int dims,
                         const int64_t *shape);

/* A part as its runs. */
struct ckpt_part_runs {
    const struct ckpt_part *part; /* lent */
    int dims;
    const int64_t *shape; /* lent */
    int whole;            /* dimensions from here on are taken whole */
    int64_t count;        /* 0: the part is empty */
    int64_t elements;     /* of one */
};
struct ckpt_part_runs ckpt_part_runs(const struct ckpt_part *part, int dims,
                                     const int64_t *shape);
/* Where run number `run` begins in the flattened tensor; ascending. */
int64_t ckpt_part_run_begin(const struct ckpt_part_runs *runs, int64_t run);
/* The first run that ends after element `at`; as many as there are: none. */
int64_t ckpt_part_run_after(const struct ckpt_part_runs *runs, int64_t at);

/* Whether two boxes have no element in common. */
bool ckpt_part_boxes_apart(const struct ckpt_part *a, const struct ckpt_part *b,
                           int dims);

/* What is the same in all checkpoints. */
#define CKPT_NAME_BYTES 128
#define CKPT_BLOCK_BYTES (4u << 20)

/* One tensor as this rank sees it. On save the rank writes the part of it that
 * `data` holds; over all ranks each element must be written exactly once, which
 * is checked before the commit. On load the same fields say what the rank
 * wants; any part, any rank count, overlaps allowed. An empty part: nothing,
 * but every rank lists every tensor, in the same order. */
struct ckpt_item {
    char name[CKPT_NAME_BYTES];
    enum dtype dtype;
    int dims;
    int64_t shape[CKPT_DIMS_MAX];
    struct ckpt_part part;
    void *data; /* the part's elements, one after the other */
};
