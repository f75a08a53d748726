/* Weights on their way to the ops: those of a block that is held, or that was
 * gathered for the call at hand. The engine walks its blocks in one order and
 * asks by block and role; only here is it known which of the two it is. What is
 * lent in bf16 is widened into a buffer, since all ops of the engine are fp32. */
#include <assert.h>

#include "src/infer/infer_impl.h"

/* --- blocks that are lent --- */

int64_t infer_block_elements(const struct infer *infer, int block)
{
    int64_t elements = 0;
    const struct params *params = infer->params;
    for (; params != NULL; params = params->frozen)
        elements += params->blocks[block].elements;
    return elements;
}

/* Elements that are widened at a time: a layer's blocks, or both ends'. */
static int64_t widened_elements(const struct infer *infer)
{
    const struct params *params = infer->params;
    int last = params->block_count - 1;
    int64_t most =
        infer_block_elements(infer, 0) + infer_block_elements(infer, last);
    for (int b = 1; b < last; b += params->layer_blocks) {
        int64_t layer = 0;
        for (int i = 0; i < params->layer_blocks; i++)
            layer += infer_block_elements(infer, b + i);
        most = layer > most ? layer : most;
    }
    return most;
}

/* *weights [elements] becomes a copy from element `at` of the buffer on. */
static enum err widen(struct infer *infer, int64_t elements, int64_t at,
                      const float **weights)
{
    if (infer->widened.base == NULL) {
        size_t bytes = (size_t)widened_elements(infer) * sizeof(float);
        TRY(infer->kernels->memory->tensors_create(bytes, &infer->widened));
        (void)arena_take(&infer->widened, bytes);
    }
    void *buffer = infer->widened.base;
    float *to = (float *)buffer + at;
    const void *from = *weights;
    *weights = to;
    return infer->kernels->convert(&infer->ctx, elements, DTYPE_BF16, from,
                                   DTYPE_F32, to);
}

/* --- experts that ranks share (expert parallelism): each has its part of them at
 * rest. Training sends tokens to the experts; here it is the experts that come, to
 * every rank, so that ranks need not have as many tokens as the others --- */

static size_t block_bytes(const struct infer *infer, int block)
{
    return (size_t)infer->params->blocks[block].elements *
           dtype_bytes(infer->options.dtype);
}

void infer_experts_layout(struct infer *infer, struct arena *arena)
{
    int first = params_layer_block(infer->params, 0);
    size_t bytes = 0;
    if (infer->options.experts == NULL)
        return;
    assert(infer->params->frozen == NULL);
    for (int i = 1; i < infer->params->layer_blocks; i++)
        bytes += block_bytes(infer, first + i);
    infer->experts = arena_take(arena, bytes);
}

/* The block's place in the room: those of a layer are of one size. */
static char *room_of(const struct infer *infer, int block)
{
    int kind = (block - 1) % infer->params->layer_blocks - 1;
    assert(kind >= 0);
    return infer->experts + (size_t)kind * block_bytes(infer, block);
}

static enum err gather_experts(struct infer *infer, int block,
                               const void **weights)
{
    const struct group_access *group = infer->options.experts;
    size_t bytes = block_bytes(infer, block) / (size_t)group->size;
    char *all = room_of(infer, block);
    TRY(infer->kernels->memory->copy(infer->ctx.stream, bytes, *weights,
                                     all + (size_t)group->rank * bytes));
    for (int i = 1; i < group->size; i++) {
        int to = (group->rank + i) % group->size;
        int from = (group->rank + group->size - i) % group->size;
        TRY(group->start(group->arg, 0, to, *weights, bytes, from,
                         all + (size_t)from * bytes, bytes));
        TRY(group->wait(group->arg, 0));
    }
    *weights = all;
    return ERR_OK;
}

/* --- blocks that are entered --- */

/* What trains of a block, or what is frozen. */
static enum err enter_part(struct infer *infer, const struct params *params,
                           int block, int64_t at, const float **out)
{
    const struct param_access *access = infer->access;
    const void *weights = NULL;
    *out = NULL;
    if (params == NULL || !params_trains(params, block))
        return ERR_OK;
    if (params == infer->params)
        TRY(access->gather(access->arg, block, &weights));
    else
        TRY(access->frozen(access->arg, block, &weights));
    if (infer->experts != NULL &&
        params->blocks[block].kind == PARAM_BLOCK_EXPERTS)
        TRY(gather_experts(infer, block, &weights));
    *out = weights;
    return infer->options.dtype == DTYPE_BF16
               ? widen(infer, params->blocks[block].elements, at, out)
               : ERR_OK;
}

