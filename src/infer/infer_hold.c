/* A copy of all weights in the form that decoding reads: matrices in panels, the
 * rest as it is.
 *
 * A step of decoding has a row or a few, and reads every weight once for them: it
 * is as fast as memory gives weights. Panels are read from their first byte to
 * their last, in the order in which the product needs them, and hold 4, 2 or about
 * 1 byte a number. The copy is made block by block, so that beside it only one
 * block of the weights need be in memory as it was. */
#include <assert.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/infer/infer_impl.h"

static const enum panel_type types[] = { [INFER_F32] = PANEL_F32,
                                         [INFER_BF16] = PANEL_BF16,
                                         [INFER_INT8] = PANEL_INT8 };

/* --- places --- */

/* Gate and up are one matrix, and their biases one vector: they touch. */
static bool is_second(const struct infer *infer, enum param_role role)
{
    return infer->config.ffn == FFN_GLU &&
           (role == PARAM_UP_WEIGHT || role == PARAM_UP_BIAS);
}

static bool is_doubled(enum param_role role)
{
    return role == PARAM_GATE_WEIGHT || role == PARAM_GATE_BIAS;
}

static struct panels matrix_of(const struct infer *infer,
                               enum infer_weights weights,
                               const struct param *param)
{
    const struct model_config *config = &infer->config;
    struct panels shape = { .type = types[weights],
                            .groups = 1,
                            .n = param->shape[0],
                            .k = param->shape[1] };
    /* small, and it decides where tokens go; or small and to be added */
    if (param->role == PARAM_ROUTER || param->role >= PARAM_LORA)
        shape.type = PANEL_F32;
    if (is_doubled(param->role))
        shape.n *= 2;
    if (param->role >= PARAM_EXPERTS_GATE &&
        param->role <= PARAM_EXPERTS_DOWN) {
        bool down = param->role == PARAM_EXPERTS_DOWN;
        shape.groups = (int)config->experts;
        shape.n = down ? config->d_model : config->ffn_width;
        shape.k = down ? config->ffn_width : config->d_model;
    }
    return shape;
}

static void layout_table(const struct infer *infer, const struct params *params,
                         enum infer_weights weights, struct infer_held *held,
                         struct arena *arena)
{
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        struct infer_held one = { .there = true, .at = arena->used };
        if (is_second(infer, param->role))
            continue;
        if (param_multiplies(param)) {
            one.shape = matrix_of(infer, weights, param);
            (void)arena_take(arena, kernels_panels_bytes(&one.shape));
        } else {
            one.elements = param->numel * (is_doubled(param->role) ? 2 : 1);
            (void)arena_take(arena, (size_t)one.elements * sizeof(float));
        }
        if (held != NULL)
            held[param->block * PARAM_ROLES + (int)param->role] = one;
    }
}

void infer_hold_layout(const struct infer *infer, enum infer_weights weights,
                       struct infer_held *held, struct arena *arena)
{
    const struct params *params = infer->params;
    for (; params != NULL; params = params->frozen)
        layout_table(infer, params, weights, held, arena);
}

/* --- the copy --- */

static enum err hold_param(struct infer *infer, const struct infer_held *held,
                           enum param_role role, const float *from)
{
    void *to = infer->weights.base + held->at;
    if (held->elements > 0)
        return infer->kernels->memory->copy(
            infer->ctx.stream, (size_t)held->elements * sizeof(float), from,
            to);
    return infer->kernels->panels_fill(&infer->ctx, &held->shape,
                                       role == PARAM_EXPERTS_DOWN, from, to);
}

static enum err hold_block(struct infer *infer, const struct infer_held *held,
                           int block)
{
    TRY(infer_enter(infer, block, 1, 0));
    for (int role = 0; role < PARAM_ROLES; role++) {
        const struct infer_held *one = &held[block * PARAM_ROLES + role];
        const float *from = infer_lent(infer, block, (enum param_role)role);
        assert(from != NULL || !one->there);
        if (one->there)
            TRY(hold_param(infer, one, (enum param_role)role, from));
    }
    return infer_leave(infer, block, 1);
}

static enum err hold_all(struct infer *infer, const struct infer_held *held,
                         size_t bytes)
{
    const struct infer_room *room = infer->options.room;
    const struct infer_room own = { NULL, 0, 1 };
    if (room != NULL)
        infer->weights = (struct arena){ room->memory, bytes, bytes };
    else
        TRY(infer->kernels->memory->tensors_create(bytes, &infer->weights));
    if (room == NULL)
        room = &own;
    for (int b = room->part; b < infer->params->block_count; b += room->parts)
        TRY(hold_block(infer, held, b));
    return infer->kernels->memory->wait(infer->ctx.stream);
}

enum err infer_hold(struct infer *infer, const struct param_access *access,
                    enum infer_weights weights)
{
    enum err rc = ERR_OK;
    const struct kernel_memory *memory = infer->kernels->memory;
    struct infer_held *held = NULL;
    struct arena plan = { 0 };
    assert(infer->held == NULL && infer->weights.base == NULL);
    assert(infer->experts == NULL);
    infer->access = access;
    TRY(new_zeroed(&held, (size_t)infer->params->block_count * PARAM_ROLES));
    infer_hold_layout(infer, weights, held, &plan);
    rc = hold_all(infer, held, plan.used);
    if (rc != ERR_OK)
        infer_hold_drop(infer);
    memory->tensors_destroy(&infer->widened);
    return new_or_none(rc, held, &infer->held, free);
}

void infer_hold_drop(struct infer *infer)
{
    if (infer->options.room == NULL)
        infer->kernels->memory->tensors_destroy(&infer->weights);
    infer->weights = (struct arena){ 0 };
}
