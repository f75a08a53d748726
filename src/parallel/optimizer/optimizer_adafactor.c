/* Adafactor (Shazeer and Stern 2018) without a first moment and with a given
 * learning rate, as in the transformers library: of a matrix the second moment
 * is kept as the means of its rows and of its columns, of which it is estimated
 * as their outer product; an update whose root mean square is beyond the
 * threshold is scaled down to it. Queries, keys and values are layers of their
 * own; experts are matrices of their own, with the tensor's root mean square.
 */
#include <assert.h>
#include <math.h>

#include "src/base/real.h"
#include "src/parallel/optimizer/optimizer_whole.h"

#define EPS_SQUARE 1e-30 /* added to each square */
#define EPS_WEIGHT 1e-3  /* what a tensor's size counts at least as */
#define COLUMNS 64       /* that are summed together */

enum { ADAFACTOR_ALL, ADAFACTOR_ROWS, ADAFACTOR_COLUMNS };

/* Columns of several matrices are [matrices, columns]. */
static int adafactor_shape(const struct params *params,
                           const struct param *param, int state,
                           int64_t shape[2])
{
    int64_t matrices =
        optimizer_layers(param) * optimizer_experts(params, param);
    assert(state >= ADAFACTOR_ALL && state <= ADAFACTOR_COLUMNS);
    if ((param->dims == 2) == (state == ADAFACTOR_ALL))
        return 0;
    shape[0] = param->shape[0];
    if (state != ADAFACTOR_COLUMNS)
        return 1;
    shape[0] = matrices > 1 ? matrices : param->shape[1];
    shape[1] = param->shape[1];
    return matrices > 1 ? 2 : 1;
}

static int64_t sums_floats(int64_t elements)
{
    return (2 * optimizer_sums(elements) + 15) / 16 * 16;
}

/* What an update works in: the update itself, behind partial sums. */
static int64_t adafactor_scratch(const struct param *param)
{
    return sums_floats(param->numel) + param->numel;
}

struct job {
    const struct kernel_ctx *ctx;
    float scale;       /* of the gradient */
    float keep, fresh; /* of the second moment */
};

static float next(const struct job *job, float before, double mean)
{
    return job->keep * before + job->fresh * (float)(mean + EPS_SQUARE);
}

static void learn_rows(const struct job *job, int64_t rows, int64_t columns,
                       const float *g, float *row)
{
#pragma omp parallel for num_threads(job->ctx->threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        double sum =
            optimizer_squares(columns, g + r * columns, job->scale, NULL, 0.0f);
        row[r] = next(job, row[r], sum / (double)columns);
    }
}

static void learn_columns(const struct job *job, int64_t rows, int64_t columns,
                          const float *g, float *column)
{
    int64_t blocks = (columns + COLUMNS - 1) / COLUMNS;
#pragma omp parallel for num_threads(job->ctx->threads) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        double sums[COLUMNS] = { 0 };
        int64_t at = b * COLUMNS;
        int64_t n = columns - at < COLUMNS ? columns - at : COLUMNS;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < n; c++) {
                float x = job->scale * g[r * columns + at + c];
                sums[c] += (double)x * (double)x;
            }
        for (int64_t c = 0; c < n; c++)
            column[at + c] = next(job, column[at + c], sums[c] / (double)rows);
    }
}

/* u = g / sqrt(row column / mean of rows) */
static void divide(const struct job *job, int64_t rows, int64_t columns,
                   const float *g, const float *row, const float *column,
                   float *u)
{
    double mean = 0.0;
    for (int64_t r = 0; r < rows; r++)
        mean += (double)row[r];
    mean /= (double)rows;
#pragma omp parallel for num_threads(job->ctx->threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        float factor = 1.0f / sqrtf((float)((double)row[r] / mean));
        for (int64_t c = 0; c < columns; c++)
            u[r * columns + c] = job->scale * g[r * columns + c] * factor *
                                 (1.0f / sqrtf(column[c]));
    }
}