enum err infer_enter(struct infer *infer, int first, int count, int64_t at)
{
    const struct param_access *access = infer->access;
    const struct params *params = infer->params;
    if (infer->held != NULL)
        return ERR_OK;
    if (access->pace != NULL)
        TRY(access->pace(access->arg));
    for (int b = first; b < first + count; b++) {
        struct infer_lent *lent = &infer->lent[b];
        TRY(enter_part(infer, params, b, at, &lent->trains));
        TRY(enter_part(infer, params->frozen, b,
                       at + params->blocks[b].elements, &lent->frozen));
        at += infer_block_elements(infer, b);
    }
    return ERR_OK;
}

/* A layer's experts before the layer, as the model does: it is the order in
 * which all ranks make these calls. */
enum err infer_leave(struct infer *infer, int first, int count)
{
    const struct param_access *access = infer->access;
    if (infer->held != NULL)
        return ERR_OK;
    for (int i = 1; i <= count; i++) {
        int b = first + i % count;
        if (params_trains(infer->params, b))
            TRY(access->release(access->arg, b));
        infer->lent[b] = (struct infer_lent){ NULL, NULL };
    }
    return ERR_OK;
}

/* --- tensors --- */

static const struct infer_held *held_of(const struct infer *infer, int block,
                                        enum param_role role)
{
    return &infer->held[block * PARAM_ROLES + (int)role];
}

const float *infer_lent(const struct infer *infer, int block,
                        enum param_role role)
{
    const struct params *params = infer->params;
    const struct infer_lent *lent = &infer->lent[block];
    int64_t place = params->blocks[block].place[role];
    assert(lent->trains != NULL || lent->frozen != NULL);
    if (place >= 0)
        return lent->trains + place;
    if (params->frozen == NULL)
        return NULL;
    place = params->frozen->blocks[block].place[role];
    return place < 0 ? NULL : lent->frozen + place;
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
        return infer_lent(infer, block, role);
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
            infer_lent(infer, 0, PARAM_WTE), NULL, out);
    const struct infer_held *held = held_of(infer, 0, PARAM_WTE);
    return infer->kernels->panels_rows(
        &ctx, &held->shape, panels_of(infer, held), count, rows, out);
}

/* --- products --- */

enum err infer_product(struct infer *infer, int block, enum param_role role,
                       int64_t rows, int64_t out, int64_t in, const float *x,
                       const float *bias, float *y)
{
    if (infer->held == NULL) {
        const struct gemm gemm = { GEMM_OF(GEMM_NT, rows, out, in, x,
                                           infer_lent(infer, block, role), y),
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

static bool has(const struct infer *infer, int block, enum param_role role)
{
    const struct params *params = infer->params;
    return params->blocks[block].place[role] >= 0 ||
           (params->frozen != NULL &&
            params->frozen->blocks[block].place[role] >= 0);
}

/* The block of a layer's that has the experts' matrices of a kind. */
static int experts_block(const struct infer *infer, int block,
                         enum param_role role)
{
    int b = block;
    while (!has(infer, b, role))
        b++;
    assert(b > block && b < block + infer->params->layer_blocks);
    return b;
}

static enum err experts(void *arg, const struct expert_rows *rows,
                        enum param_role role, int64_t out, int64_t in,
                        const void *x, void *y)
{
    struct infer *infer = arg;
    int b = experts_block(infer, infer->b.number, role);
    if (infer->held == NULL) {
        const struct grouped_gemm gemm = { GEMM_GROUPED_OF(
            role == PARAM_EXPERTS_DOWN ? GEMM_NN : GEMM_NT, rows->experts,
            rows->offsets, out, in, x, infer_lent(infer, b, role), y) };
        return infer->kernels->grouped_gemm(&infer->ctx, DTYPE_F32, &gemm);
    }
    const struct infer_held *held = held_of(infer, b, role);
    const struct panels_product product = { .shape = held->shape,
                                            .panels = panels_of(infer, held),
                                            .m = rows->count,
                                            .offsets = rows->offsets,
                                            .a = x,
                                            .c = y };
    return infer->kernels->panels_product(&infer->ctx, &product);
}

static const void *vector(const void *arg, enum param_role role)
{
    const struct infer *infer = arg;
    return infer_vector(infer, infer->b.number, role);
}

static enum err product(void *arg, enum linear linear, enum param_role role,
                        int64_t out, int64_t in, const void *x,
                        const void *bias, void *y)
{
    struct infer *infer = arg;
    (void)linear;
    return infer_product(infer, infer->b.number, role, infer->b.n, out, in, x,
                         bias, y);
}

const struct block_walker infer_walker = { .vector = vector,
                                           .product = product,
                                           .experts = experts };
