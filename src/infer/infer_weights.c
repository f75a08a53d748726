/* Weights on their way to the ops: those of a block that is held, or that was
 * gathered for the call at hand. */
#include <assert.h>

#include "src/infer/infer_impl.h"

/* --- blocks that are lent --- */

/* Elements that are widened at a time: a layer's blocks, or both ends'. */
static int64_t widened_elements(const struct params *params)
{
    const struct param_block *blocks = params->blocks;
    int64_t most =
        blocks[0].elements + blocks[params->block_count - 1].elements;
    for (int b = 1; b + params->layer_blocks < params->block_count;
         b += params->layer_blocks) {
        int64_t layer =
            blocks[b + params->layer_blocks].offset - blocks[b].offset;
        most = layer > most ? layer : most;
    }
    return most;
}

static enum err widen(struct infer *infer, int block, int64_t at,
                      const void *weights)
{
    if (infer->widened.base == NULL) {
        size_t bytes = (size_t)widened_elements(infer->params) * sizeof(float);
        TRY(infer->kernels->memory->tensors_create(bytes, &infer->widened));
        (void)arena_take(&infer->widened, bytes);
    }
    void *buffer = infer->widened.base;
    float *to = (float *)buffer + at;
    infer->lent[block] = to;
    return infer->kernels->convert(&infer->ctx,
                                   infer->params->blocks[block].elements,
                                   DTYPE_BF16, weights, DTYPE_F32, to);
}

enum err infer_enter(struct infer *infer, int first, int count, int64_t at)
{
    const struct param_access *access = infer->access;
    if (infer->held != NULL)
        return ERR_OK;
    if (access->pace != NULL)
        TRY(access->pace(access->arg));
    for (int b = first; b < first + count; b++) {
        const void *weights = NULL;
        TRY(access->gather(access->arg, b, &weights));
        infer->lent[b] = weights;
        if (infer->options.dtype == DTYPE_BF16)
            TRY(widen(infer, b, at, weights));
        at += infer->params->blocks[b].elements;
    }
    return ERR_OK;
}

enum err infer_leave(struct infer *infer, int first, int count)
{
    const struct param_access *access = infer->access;
    if (infer->held != NULL)
        return ERR_OK;
    for (int b = first; b < first + count; b++) {
        TRY(access->release(access->arg, b));
        infer->lent[b] = NULL;
    }
    return ERR_OK;
}

/* --- tensors --- */

static const struct infer_held *held_of(const struct infer *infer, int block,
                                        enum param_role role)
{
    return &infer->held[block * PARAM_ROLES + (int)role];
}

static const float *lent_of(const struct infer *infer, int block,
                            enum param_role role)
{
    int64_t place = infer->params->blocks[block].place[role];
    assert(infer->lent[block] != NULL);
    return place < 0 ? NULL : infer->lent[block] + place;
}

static const void *panels_of(const struct infer *infer,
                             const struct infer_held *held)
{
    assert(held->there && held->elements == 0);
    return infer->weights.base + held->at;
}

const float *infer_vector(const struct infer *infer, int block,
                          enum param_role role)
{
    if (infer->held == NULL)
        return lent_of(infer, block, role);
    const struct infer_held *held = held_of(infer, block, role);
    assert(!held->there || held->elements > 0);
    const void *vector = infer->weights.base + held->at;
    return held->there ? vector : NULL;
}

enum err infer_embedding(struct infer *infer, int64_t count,
                         const int32_t *rows, float *out)
{
    int64_t d = infer->config.d_model;
    struct kernel_ctx ctx = infer_ctx(infer, count * d);
    if (infer->held == NULL)
        return infer->kernels->embedding_forward(
            &ctx, DTYPE_F32, count, count, d, rows,
            lent_of(infer, 0, PARAM_WTE), NULL, out);
    const struct infer_held *held = held_of(infer, 0, PARAM_WTE);
    return infer->kernels->panels_rows(
        &ctx, &held->shape, panels_of(infer, held), count, rows, out);
}

/* --- products --- */

enum err infer_linear(struct infer *infer, int block, enum param_role role,
                      int64_t rows, int64_t out, int64_t in, const float *x,
                      const float *bias, float *y)
{
    if (infer->held == NULL) {
        const struct gemm gemm = { .form = GEMM_NT,
                                   .m = rows,
                                   .n = out,
                                   .k = in,
                                   .a = x,
                                   .b = lent_of(infer, block, role),
                                   .c = y,
                                   .bias = bias };
        return infer->kernels->gemm(&infer->ctx, DTYPE_F32, &gemm);
    }
    const struct infer_held *held = held_of(infer, block, role);
    const struct panels_product product = { .shape = held->shape,
                                            .panels = panels_of(infer, held),
                                            .m = rows,
                                            .a = x,
                                            .c = y,
                                            .bias = bias };
    assert(held->shape.n == out && held->shape.k == in);
    return infer->kernels->panels_product(&infer->ctx, &product);
}

/* The block of a layer's that has the experts' matrices of a kind. */
static int experts_block(const struct infer *infer, int block,
                         enum param_role role)
{
    int b = block;
    while (infer->params->blocks[b].place[role] < 0)
        b++;
    assert(b > block && b < block + infer->params->layer_blocks);
    return b;
}

enum err infer_experts_linear(struct infer *infer, int block,
                              enum param_role role, int64_t rows, int64_t out,
                              int64_t in, const float *x, float *y)
{
    int b = experts_block(infer, block, role);
    if (infer->held == NULL) {
        const struct grouped_gemm gemm = { .form = role == PARAM_EXPERTS_DOWN
                                                       ? GEMM_NN
                                                       : GEMM_NT,
                                           .groups = (int)infer->config.experts,
                                           .offsets = infer->work.offsets,
                                           .n = out,
                                           .k = in,
                                           .a = x,
                                           .b = lent_of(infer, b, role),
                                           .c = y };
        return infer->kernels->grouped_gemm(&infer->ctx, DTYPE_F32, &gemm);
    }
    const struct infer_held *held = held_of(infer, b, role);
    const struct panels_product product = { .shape = held->shape,
                                            .panels = panels_of(infer, held),
                                            .m = rows,
                                            .offsets = infer->work.offsets,
                                            .a = x,
                                            .c = y };
    return infer->kernels->panels_product(&infer->ctx, &product);
}
