/* What the files of the CUDA backend share, in C and in CUDA's C++.
 *
 * ctx->scratch is device memory and ctx->stream a cudaStream_t. Ops enqueue
 * kernels and return: they never wait and never allocate. The same files,
 * compiled for the processor beside an emulator (CUDA_EMULATED), make a second
 * table for tests, so every symbol says which one it belongs to. */
#ifndef TESSERA_KERNELS_CUDA_H
#define TESSERA_KERNELS_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/kernels.h"

#ifdef CUDA_EMULATED
#define CUDA_SYMBOL(name) cuda_##name##_emulated
#else
#define CUDA_SYMBOL(name) cuda_##name
#endif

/* Bytes of scratch that the op's file needs. */
size_t CUDA_SYMBOL(columns_scratch)(const struct kernel_limits *limits);
size_t CUDA_SYMBOL(norm_scratch)(const struct kernel_limits *limits);
size_t CUDA_SYMBOL(sum_scratch)(const struct kernel_limits *limits);
size_t CUDA_SYMBOL(route_scratch)(const struct kernel_limits *limits);
size_t CUDA_SYMBOL(attention_scratch)(const struct kernel_limits *limits);

enum err CUDA_SYMBOL(embedding_forward)(const struct kernel_ctx *ctx,
                                        enum dtype dtype, int64_t n,
                                        int64_t seq, int64_t d,
                                        const int32_t *tokens, const void *wte,
                                        const void *wpe, void *out);

enum err CUDA_SYMBOL(embedding_backward)(
    const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, int64_t seq,
    int64_t d, const int32_t *tokens, const void *dout, void *dwte, void *dwpe);

enum err CUDA_SYMBOL(norm_forward)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, const struct norm *norm,
                                   const void *x, const void *gamma,
                                   const void *beta, void *y, float *mean,
                                   float *rstd);

enum err CUDA_SYMBOL(add_norm_forward)(const struct kernel_ctx *ctx,
                                       enum dtype dtype,
                                       const struct norm *norm, const void *a,
                                       float scale, const void *b, void *x,
                                       const void *gamma, const void *beta,
                                       void *y, float *mean, float *rstd);

enum err CUDA_SYMBOL(norm_backward)(const struct kernel_ctx *ctx,
                                    enum dtype dtype, const struct norm *norm,
                                    const void *dy, const void *x,
                                    const void *gamma, const float *mean,
                                    const float *rstd, bool accumulate,
                                    void *dx, void *dgamma, void *dbeta);

enum err CUDA_SYMBOL(activation_forward)(const struct kernel_ctx *ctx,
                                         enum dtype dtype, enum activation act,
                                         int64_t n, const void *x, void *y);

enum err CUDA_SYMBOL(activation_backward)(const struct kernel_ctx *ctx,
                                          enum dtype dtype, enum activation act,
                                          int64_t n, const void *x,
                                          const void *dy, void *dx);

enum err CUDA_SYMBOL(glu_forward)(const struct kernel_ctx *ctx,
                                  enum dtype dtype, enum activation act,
                                  int64_t n, int64_t width, int64_t stride,
                                  const void *gate, const void *up, void *y);

enum err CUDA_SYMBOL(glu_backward)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, enum activation act,
                                   int64_t n, int64_t width, int64_t stride,
                                   const void *gate, const void *up,
                                   const void *dy, void *dgate, void *dup);

enum err CUDA_SYMBOL(clip_forward)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, int64_t n, float limit,
                                   void *x);

enum err CUDA_SYMBOL(clip_backward)(const struct kernel_ctx *ctx,
                                    enum dtype dtype, int64_t n, float limit,
                                    const void *x, void *dx);

enum err CUDA_SYMBOL(rope)(const struct kernel_ctx *ctx, enum dtype dtype,
                           int64_t n, int64_t seq, int64_t heads,
                           int64_t rotated, int64_t head_dim,
                           const float *table, bool inverse, void *x);

enum err CUDA_SYMBOL(dropout)(const struct kernel_ctx *ctx, enum dtype dtype,
                              int64_t samples, int64_t elements, float p,
                              const struct random_place *random, float scale,
                              const void *x, void *y);

enum err CUDA_SYMBOL(jitter)(const struct kernel_ctx *ctx, enum dtype dtype,
                             int64_t samples, int64_t elements, float amount,
                             const struct random_place *random, const void *x,
                             void *y);

enum err CUDA_SYMBOL(attention_forward)(const struct kernel_ctx *ctx,
                                        enum dtype dtype,
                                        const struct attention *shape,
                                        const void *qkv, void *out, float *lse);

enum err CUDA_SYMBOL(attention_backward)(const struct kernel_ctx *ctx,
                                         enum dtype dtype,
                                         const struct attention *shape,
                                         const void *qkv, const void *out,
                                         const float *lse, const void *dout,
                                         void *dqkv);

enum err CUDA_SYMBOL(attention_chunk_forward)(
    const struct kernel_ctx *ctx, enum dtype dtype,
    const struct attention_chunk *chunk, const void *q, const void *kv,
    bool first, void *out, float *lse);

enum err CUDA_SYMBOL(attention_chunk_backward)(
    const struct kernel_ctx *ctx, enum dtype dtype,
    const struct attention_chunk *chunk, const void *q, const void *kv,
    const void *out, const float *lse, const void *dout, void *dq, void *dkv);

enum err CUDA_SYMBOL(cross_entropy)(const struct kernel_ctx *ctx,
                                    enum dtype dtype, int64_t n, int64_t vocab,
                                    float scale, void *logits,
                                    const int32_t *labels, bool gradient,
                                    float *losses);

