/* Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon): Nesterov
 * momentum whose singular values are all brought near 1 by Newton-Schulz
 * iterations, for the matrices between embedding and head; the rest is AdamW's.
 * Decay, rate and momentum are as in torch.optim.Muon, products are fp32.
 *
 * Queries, keys and values are three matrices, each expert's are its own: what
 * is a layer of its own elsewhere is orthogonalized by itself. */
#include <assert.h>
#include <math.h>

#include "src/parallel/optimizer/optimizer_whole.h"

#define EPS 1e-7 /* below which a matrix counts as of this norm */

/* The quintic's coefficients. */
#define NS_A 3.4445f
#define NS_B (-4.7750f)
#define NS_C 2.0315f

/* One matrix [rows, columns] of a tensor. */
struct matrix {
    int64_t begin; /* in the tensor */
    int64_t rows, columns;
    bool transposed; /* it is that of the layer's weight */
};

static bool muon_takes(const struct param *param)
{
    return param->dims == 2 && param->role != PARAM_WTE &&
           param->role != PARAM_WPE && param->role != PARAM_LM_HEAD &&
           param->role != PARAM_ROUTER;
}

/* The tensor's matrix of this number; false: it has no more. */
static bool matrix_at(const struct params *params, const struct param *param,
                      int64_t number, struct matrix *out)
{
    int64_t columns = param->shape[1];
    int64_t parts = optimizer_experts(params, param);
    int64_t rows = param->shape[0] / parts;
    assert(param->dims == 2 && param->shape[0] % parts == 0);
    int64_t begin = number * rows;
    if (optimizer_layers(param) > 1) {
        parts = optimizer_layers(param);
        optimizer_layer_rows(param, (int)number, &begin, &rows);
    }
    *out = (struct matrix){ .begin = begin * columns,
                            .rows = rows,
                            .columns = columns,
                            .transposed = param->role == PARAM_EXPERTS_DOWN };
    return number < parts;
}

/* The matrix and its next one, two Gram matrices of the shorter side, and the
 * partial sums of a norm. No matrix is larger than its tensor. */
static int64_t muon_scratch(const struct param *param)
{
    int64_t side =
        param->shape[0] < param->shape[1] ? param->shape[0] : param->shape[1];
    return 2 * param->numel + 2 * side * side +
           2 * optimizer_sums(param->numel) + 16;
}

struct work {
    float *x, *next, *gram, *square;
    double *sums;
};

static struct work work_of(const struct param *param, float *scratch)
{
    int64_t side =
        param->shape[0] < param->shape[1] ? param->shape[0] : param->shape[1];
    struct work work;
    work.sums = (double *)(void *)scratch;
    work.x = scratch + (2 * optimizer_sums(param->numel) + 15) / 16 * 16;
    work.next = work.x + param->numel;
    work.gram = work.next + param->numel;
    work.square = work.gram + side * side;
    return work;
}

static void scale(const struct kernel_ctx *ctx, int64_t n, float *x,
                  float factor)
{
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

/* y = a x + b y */
static void combine(const struct kernel_ctx *ctx, int64_t n, float a,
                    const float *x, float b, float *y)
{
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        y[i] = a * x[i] + b * y[i];
}

/* For a wide X: G = X X^T, X = a X + (b G + c G G) X; for a tall one the same
 * with its transpose. G and its square are symmetric to the bit, as both halves
 * add the same products in the same order. */
static enum err iterate(const struct kernels *kernels,
                        const struct kernel_ctx *ctx, const struct matrix *m,
                        struct work *work)
{
    bool tall = m->rows > m->columns;
    int64_t side = tall ? m->columns : m->rows;
    const struct gemm gram = { GEMM_OF(tall ? GEMM_TN : GEMM_NT, side, side,
                                       tall ? m->rows : m->columns, work->x,
                                       work->x, work->gram) };
    const struct gemm square = { GEMM_OF(GEMM_NN, side, side, side, work->gram,
                                         work->gram, work->square) };
    const struct gemm next = { GEMM_OF(
        GEMM_NN, m->rows, m->columns, side, tall ? work->x : work->square,
        tall ? work->square : work->x, work->next) };
    TRY(kernels->gemm(ctx, DTYPE_F32, &gram));
    TRY(kernels->gemm(ctx, DTYPE_F32, &square));
    combine(ctx, side * side, NS_B, work->gram, NS_C, work->square);
    TRY(kernels->gemm(ctx, DTYPE_F32, &next));
    combine(ctx, m->rows * m->columns, NS_A, work->x, 1.0f, work->next);
    float *x = work->x;
    work->x = work->next;
    work->next = x;
    return ERR_OK;
}

/* The momentum of the matrix goes on; x is what is to be orthogonalized. */
static void gather_momentum(const struct optimizer_step *step,
                            const struct kernel_ctx *ctx, int64_t n,
                            const float *gradient, float *momentum, float *x)
{
    const float keep = (float)step->momentum;
    const float fresh = (float)(1.0 - step->momentum);
    const float grad_scale = (float)step->grad_scale;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < n; i++) {
        float slope = gradient[i] * grad_scale;
        float mean = keep * momentum[i] + fresh * slope;
        momentum[i] = mean;
        x[i] = keep * mean + fresh * slope;
    }
}

/* The matrix's rate: so that the update has the size that it should have. */
static double rate_of(const struct optimizer_step *step, const struct matrix *m)
{
    double rows = (double)(m->transposed ? m->columns : m->rows);
    double columns = (double)(m->transposed ? m->rows : m->columns);
    return step->adjust_lr == ADJUST_MATCH_RMS
               ? step->lr * 0.2 * sqrt(fmax(rows, columns))
               : step->lr * sqrt(fmax(1.0, rows / columns));
}

static enum err update_matrix(const struct optimizer_step *step,
                              const struct kernels *kernels,
                              const struct kernel_ctx *ctx,
                              const struct optimizer_partition *partition,
                              const struct matrix *m)
{
    int64_t n = m->rows * m->columns;
    float *weights = partition->weights + m->begin;
    struct work work = work_of(partition->tensor, partition->scratch);
    gather_momentum(step, ctx, n, partition->gradient + m->begin,
                    partition->moments[0] + m->begin, work.x);
    double norm = sqrt(
        optimizer_sum_squares(ctx, n, work.x, 1.0f, NULL, 0.0f, work.sums));
    scale(ctx, n, work.x, (float)(1.0 / fmax(norm, EPS)));
    for (int64_t i = 0; i < step->ns_steps; i++)
        TRY(iterate(kernels, ctx, m, &work));
    combine(ctx, n, -(float)rate_of(step, m), work.x,
            (float)(1.0 - step->decay), weights);
    return ERR_OK;
}

static enum err muon_update(const struct optimizer_step *step,
                            const struct kernels *kernels,
                            const struct kernel_ctx *ctx,
                            const struct optimizer_partition *partition)
{
    struct matrix m;
    assert(muon_takes(partition->tensor));
    assert(partition->elements == partition->tensor->numel);
    for (int64_t i = 0; matrix_at(partition->params, partition->tensor, i, &m);
         i++)
        TRY(update_matrix(step, kernels, ctx, partition, &m));
    return ERR_OK;
}

const struct optimizer_ops optimizer_muon = {
    .name = "muon",
    .moments = { "momentum_buffer" },
    .whole_tensors = true,
    .decay_by_lr = true,
    .uses = "momentum ns_steps adjust_lr",
    .takes = muon_takes,
    .other = &optimizer_torch_adamw,
    .scratch = muon_scratch,
    .update = muon_update,
};
