/* What adapters of low rank add to the product of their linear layer (lora.h),
 * in the order of src/model/model_lora.c: the factor alpha / rank goes to the
 * rows of `rank` numbers, and what comes of them is added to the product. */
#include "src/infer/infer_impl.h"

/* Whether a layer of this block has an adapter. */
static bool is_adapted(const struct infer *infer, int block,
                       enum lora_layer layer)
{
    return infer->params->blocks[block].place[param_lora_a(layer)] >= 0;
}

void infer_lora_layout(struct infer *infer, struct arena *arena)
{
    struct infer_work *work = &infer->work;
    size_t row = (size_t)infer->options.rows * sizeof(float);
    int64_t widest = 0;
    bool slices = false;
    for (int i = 0; i < infer->config.n_layers * LORA_LAYERS; i++) {
        enum lora_layer layer = (enum lora_layer)(i % LORA_LAYERS);
        int block = params_layer_block(infer->params, i / LORA_LAYERS);
        struct lora_shape shape;
        if (!lora_shape(&infer->config, layer, &shape) ||
            !is_adapted(infer, block, layer))
            continue;
        widest = shape.out > widest ? shape.out : widest;
        slices |= shape.out < shape.width;
    }
    if (widest == 0)
        return;
    work->low = arena_take(arena, row * (size_t)infer->params->lora_rank);
    work->part = arena_take(arena, row * (size_t)widest);
    if (slices)
        work->slice = arena_take(arena, row * (size_t)widest);
}

/* work.low *= alpha / rank. */
static enum err scale(struct infer *infer, int64_t rows)
{
    const struct random_place none = { 0 };
    int64_t rank = infer->params->lora_rank;
    struct kernel_ctx ctx = infer_ctx(infer, rows * rank);
    return infer->kernels->dropout(
        &ctx, DTYPE_F32, 1, rows * rank, 0.0f, &none,
        (float)(infer->options.lora_alpha / (double)rank), infer->work.low,
        infer->work.low);
}

/* y[rows, width] += work.part[rows, out], to the columns from `at` on. */
static enum err add_part(struct infer *infer, const struct lora_shape *shape,
                         int64_t rows, float *y)
{
    const struct kernels *k = infer->kernels;
    struct infer_work *work = &infer->work;
    struct kernel_ctx ctx = infer_ctx(infer, rows * shape->out);
    int64_t out = shape->out, width = shape->width;
    if (out == width)
        return k->accumulate(&ctx, DTYPE_F32, rows * out, work->part, y);
    TRY(k->copy_rows(&ctx, DTYPE_F32, rows, out, width, y + shape->at, out,
                     work->slice));
    TRY(k->accumulate(&ctx, DTYPE_F32, rows * out, work->part, work->slice));
    return k->copy_rows(&ctx, DTYPE_F32, rows, out, out, work->slice, width,
                        y + shape->at);
}

static enum err add_adapter(struct infer *infer, int block,
                            enum lora_layer layer, int64_t rows, const float *x,
                            float *y)
{
    struct lora_shape shape;
    int64_t rank = infer->params->lora_rank;
    (void)lora_shape(&infer->config, layer, &shape);
    TRY(infer_product(infer, block, param_lora_a(layer), rows, rank, shape.in,
                      x, NULL, infer->work.low));
    TRY(scale(infer, rows));
    TRY(infer_product(infer, block, param_lora_b(layer), rows, shape.out, rank,
                      infer->work.low, NULL, infer->work.part));
    return add_part(infer, &shape, rows, y);
}

enum err infer_lora(struct infer *infer, int block, enum linear linear,
                    const float *x, float *y)
{
    const struct block_linear l = block_linear(&infer->config, linear);
    for (int i = l.lora; i < l.lora_end; i++)
        if (is_adapted(infer, block, (enum lora_layer)i))
            TRY(add_adapter(infer, block, (enum lora_layer)i, infer->n, x, y));
    return ERR_OK;
}
