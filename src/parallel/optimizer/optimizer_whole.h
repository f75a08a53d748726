/* What optimizers of whole tensors share: they work in the host's memory, and
 * sum in an order that threads do not change. */
#pragma once

#include "src/parallel/optimizer/optimizer.h"

/* How many matrices of equal shape the tensor is made of: the experts', 1 of all
 * others. */
int64_t optimizer_experts(const struct params *params,
                          const struct param *param);

/* Layers that were joined into the tensor, and the rows of one of them: queries,
 * keys and values of Wqkv, 1 of all others. */
int optimizer_layers(const struct param *param);
void optimizer_layer_rows(const struct param *param, int layer, int64_t *first,
                          int64_t *rows);

/* Sum of (a x + b y)^2 in fp64, in an order that n decides; y may be NULL. */
double optimizer_squares(int64_t n, const float *x, float a, const float *y,
                         float b);

/* The same by the context's threads, chunk by chunk. sums: optimizer_sums(n)
 * doubles to work in. */
int64_t optimizer_sums(int64_t n);
double optimizer_sum_squares(const struct kernel_ctx *ctx, int64_t n,
                             const float *x, float a, const float *y, float b,
                             double *sums);
