/* Products of blocks in 8 bits (Micikevicius et al. 2022): E4M3 for activations
 * and weights, E5M2 for gradients. Operands are made anew for each product, in
 * workspace that all linear layers share, by scales that were there before.
 *
 * A scale brings the largest number of a tensor near that of its format, else
 * gradients would vanish and activations be cut off. The largest number is known
 * only when all were read, so the scale is made from those of former steps
 * (trainer_fp8.h), and the rounding finds today's on its way. Scales are numbers
 * on the device, not arguments: they change and the calls do not, so a leaf can
 * be kept as a graph.
 *
 * The three products of a layer and their operands:
 *
 *     y  = x W^T        x by rows, W by rows
 *     dx = dy W         dy by rows, W turned
 *     dW = dy^T x       dy turned, x turned
 *
 * as the index that is summed over must be innermost in both. Forward may add
 * in the tensor cores' short sums, for an error there is one of activations;
 * gradients, which are summed over steps, have the full ones. */
#include <assert.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/model/model_impl.h"

#define ALIGN 16 /* of rows and columns of what is quantized */
#define E4M3_LARGEST 448.0f
#define E5M2_LARGEST 57344.0f

/* What a linear layer has scales for. */
enum operand { OPERAND_X, OPERAND_W, OPERAND_DY, OPERANDS };

/* What quantize() does with one of them. */
struct quantized {
    enum operand operand;
    int64_t rows, cols;
    const void *x;
    void *y, *across;
};

int64_t model_fp8_count(const struct model_config *config)
{
    return config->n_layers * LINEARS_FP8 * OPERANDS;
}

float model_fp8_largest(int64_t number)
{
    assert(number >= 0);
    return number % OPERANDS == OPERAND_DY ? E5M2_LARGEST : E4M3_LARGEST;
}

/* --- memory --- */

static void *take_larger(struct arena *arena, int64_t a, int64_t b)
{
    return arena_take(arena, (size_t)(a > b ? a : b));
}

void model_fp8_layout(struct model *model, int64_t n, struct arena *arena)
{
    struct fp8_products *fp8 = &model->fp8;
    const struct model_config *config = &model->config;
    size_t bytes = (size_t)model_fp8_count(config) * sizeof(float);
    bool dense = config->experts == 0;
    int64_t d = config->d_model, q = model_config_queries(config);
    int64_t width = dense && config->ffn_width > q ? config->ffn_width : q;
    int64_t hidden = dense ? model->hidden_width : 0;
    int64_t out = hidden > model->qkv_width ? hidden : model->qkv_width;
    if (!model->options.fp8)
        return;
    fp8->scale = arena_take(arena, bytes);
    fp8->unscale = arena_take(arena, bytes);
    fp8->largest = arena_take(arena, bytes);
    fp8->uncounted = arena_take(arena, sizeof(float));
    fp8->x = take_larger(arena, n * d, n * width);
    fp8->w = take_larger(arena, d * out, d * width);
    fp8->dy = take_larger(arena, n * d, n * out);
    fp8->dy_across = take_larger(arena, n * d, n * out);
}

/* Sets all scales to 1, which they are until the caller sets others. */
enum err model_fp8_create(struct model *model)
{
    enum err rc = ERR_OK;
    size_t count = (size_t)model_fp8_count(&model->config);
    float *ones = NULL;
    if (!model->options.fp8)
        return ERR_OK;
    if (model->kernels->quantize == NULL)
        return err_set(ERR_UNSUPPORTED,
                       "train.precision = fp8: %s/%s has no 8-bit floats: use "
                       "bf16",
                       model->kernels->backend, model->kernels->kernel_set);
    TRY(new_room(&ones, count));
    for (size_t i = 0; i < count; i++)
        ones[i] = 1.0f;
    TRY_OUT(model_fp8_upload(model, ones, ones));
    TRY_OUT(model->kernels->memory->wait(model->ctx.stream));
out:
    free(ones);
    return rc;
}

/* --- scales --- */

enum err model_fp8_upload(struct model *model, const float *scale,
                          const float *unscale)
{
    const struct kernel_memory *memory = model->kernels->memory;
    size_t bytes = (size_t)model_fp8_count(&model->config) * sizeof(float);
    assert(model->options.fp8);
    TRY(memory->upload(model->ctx.stream, bytes, scale, model->fp8.scale));
    return memory->upload(model->ctx.stream, bytes, unscale,
                          model->fp8.unscale);
}

