/* What adapters of low rank compute beside the product of their linear layer
 * (lora.h). The factor alpha / rank goes to the rows of `rank` numbers, where it
 * is cheapest. */
#include <assert.h>

#include "src/model/model_impl.h"

/* Where an adapter of the layer at hand is. */
struct adapter {
    struct lora_shape shape;
    const void *a, *b;
    float *da, *db; /* NULL in forward */
    struct random_place random;
};

/* false: the layer has none. */
static bool find(const struct pass *pass, enum lora_layer layer,
                 struct adapter *out)
{
    const struct model *model = pass->model;
    *out = (struct adapter){ .a = pass_weight(pass, param_lora_a(layer)) };
    if (out->a == NULL || !lora_shape(&model->config, layer, &out->shape))
        return false;
    out->b = pass_weight(pass, param_lora_b(layer));
    if (pass->gradient != NULL) {
        out->da = pass_gradient(pass, param_lora_a(layer));
        out->db = pass_gradient(pass, param_lora_b(layer));
    }
    out->random =
        model_random(pass, pass->training ? model->options.lora.dropout : 0.0,
                     pass->layer->dropout_lora[layer]);
    return true;
}

/* --- memory --- */

void model_lora_layout(struct model *model, int64_t n, struct arena *arena)
{
    const struct lora_options *options = &model->options.lora;
    size_t item = dtype_bytes(model->options.dtype);
    int64_t in = 0, out = 0;
    bool slices = false;
    if (options->rank == 0)
        return;
    for (int64_t i = 0; i < model->config.n_layers * LORA_LAYERS; i++) {
        enum lora_layer layer = (enum lora_layer)(i % LORA_LAYERS);
        struct lora_shape shape;
        if (!lora_shape(&model->config, layer, &shape) ||
            !lora_is_target(options->targets, (int)(i / LORA_LAYERS), layer))
            continue;
        in = shape.in > in ? shape.in : in;
        out = shape.out > out ? shape.out : out;
        slices |= shape.out < shape.width;
    }
    size_t row = (size_t)n * item;
    struct lora_products *lora = &model->lora;
    if (options->dropout > 0.0)
        lora->x = arena_take(arena, row * (size_t)in);
    lora->low = arena_take(arena, row * (size_t)options->rank);
    lora->dlow = arena_take(arena, row * (size_t)options->rank);
    if (slices)
        lora->slice = arena_take(arena, row * (size_t)out);
    lora->part = arena_take(arena, row * (size_t)(in > out ? in : out));
}

/* --- parts of both ways --- */

static enum err multiply(const struct model *model, enum gemm_form form,
                         int64_t m, int64_t n, int64_t k, const void *a,
                         const void *b, void *c)
{
    struct gemm gemm = {
        .form = form, .m = m, .n = n, .k = k, .a = a, .b = b, .c = c
    };
    return model->kernels->gemm(&model->ctx, model->options.dtype, &gemm);
}

/* dweight[m, n] += a^T b over the pass's rows. */
static enum err add_gradient(const struct pass *pass, int64_t m, int64_t n,
                             const void *a, const void *b, float *dweight)
{
    const struct model *model = pass->model;
    struct gemm gemm = { .form = GEMM_TN,
                         .m = m,
                         .n = n,
                         .k = pass->n,
                         .a = a,
                         .b = b,
                         .c = dweight,
                         .accumulate = true,
                         .begins = model->begins };
    return model->kernels->gemm(&model->ctx, model->options.dtype, &gemm);
}

static enum err drop(const struct pass *pass, const struct adapter *adapter,
                     const void *x, void *y)
{
    const struct model *model = pass->model;
    return model->kernels->dropout(
        &model->ctx, model->options.dtype, pass->leaf.samples,
        pass->leaf.seq_len * adapter->shape.in,
        (float)model->options.lora.dropout, &adapter->random, 1.0f, x, y);
}

/* x *= alpha / rank, [n, rank]. */
static enum err scale(const struct pass *pass, const struct adapter *adapter,
                      void *x)
{
    const struct model *model = pass->model;
    const struct lora_options *lora = &model->options.lora;
    return model->kernels->dropout(
        &model->ctx, model->options.dtype, 1, pass->n * lora->rank, 0.0f,
        &adapter->random, (float)(lora->alpha / (double)lora->rank), x, x);
}

