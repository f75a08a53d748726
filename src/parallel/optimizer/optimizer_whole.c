/* What optimizers of whole tensors share. */
#include "src/parallel/optimizer/optimizer_whole.h"

#include <assert.h>

/* Chains that are summed beside each other, which vectors can hold. */
#define LANES 8

int64_t optimizer_experts(const struct params *params,
                          const struct param *param)
{
    bool experts = param->role == PARAM_EXPERTS_GATE ||
                   param->role == PARAM_EXPERTS_UP ||
                   param->role == PARAM_EXPERTS_DOWN;
    int layer = experts ? params_layer(params, param->block) : 0;
    const struct params *all[] = { params, params->frozen };
    for (int i = 0; i < 2 && experts && all[i] != NULL; i++)
        for (int p = 0; p < all[i]->count; p++)
            if (all[i]->list[p].role == PARAM_ROUTER &&
                params_layer(params, all[i]->list[p].block) == layer)
                return all[i]->list[p].shape[0];
    return 1;
}

int optimizer_layers(const struct param *param)
{
    return param->role == PARAM_WQKV_WEIGHT ? 3 : 1;
}

void optimizer_layer_rows(const struct param *param, int layer, int64_t *first,
                          int64_t *rows)
{
    *first = 0;
    *rows = param->shape[0];
    if (param->role != PARAM_WQKV_WEIGHT)
        return;
    int64_t queries = param->tail / param->shape[1];
    *rows = layer == 0 ? queries : (param->shape[0] - queries) / 2;
    *first = layer == 0 ? 0 : queries + (layer - 1) * *rows;
}

int64_t optimizer_sums(int64_t n)
{
    return (n + KERNEL_CHUNK - 1) / KERNEL_CHUNK;
}

double optimizer_squares(int64_t n, const float *x, float a, const float *y,
                         float b)
{
    double lanes[LANES] = { 0 };
    double sum = 0.0;
    assert(n >= 0);
    for (int64_t i = 0; i < n; i += LANES)
        for (int64_t l = 0; l < LANES && i + l < n; l++) {
            float value = a * x[i + l];
            value = y != NULL ? value + b * y[i + l] : value;
            lanes[l] += (double)value * (double)value;
        }
    for (int l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

double optimizer_sum_squares(const struct kernel_ctx *ctx, int64_t n,
                             const float *x, float a, const float *y, float b,
                             double *sums)
{
    int64_t chunks = optimizer_sums(n);
    double sum = 0.0;
#pragma omp parallel for num_threads(ctx->threads) schedule(static)
    for (int64_t c = 0; c < chunks; c++) {
        int64_t at = c * KERNEL_CHUNK;
        int64_t count = n - at < KERNEL_CHUNK ? n - at : KERNEL_CHUNK;
        sums[c] =
            optimizer_squares(count, x + at, a, y != NULL ? y + at : NULL, b);
    }
    for (int64_t c = 0; c < chunks; c++)
        sum += sums[c];
    return sum;
}
