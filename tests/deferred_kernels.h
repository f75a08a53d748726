/* The ops of a replica on tests/deferred_memory.h: what the processor computes,
 * as late as a stream allows. */
#pragma once

#include "kernels/kernels.h"
#include "tests/deferred_memory.h"
#include "tests/replica_world.h"

enum deferred_kind {
    DEFERRED_ZERO,
    DEFERRED_ACCUMULATE,
    DEFERRED_ADD_TREE,
    DEFERRED_CONVERT,
    DEFERRED_SQUARES,
#define DEFERRED_KIND(OP, name, ...) DEFERRED_##name,
    /* clang-format off */
    KERNEL_UPDATES(DEFERRED_KIND, )
    /* clang-format on */
    DEFERRED_PACK,
    DEFERRED_UNPACK
};

struct deferred_op {
    enum deferred_kind kind;
    struct kernel_ctx ctx;
    enum dtype from, to;
    enum packing packing;
    int64_t rows, n;
    struct add_tree tree;
    union {
#define DEFERRED_STEP(OP, name, ...) struct name name;
        KERNEL_UPDATES(DEFERRED_STEP, )
    } step;
    void *tensors[2 + UPDATE_MOMENTS];
};

/* Who computes; to be set before the first op. */
static const struct kernels *deferred_host;

static inline enum err deferred_compute(const struct deferred_op *op)
{
    const struct kernels *k = deferred_host;
    const struct kernel_ctx *ctx = &op->ctx;
    void *t[2 + UPDATE_MOMENTS];
    struct add_tree tree = op->tree;
    for (int i = 0; i < 2 + UPDATE_MOMENTS; i++)
        t[i] = op->tensors[i] != NULL ? deferred_reach(op->tensors[i]) : NULL;
    switch (op->kind) {
    case DEFERRED_ZERO:
        return k->zero(ctx, op->from, op->n, t[0]);
    case DEFERRED_ACCUMULATE:
        return k->accumulate(ctx, op->from, op->n, t[0], t[1]);
    case DEFERRED_ADD_TREE:
        for (int i = 0; i < tree.count; i++)
            tree.values[i] = deferred_reach(tree.values[i]);
        return k->add_tree(ctx, op->n, &tree, t[0]);
    case DEFERRED_CONVERT:
        return k->convert(ctx, op->n, op->from, t[0], op->to, t[1]);
    case DEFERRED_SQUARES:
        return k->chunk_sum_squares(ctx, op->from, op->n, t[0], t[1]);
#define DEFERRED_RUN(OP, name, ...)                                            \
    case DEFERRED_##name:                                                      \
        return k->name(ctx, op->from, op->n, &op->step.name, t[0], t[1],       \
                       (float *[]){ t[2], t[3] });
        /* clang-format off */
    KERNEL_UPDATES(DEFERRED_RUN, )
        /* clang-format on */
    case DEFERRED_PACK:
        return k->pack(ctx, op->from, op->packing, op->rows, op->n, t[0], t[1]);
    case DEFERRED_UNPACK:
        return k->unpack(ctx, op->from, op->packing, op->rows, op->n, t[0],
                         t[1]);
    }
    return ERR_INTERNAL;
}

static inline bool deferred_run(void *argument)
{
    struct deferred_op *op = argument;
    if (deferred_compute(op) != ERR_OK)
        abort();
    free(op);
    return true;
}

static inline enum err deferred_enqueue(const struct kernel_ctx *ctx,
                                        const struct deferred_op *op)
{
    struct deferred_op *copy = malloc(sizeof *copy);
    if (copy == NULL)
        abort();
    *copy = *op;
    copy->ctx = *ctx;
    deferred_call(ctx->stream, deferred_run, copy);
    return ERR_OK;
}

/* Only read, where the op only reads. */
static inline void *deferred_tensor(const void *tensor)
{
    return (void *)(uintptr_t)tensor;
}