/* `count` rows from `first` on, the tensor's matrix of this number. */
static void update_of_matrix(const struct job *job,
                             const struct optimizer_partition *partition,
                             int64_t first, int64_t count, int64_t number,
                             float *u)
{
    int64_t columns = partition->tensor->shape[1];
    const float *g = partition->gradient + first * columns;
    float *row = partition->states[ADAFACTOR_ROWS] + first;
    float *column = partition->states[ADAFACTOR_COLUMNS] + number * columns;
    learn_rows(job, count, columns, g, row);
    learn_columns(job, count, columns, g, column);
    divide(job, count, columns, g, row, column, u + first * columns);
}

static void update_of_vector(const struct job *job,
                             const struct optimizer_partition *partition,
                             float *u)
{
    float *square = partition->states[ADAFACTOR_ALL];
    for (int64_t i = 0; i < partition->elements; i++) {
        float g = job->scale * partition->gradient[i];
        square[i] = next(job, square[i], (double)g * (double)g);
        u[i] = g * (1.0f / sqrtf(square[i]));
    }
}

/* The root mean square of n elements. */
static double rms_of(const struct kernel_ctx *ctx, int64_t n, const float *x,
                     double *sums)
{
    double sum = optimizer_sum_squares(ctx, n, x, 1.0f, NULL, 0.0f, sums);
    return sqrt(sum / (double)n);
}

/* A layer's weights by its update. */
static void apply(const struct optimizer_step *step,
                  const struct kernel_ctx *ctx, int64_t n, const float *u,
                  float *weights, double *sums)
{
    double size = 1.0;
    if (step->scale_parameter)
        size = fmax(EPS_WEIGHT, rms_of(ctx, n, weights, sums));
    double over = rms_of(ctx, n, u, sums) / step->clip_threshold;
    float rate = (float)(size * step->lr / fmax(1.0, over));
    float keep = (float)(1.0 - size * step->decay);
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t i = 0; i < n; i++)
        weights[i] = keep * weights[i] - rate * u[i];
}

static enum err adafactor_update(const struct optimizer_step *step,
                                 const struct kernels *kernels,
                                 const struct kernel_ctx *ctx,
                                 const struct optimizer_partition *partition)
{
    int64_t n = partition->elements;
    const struct param *tensor = partition->tensor;
    double *sums = (double *)(void *)partition->scratch;
    float *u = partition->scratch + sums_floats(n);
    double fresh = real_pow(UPDATE_AGE(step, 0), -step->decay_rate);
    const struct job job = { .ctx = ctx,
                             .scale = (float)step->grad_scale,
                             .keep = (float)(1.0 - fresh),
                             .fresh = (float)fresh };
    (void)kernels;
    assert(n == tensor->numel && partition->begin == tensor->offset);
    if (tensor->dims == 1) {
        update_of_vector(&job, partition, u);
        apply(step, ctx, n, u, partition->weights, sums);
        return ERR_OK;
    }
    for (int layer = 0; layer < optimizer_layers(tensor); layer++) {
        int64_t first, rows,
            experts = optimizer_experts(partition->params, tensor);
        optimizer_layer_rows(tensor, layer, &first, &rows);
        int64_t at = first * tensor->shape[1];
        for (int64_t e = 0; e < experts; e++)
            update_of_matrix(&job, partition, first + e * (rows / experts),
                             rows / experts, layer + e, u);
        apply(step, ctx, rows * tensor->shape[1], u + at,
              partition->weights + at, sums);
    }
    return ERR_OK;
}

const struct optimizer_ops optimizer_adafactor = {
    .name = "adafactor",
    .states = { "exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col" },
    .whole_tensors = true,
    .decay_by_lr = true,
    .uses = "clip_threshold decay_rate scale_parameter",
    .state_shape = adafactor_shape,
    .scratch = adafactor_scratch,
    .update = adafactor_update,
};
