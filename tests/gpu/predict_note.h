/* A table whose ops compute nothing: each notes what it was asked for, with the
 * operations and bytes that its contract costs. Tensors are addresses without
 * memory, so that a step of any model takes a moment. The stream of the context
 * is the notebook. Dense models in bf16 or fp32, in one piece or by blocks. */
#pragma once

#include <stdint.h>

#include "kernels/kernels.h"

#define NOTES_MAX 512

enum note_kind {
    NOTE_MEMORY, /* bound by its bytes */
    NOTE_GEMM,
    NOTE_ATTENTION_FORWARD,
    NOTE_ATTENTION_BACKWARD
};

/* All calls of one op with one shape. */
struct note {
    const char *op;
    enum note_kind kind;
    int64_t m, n, k; /* of a product; sequences, heads and head_dim; rows and
                        columns */
    double flops;    /* of one call; attention's are the causal half */
    double bytes;    /* read and written by one call */
    double gradient; /* of these, of gradients of weights and their sums */
    bool own;        /* attention that cuDNN does not do */
    int launches;    /* kernels of one call */
    int64_t calls;
};

struct notebook {
    struct note notes[NOTES_MAX];
    int count;
};

/* `scratch` says how much scratch ops want; NULL: none. Static, one at a time.
 */
const struct kernels *predict_table(const struct kernels *scratch);