enum err CUDA_SYMBOL(route_forward)(const struct kernel_ctx *ctx,
                                    const struct route *route, float *probs,
                                    int32_t *chosen, float *weights);

enum err CUDA_SYMBOL(route_backward)(const struct kernel_ctx *ctx,
                                     const struct route *route,
                                     const float *probs, const int32_t *chosen,
                                     const float *dweights, const float *dprobs,
                                     float *dlogits);

enum err CUDA_SYMBOL(route_sort)(const struct kernel_ctx *ctx,
                                 const struct route *route,
                                 const int32_t *chosen, int64_t *offsets,
                                 int32_t *place, int32_t *source);

enum err CUDA_SYMBOL(route_sums)(const struct kernel_ctx *ctx,
                                 const struct route *route, const float *probs,
                                 double *out);

enum err CUDA_SYMBOL(balance_forward)(const struct kernel_ctx *ctx,
                                      const struct route *route, double scale,
                                      const int64_t *offsets,
                                      const double *sums, int64_t *counts,
                                      double *loss);

enum err CUDA_SYMBOL(balance_backward)(const struct kernel_ctx *ctx,
                                       const struct route *route, double scale,
                                       const int64_t *offsets, float *dprobs);

enum err CUDA_SYMBOL(expert_gather)(const struct kernel_ctx *ctx,
                                    enum dtype dtype, const struct route *route,
                                    int64_t d, const int32_t *source,
                                    const void *x, void *out);

enum err CUDA_SYMBOL(expert_combine)(const struct kernel_ctx *ctx,
                                     enum dtype dtype,
                                     const struct route *route, int64_t d,
                                     const int32_t *place, const float *weights,
                                     const void *y, void *out);

enum err CUDA_SYMBOL(expert_weigh)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, const struct route *route,
                                   int64_t width, const int32_t *source,
                                   const float *weights, void *h, void *dh,
                                   float *dweights);

/* gemm by kernels of our own, for where cuBLASLt is not. cuda_gemm.cu. */
enum err CUDA_SYMBOL(gemm_tiled)(const struct kernel_ctx *ctx, enum dtype dtype,
                                 const struct gemm *gemm);

/* gemm_fp8 by a kernel of our own, for where cuBLASLt is not.
 * cuda_gemm_fp8.cu. */
enum err CUDA_SYMBOL(gemm_fp8_tiled)(const struct kernel_ctx *ctx,
                                     const struct gemm_fp8 *gemm);

enum err CUDA_SYMBOL(quantize)(const struct kernel_ctx *ctx, enum fp8 to,
                               int64_t rows, int64_t cols, const void *x,
                               const float *scale, void *y, void *across,
                               float *largest);

enum err CUDA_SYMBOL(grouped_gemm)(const struct kernel_ctx *ctx,
                                   enum dtype dtype,
                                   const struct grouped_gemm *gemm);

enum err CUDA_SYMBOL(pack)(const struct kernel_ctx *ctx, enum dtype dtype,
                           enum packing packing, int64_t rows, int64_t cols,
                           const void *x, void *packed);

enum err CUDA_SYMBOL(unpack)(const struct kernel_ctx *ctx, enum dtype dtype,
                             enum packing packing, int64_t rows, int64_t cols,
                             const void *packed, void *x);

enum err CUDA_SYMBOL(bias_backward)(const struct kernel_ctx *ctx,
                                    enum dtype dtype, int64_t n, int64_t d,
                                    const void *dy, void *dbias);

enum err CUDA_SYMBOL(accumulate)(const struct kernel_ctx *ctx, enum dtype dtype,
                                 int64_t n, const void *x, void *y);

enum err CUDA_SYMBOL(add)(const struct kernel_ctx *ctx, enum dtype dtype,
                          int64_t n, const void *a, float scale, const void *b,
                          void *out);

enum err CUDA_SYMBOL(zero)(const struct kernel_ctx *ctx, enum dtype dtype,
                           int64_t n, void *x);

enum err CUDA_SYMBOL(convert)(const struct kernel_ctx *ctx, int64_t n,
                              enum dtype from, const void *x, enum dtype to,
                              void *y);
enum err CUDA_SYMBOL(copy_rows)(const struct kernel_ctx *ctx, enum dtype dtype,
                                int64_t rows, int64_t width, int64_t x_stride,
                                const void *x, int64_t y_stride, void *y);

enum err CUDA_SYMBOL(sum)(const struct kernel_ctx *ctx, int64_t n,
                          const float *x, double *out);

enum err CUDA_SYMBOL(chunk_sum_squares)(const struct kernel_ctx *ctx,
                                        enum dtype dtype, int64_t n,
                                        const void *x, double *out);

enum err CUDA_SYMBOL(adamw)(const struct kernel_ctx *ctx, enum dtype dtype,
                            int64_t n, const struct adamw *step, float *p,
                            const void *g, float *m, float *v);

enum err CUDA_SYMBOL(lion)(const struct kernel_ctx *ctx, enum dtype dtype,
                           int64_t n, const struct adamw *step, float *p,
                           const void *g, float *m);

/* out[j] += the sum over `rows` of partial[row * step + j], rows in an order
 * that follows from their number. cuda_columns.cu. */
enum err CUDA_SYMBOL(columns_add)(const struct kernel_ctx *ctx, const char *op,
                                  int64_t rows, int64_t step, int64_t columns,
                                  const float *partial, float *out);

#ifdef __cplusplus
}
#endif

#endif
