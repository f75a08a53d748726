/* A tensor as its owner gives it to a checkpoint, and what is the same in all
 * checkpoints. */
#pragma once

#include "checkpoint/files/ckpt_part.h"
#include "src/base/dtype.h"

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