/* lora.low, and in *dropped what it was made of: x, or lora.x. */
static enum err make_low(const struct pass *pass, const struct adapter *adapter,
                         const void *x, const void **dropped)
{
    const struct model *model = pass->model;
    const struct lora_products *lora = &model->lora;
    *dropped = x;
    if (pass->training && lora->x != NULL) {
        TRY(drop(pass, adapter, x, lora->x));
        *dropped = lora->x;
    }
    TRY(multiply(model, GEMM_NT, pass->n, model->options.lora.rank,
                 adapter->shape.in, *dropped, adapter->a, lora->low));
    return scale(pass, adapter, lora->low);
}

/* Columns of rows that are `shape.width` wide, from and to lora.slice. */
static enum err take_slice(const struct pass *pass,
                           const struct lora_shape *shape, const void *rows)
{
    const struct model *model = pass->model;
    return model->kernels->copy_rows(
        &model->ctx, model->options.dtype, pass->n, shape->out, shape->width,
        at(model, rows, shape->at), shape->out, model->lora.slice);
}

static enum err give_slice(const struct pass *pass,
                           const struct lora_shape *shape, void *rows)
{
    const struct model *model = pass->model;
    return model->kernels->copy_rows(&model->ctx, model->options.dtype, pass->n,
                                     shape->out, shape->out, model->lora.slice,
                                     shape->width, at(model, rows, shape->at));
}

/* --- both ways --- */

static enum err forward(const struct pass *pass, const struct adapter *adapter,
                        const void *x, void *y)
{
    const struct model *model = pass->model;
    const struct kernels *k = model->kernels;
    const struct lora_products *lora = &model->lora;
    const struct lora_shape *shape = &adapter->shape;
    int64_t count = pass->n * shape->out;
    const void *dropped;
    TRY(make_low(pass, adapter, x, &dropped));
    TRY(multiply(model, GEMM_NT, pass->n, shape->out, model->options.lora.rank,
                 lora->low, adapter->b, lora->part));
    if (shape->out == shape->width)
        return k->accumulate(&model->ctx, model->options.dtype, count,
                             lora->part, y);
    TRY(take_slice(pass, shape, y));
    TRY(k->accumulate(&model->ctx, model->options.dtype, count, lora->part,
                      lora->slice));
    return give_slice(pass, shape, y);
}

static enum err backward(const struct pass *pass, const struct adapter *adapter,
                         const void *dy, const void *x, void *dx)
{
    const struct model *model = pass->model;
    const struct lora_products *lora = &model->lora;
    const struct lora_shape *shape = &adapter->shape;
    int64_t rank = model->options.lora.rank;
    const void *dropped;
    assert(adapter->da != NULL && adapter->db != NULL);
    if (shape->out < shape->width) {
        TRY(take_slice(pass, shape, dy));
        dy = lora->slice;
    }
    TRY(make_low(pass, adapter, x, &dropped));
    TRY(add_gradient(pass, shape->out, rank, dy, lora->low, adapter->db));
    TRY(multiply(model, GEMM_NN, pass->n, rank, shape->out, dy, adapter->b,
                 lora->dlow));
    TRY(scale(pass, adapter, lora->dlow));
    TRY(add_gradient(pass, rank, shape->in, lora->dlow, dropped, adapter->da));
    TRY(multiply(model, GEMM_NN, pass->n, shape->in, rank, lora->dlow,
                 adapter->a, lora->part));
    if (dropped != x)
        TRY(drop(pass, adapter, lora->part, lora->part));
    return model->kernels->accumulate(&model->ctx, model->options.dtype,
                                      pass->n * shape->in, lora->part, dx);
}

enum err model_lora_forward(struct pass *pass, enum linear linear,
                            const void *x, void *y)
{
    const struct block_linear l = block_linear(&pass->model->config, linear);
    struct adapter adapter;
    if (pass->model->options.lora.rank == 0)
        return ERR_OK;
    for (int i = l.lora; i < l.lora_end; i++)
        if (find(pass, (enum lora_layer)i, &adapter))
            TRY(forward(pass, &adapter, x, y));
    return ERR_OK;
}

enum err model_lora_backward(struct pass *pass, enum linear linear,
                             const void *dy, const void *x, void *dx)
{
    const struct block_linear l = block_linear(&pass->model->config, linear);
    struct adapter adapter;
    if (pass->model->options.lora.rank == 0)
        return ERR_OK;
    for (int i = l.lora; i < l.lora_end; i++)
        if (find(pass, (enum lora_layer)i, &adapter))
            TRY(backward(pass, &adapter, dy, x, dx));
    return ERR_OK;
}
