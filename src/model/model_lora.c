/* Adapters in training (block.h): dropout before them, and the way back.
 *
 * An adapter of a frozen matrix W [out, in] is a product of two thin ones (Hu et
 * al. 2021): A [rank, in] and B [out, rank], so that with s = alpha / rank
 *
 *     low = s drop(x) A^T              y = x W^T + low B^T
 *     dB += dy^T low                   dlow = s dy B
 *     dA += dlow^T drop(x)             dx += drop'(dlow A)
 *
 * B begins at zero, so a model with adapters begins as the one without. s stands
 * where numbers are fewest, at the rows of `rank`. Backward keeps nothing: low
 * is computed again from x, which the layer has anyway, and dropout draws the
 * same numbers. An adapter of queries, keys or values adds to some columns of
 * the one product Wqkv, which are copied out and back, as products want their
 * rows without gaps. */
#include <assert.h>

#include "src/model/model_impl.h"

void model_lora_layout(struct model *model, int64_t n, struct arena *arena)
{
    const struct lora_options *options = &model->options.lora;
    struct lora_products *lora = &model->lora;
    size_t row = (size_t)n * dtype_bytes(model->options.dtype);
    int64_t in;
    lora->block.rank = options->rank;
    lora->block.alpha = options->alpha;
    block_lora_layout(&lora->block, &model->config, NULL, options->targets, row,
                      arena, &in);
    if (in > 0 && options->dropout > 0.0)
        lora->x = arena_take(arena, row * (size_t)in);
    if (in > 0)
        lora->dlow = arena_take(arena, row * (size_t)options->rank);
}

static enum err drop(struct pass *pass, enum lora_layer layer, const void *x,
                     void *y)
{
    const struct model *model = pass->model;
    double p = model->options.lora.dropout;
    struct random_place random =
        model_random(pass, p, pass->layer->dropout_lora[layer]);
    struct lora_shape shape;
    (void)lora_shape(&model->config, layer, &shape);
    return model->kernels->dropout(
        &model->ctx, model->options.dtype, pass->leaf.samples,
        pass->leaf.seq_len * shape.in, (float)p, &random, 1.0f, x, y);
}

enum err model_lora_input(void *arg, enum lora_layer layer, const void **x)
{
    struct pass *pass = arg;
    void *dropped = pass->model->lora.x;
    if (!pass->training || dropped == NULL)
        return ERR_OK;
    TRY(drop(pass, layer, *x, dropped));
    *x = dropped;
    return ERR_OK;
}

static enum err backward(struct pass *pass, enum lora_layer layer,
                         const void *dy, const void *x, void *dx)
{
    const struct model *model = pass->model;
    struct block b = model_block(pass);
    enum param_role role_a = param_lora_a(layer), role_b = param_lora_b(layer);
    int64_t n = pass->n, rank = b.lora.rank;
    void *dlow = model->lora.dlow;
    const void *dropped = x;
    struct lora_shape shape;
    (void)lora_shape(&model->config, layer, &shape);
    assert(pass->gradient != NULL);
    if (shape.out < shape.width) {
        TRY(block_lora_slice(&b, &shape, dy));
        dy = b.lora.slice;
    }
    TRY(model_lora_input(pass, layer, &dropped));
    TRY(block_lora_low(&b, layer, dropped));
    TRY(model_add_product(model, model->begins, shape.out, rank, n, dy,
                          b.lora.low, pass_gradient(pass, role_b)));
    TRY(model_multiply(model, GEMM_NN, n, rank, shape.out, dy,
                       pass_weight(pass, role_b), dlow));
    TRY(block_lora_scale(&b, dlow));
    TRY(model_add_product(model, model->begins, rank, shape.in, n, dlow,
                          dropped, pass_gradient(pass, role_a)));
    TRY(model_multiply(model, GEMM_NN, n, shape.in, rank, dlow,
                       pass_weight(pass, role_a), b.lora.part));
    if (dropped != x)
        TRY(drop(pass, layer, b.lora.part, b.lora.part));
    return model->kernels->accumulate(&model->ctx, model->options.dtype,
                                      n * shape.in, b.lora.part, dx);
}

enum err model_lora_backward(struct pass *pass, enum linear linear,
                             const void *dy, const void *x, void *dx)
{
    const struct block_linear l = block_linear(&pass->model->config, linear);
    const struct param_block *block = &pass->model->params->blocks[pass->block];
    for (int i = l.lora; i < l.lora_end; i++)
        if (block->place[param_lora_a(i)] >= 0)
            TRY(backward(pass, (enum lora_layer)i, dy, x, dx));
    return ERR_OK;
}