enum err model_fp8_clear(struct model *model)
{
    if (!model->options.fp8)
        return ERR_OK;
    return model->kernels->zero(&model->ctx, DTYPE_F32,
                                model_fp8_count(&model->config),
                                model->fp8.largest);
}

enum err model_fp8_download(struct model *model, float *largest)
{
    assert(model->options.fp8);
    return model->kernels->memory->download(
        model->ctx.stream,
        (size_t)model_fp8_count(&model->config) * sizeof(float),
        model->fp8.largest, largest);
}

/* --- products --- */

static int64_t number_of(const struct pass *pass, enum linear linear,
                         enum operand operand)
{
    int64_t layer = (int64_t)pass->number * LINEARS_FP8;
    assert(linear < LINEARS_FP8 && operand < OPERANDS);
    return (layer + (int64_t)linear) * OPERANDS + (int64_t)operand;
}

static enum err quantize(struct pass *pass, enum linear linear,
                         const struct quantized *q)
{
    const struct model *model = pass->model;
    const struct fp8_products *fp8 = &model->fp8;
    int64_t number = number_of(pass, linear, q->operand);
    enum fp8 type = q->operand == OPERAND_DY ? FP8_E5M2 : FP8_E4M3;
    bool counts = model->loss_tokens > 0;
    assert(q->rows % ALIGN == 0 && q->cols % ALIGN == 0);
    return model->kernels->quantize(
        &model->ctx, type, q->rows, q->cols, q->x, fp8->scale + number, q->y,
        q->across, counts ? fp8->largest + number : fp8->uncounted);
}

enum err model_fp8_linear(struct pass *pass, enum linear linear, int64_t out,
                          int64_t in, const void *x, const void *weight,
                          const void *bias, void *y)
{
    const struct model *model = pass->model;
    const struct fp8_products *fp8 = &model->fp8;
    struct quantized qx = { OPERAND_X, pass->n, in, x, fp8->x, NULL };
    struct quantized qw = { OPERAND_W, out, in, weight, fp8->w, NULL };
    struct gemm_fp8 gemm = {
        GEMM_FP8_OF(pass->n, out, in, FP8_E4M3, FP8_E4M3, DTYPE_BF16, fp8->x,
                    fp8->w, y),
        .unscale_a = fp8->unscale + number_of(pass, linear, OPERAND_X),
        .unscale_b = fp8->unscale + number_of(pass, linear, OPERAND_W),
        .bias = bias, .fast = true
    };
    TRY(quantize(pass, linear, &qx));
    TRY(quantize(pass, linear, &qw));
    return model->kernels->gemm_fp8(&model->ctx, &gemm);
}

enum err model_fp8_linear_backward(struct pass *pass, enum linear linear,
                                   int64_t out, int64_t in, const void *dy,
                                   const void *x, const void *weight, void *dx,
                                   float *dweight)
{
    const struct model *model = pass->model;
    const struct fp8_products *fp8 = &model->fp8;
    const float *unscale = fp8->unscale;
    struct quantized qdy = { OPERAND_DY, pass->n, out,
                             dy,         fp8->dy, fp8->dy_across };
    struct quantized qx = { OPERAND_X, pass->n, in, x, NULL, fp8->x };
    struct quantized qw = { OPERAND_W, out, in, weight, NULL, fp8->w };
    struct gemm_fp8 inputs = {
        GEMM_FP8_OF(pass->n, in, out, FP8_E5M2, FP8_E4M3, DTYPE_BF16, fp8->dy,
                    fp8->w, dx),
        .unscale_a = unscale + number_of(pass, linear, OPERAND_DY),
        .unscale_b = unscale + number_of(pass, linear, OPERAND_W)
    };
    struct gemm_fp8 weights = {
        GEMM_FP8_OF(out, in, pass->n, FP8_E5M2, FP8_E4M3, DTYPE_F32,
                    fp8->dy_across, fp8->x, dweight),
        .unscale_a = inputs.unscale_a,
        .unscale_b = unscale + number_of(pass, linear, OPERAND_X),
        .accumulate = !model->begins
    };
    TRY(quantize(pass, linear, &qdy));
    TRY(quantize(pass, linear, &qx));
    TRY(quantize(pass, linear, &qw));
    TRY(model->kernels->gemm_fp8(&model->ctx, &inputs));
    return model->kernels->gemm_fp8(&model->ctx, &weights);
}