static inline enum err deferred_zero KERNEL_LIKE(zero)
{
    struct deferred_op op = { DEFERRED_ZERO, .from = dtype, .n = n };
    op.tensors[0] = x;
    return deferred_enqueue(ctx, &op);
}

static inline enum err deferred_accumulate KERNEL_LIKE(accumulate)
{
    struct deferred_op op = { DEFERRED_ACCUMULATE, .from = dtype, .n = n };
    op.tensors[0] = deferred_tensor(x);
    op.tensors[1] = y;
    return deferred_enqueue(ctx, &op);
}

static inline enum err deferred_add_tree KERNEL_LIKE(add_tree)
{
    struct deferred_op op = { DEFERRED_ADD_TREE, .n = n, .tree = *tree };
    op.tensors[0] = out;
    return deferred_enqueue(ctx, &op);
}

static inline enum err deferred_convert KERNEL_LIKE(convert)
{
    struct deferred_op op = { DEFERRED_CONVERT, .from = from, .to = to,
                              .n = n };
    op.tensors[0] = deferred_tensor(x);
    op.tensors[1] = y;
    return deferred_enqueue(ctx, &op);
}

static inline enum err deferred_chunk_sum_squares KERNEL_LIKE(chunk_sum_squares)
{
    struct deferred_op op = { DEFERRED_SQUARES, .from = dtype, .n = n };
    op.tensors[0] = deferred_tensor(x);
    op.tensors[1] = out;
    return deferred_enqueue(ctx, &op);
}

#define DEFERRED_UPDATE(OP, name, ...)                                         \
    static inline enum err deferred_##name KERNEL_UPDATE_LIKE(name)            \
    {                                                                          \
        struct deferred_op op = { DEFERRED_##name, .from = dtype, .n = n,      \
                                  .step.name = *step };                        \
        op.tensors[0] = p;                                                     \
        op.tensors[1] = deferred_tensor(g);                                    \
        for (int i = 0; i < UPDATE_MOMENTS; i++)                               \
            op.tensors[2 + i] = m[i];                                          \
        return deferred_enqueue(ctx, &op);                                     \
    }
/* clang-format off */
KERNEL_UPDATES(DEFERRED_UPDATE, )
/* clang-format on */

static inline enum err deferred_pack KERNEL_LIKE(pack)
{
    struct deferred_op op = { DEFERRED_PACK, .from = dtype, .packing = packing,
                              .rows = rows, .n = cols };
    op.tensors[0] = deferred_tensor(x);
    op.tensors[1] = packed;
    return deferred_enqueue(ctx, &op);
}

static inline enum err deferred_unpack KERNEL_LIKE(unpack)
{
    struct deferred_op op = { DEFERRED_UNPACK, .from = dtype,
                              .packing = packing, .rows = rows, .n = cols };
    op.tensors[0] = deferred_tensor(packed);
    op.tensors[1] = x;
    return deferred_enqueue(ctx, &op);
}

static const struct kernels deferred_kernels = {
    .backend = "deferred",
    .kernel_set = "deferred",
    .memory = &deferred_memory,
    .zero = deferred_zero,
    .accumulate = deferred_accumulate,
    .add_tree = deferred_add_tree,
    .convert = deferred_convert,
    .chunk_sum_squares = deferred_chunk_sum_squares,
    .pack = deferred_pack,
    .unpack = deferred_unpack,
#define DEFERRED_ENTRY(OP, name, ...) .name = deferred_##name,
    /* clang-format off */
    KERNEL_UPDATES(DEFERRED_ENTRY, )
    /* clang-format on */
};

/* A world of the same ranks on the device. */
static inline bool open_device(const struct world *host, struct world *out)
{
    *out = *host;
    out->kernels = &deferred_kernels;
    out->enqueue = deferred_call;
    out->reach = deferred_reach;
    deferred_host = host->kernels;
    return deferred_memory.stream_create(false, &out->ctx.stream) == ERR_OK;
}
