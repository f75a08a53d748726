/* What the CPU kernel files share.
 *
 * Every cpu_*.c file is compiled once per kernel set (avx512, avx2, generic)
 * with -DKERNEL_SET=<name> and the matching -march, so every non-static symbol
 * carries the set in its name: CPU_SYMBOL(gemm) is cpu_gemm_avx512. The ops'
 * contract stands in kernels.h; why the code is cut as it is, in DESIGN.md. */
#ifndef TESSERA_KERNELS_CPU_H
#define TESSERA_KERNELS_CPU_H

#include <assert.h>

#include "kernels/kernels.h"

#define CPU_PASTE(name, set) cpu_##name##_##set
#define CPU_EXPAND(name, set) CPU_PASTE(name, set)
#define CPU_SYMBOL(name) CPU_EXPAND(name, KERNEL_SET)
#define CPU_TEXT_OF(set) #set
#define CPU_TEXT(set) CPU_TEXT_OF(set)

/* Columns that one task owns where rows are summed in order: 256 bytes, so that
 * a row's share is whole cache lines and few columns still feed all threads. */
#define CPU_COLUMNS 64

double CPU_SYMBOL(peak_flops)(const struct kernel_ctx *ctx, enum dtype dtype,
                              bool fp8, const char **source);

enum err CPU_SYMBOL(gemm)(const struct kernel_ctx *ctx, enum dtype dtype,
                          const struct gemm *gemm);

enum err CPU_SYMBOL(embedding_forward)(const struct kernel_ctx *ctx,
                                       enum dtype dtype, int64_t n, int64_t seq,
                                       int64_t d, const int32_t *tokens,
                                       const void *wte, const void *wpe,
                                       void *out);

enum err CPU_SYMBOL(embedding_backward)(const struct kernel_ctx *ctx,
                                        enum dtype dtype, int64_t n,
                                        int64_t seq, int64_t d,
                                        const int32_t *tokens, const void *dout,
                                        void *dwte, void *dwpe);

enum err CPU_SYMBOL(norm_forward)(const struct kernel_ctx *ctx,
                                  enum dtype dtype, const struct norm *norm,
                                  const void *x, const void *gamma,
                                  const void *beta, void *y, float *mean,
                                  float *rstd);

enum err CPU_SYMBOL(add_norm_forward)(const struct kernel_ctx *ctx,
                                      enum dtype dtype, const struct norm *norm,
                                      const void *a, float scale, const void *b,
                                      void *x, const void *gamma,
                                      const void *beta, void *y, float *mean,
                                      float *rstd);

enum err CPU_SYMBOL(norm_backward)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, const struct norm *norm,
                                   const void *dy, const void *x,
                                   const void *gamma, const float *mean,
                                   const float *rstd, bool accumulate, void *dx,
                                   void *dgamma, void *dbeta);
size_t CPU_SYMBOL(norm_scratch)(const struct kernel_limits *limits);

enum err CPU_SYMBOL(activation_forward)(const struct kernel_ctx *ctx,
                                        enum dtype dtype, enum activation act,
                                        int64_t n, const void *x, void *y);

enum err CPU_SYMBOL(activation_backward)(const struct kernel_ctx *ctx,
                                         enum dtype dtype, enum activation act,
                                         int64_t n, const void *x,
                                         const void *dy, void *dx);

enum err CPU_SYMBOL(glu_forward)(const struct kernel_ctx *ctx, enum dtype dtype,
                                 enum activation act, int64_t n, int64_t width,
                                 int64_t stride, const void *gate,
                                 const void *up, void *y);

enum err CPU_SYMBOL(glu_backward)(const struct kernel_ctx *ctx,
                                  enum dtype dtype, enum activation act,
                                  int64_t n, int64_t width, int64_t stride,
                                  const void *gate, const void *up,
                                  const void *dy, void *dgate, void *dup);

enum err CPU_SYMBOL(clip_forward)(const struct kernel_ctx *ctx,
                                  enum dtype dtype, int64_t n, float limit,
                                  void *x);

enum err CPU_SYMBOL(clip_backward)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, int64_t n, float limit,
                                   const void *x, void *dx);

enum err CPU_SYMBOL(rope)(const struct kernel_ctx *ctx, enum dtype dtype,
                          int64_t n, int64_t seq, int64_t heads,
                          int64_t rotated, int64_t head_dim, const float *table,
                          bool inverse, void *x);

enum err CPU_SYMBOL(dropout)(const struct kernel_ctx *ctx, enum dtype dtype,
                             int64_t samples, int64_t elements, float p,
                             const struct random_place *random, float scale,
                             const void *x, void *y);

enum err CPU_SYMBOL(jitter)(const struct kernel_ctx *ctx, enum dtype dtype,
                            int64_t samples, int64_t elements, float amount,
                            const struct random_place *random, const void *x,
                            void *y);

enum err CPU_SYMBOL(attention_forward)(const struct kernel_ctx *ctx,
                                       enum dtype dtype,
                                       const struct attention *shape,
                                       const void *qkv, void *out, float *lse);

enum err CPU_SYMBOL(attention_backward)(const struct kernel_ctx *ctx,
                                        enum dtype dtype,
                                        const struct attention *shape,
                                        const void *qkv, const void *out,
                                        const float *lse, const void *dout,
                                        void *dqkv);
size_t CPU_SYMBOL(attention_scratch)(const struct kernel_limits *limits);

enum err CPU_SYMBOL(attention_chunk_forward)(
    const struct kernel_ctx *ctx, enum dtype dtype,
    const struct attention_chunk *chunk, const void *q, const void *kv,
    bool first, void *out, float *lse);

enum err CPU_SYMBOL(attention_chunk_backward)(
    const struct kernel_ctx *ctx, enum dtype dtype,
    const struct attention_chunk *chunk, const void *q, const void *kv,
    const void *out, const float *lse, const void *dout, void *dq, void *dkv);

enum err CPU_SYMBOL(cross_entropy)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, int64_t n, int64_t vocab,
                                   float scale, void *logits,
                                   const int32_t *labels, bool gradient,
                                   float *losses);

enum err CPU_SYMBOL(route_forward)(const struct kernel_ctx *ctx,
                                   const struct route *route, float *probs,
                                   int32_t *chosen, float *weights);

enum err CPU_SYMBOL(route_backward)(const struct kernel_ctx *ctx,
                                    const struct route *route,
                                    const float *probs, const int32_t *chosen,
                                    const float *dweights, const float *dprobs,
                                    float *dlogits);

enum err CPU_SYMBOL(route_sort)(const struct kernel_ctx *ctx,
                                const struct route *route,
                                const int32_t *chosen, int64_t *offsets,
                                int32_t *place, int32_t *source);
size_t CPU_SYMBOL(route_scratch)(const struct kernel_limits *limits);

enum err CPU_SYMBOL(route_sums)(const struct kernel_ctx *ctx,
                                const struct route *route, const float *probs,
                                double *out);

enum err CPU_SYMBOL(balance_forward)(const struct kernel_ctx *ctx,
                                     const struct route *route, double scale,
                                     const int64_t *offsets, const double *sums,
                                     int64_t *counts, double *loss);

enum err CPU_SYMBOL(balance_backward)(const struct kernel_ctx *ctx,
                                      const struct route *route, double scale,
                                      const int64_t *offsets, float *dprobs);

enum err CPU_SYMBOL(expert_gather)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, const struct route *route,
                                   int64_t d, const int32_t *source,
                                   const void *x, void *out);

enum err CPU_SYMBOL(expert_combine)(const struct kernel_ctx *ctx,
                                    enum dtype dtype, const struct route *route,
                                    int64_t d, const int32_t *place,
                                    const float *weights, const void *y,
                                    void *out);

enum err CPU_SYMBOL(expert_weigh)(const struct kernel_ctx *ctx,
                                  enum dtype dtype, const struct route *route,
                                  int64_t width, const int32_t *source,
                                  const float *weights, void *h, void *dh,
                                  float *dweights);

enum err CPU_SYMBOL(grouped_gemm)(const struct kernel_ctx *ctx,
                                  enum dtype dtype,
                                  const struct grouped_gemm *gemm);

enum err CPU_SYMBOL(pack)(const struct kernel_ctx *ctx, enum dtype dtype,
                          enum packing packing, int64_t rows, int64_t cols,
                          const void *x, void *packed);

enum err CPU_SYMBOL(unpack)(const struct kernel_ctx *ctx, enum dtype dtype,
                            enum packing packing, int64_t rows, int64_t cols,
                            const void *packed, void *x);

enum err CPU_SYMBOL(bias_backward)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, int64_t n, int64_t d,
                                   const void *dy, void *dbias);

enum err CPU_SYMBOL(accumulate)(const struct kernel_ctx *ctx, enum dtype dtype,
                                int64_t n, const void *x, void *y);

enum err CPU_SYMBOL(add)(const struct kernel_ctx *ctx, enum dtype dtype,
                         int64_t n, const void *a, float scale, const void *b,
                         void *out);

enum err CPU_SYMBOL(zero)(const struct kernel_ctx *ctx, enum dtype dtype,
                          int64_t n, void *x);

enum err CPU_SYMBOL(convert)(const struct kernel_ctx *ctx, int64_t n,
                             enum dtype from, const void *x, enum dtype to,
                             void *y);
enum err CPU_SYMBOL(copy_rows)(const struct kernel_ctx *ctx, enum dtype dtype,
                               int64_t rows, int64_t width, int64_t x_stride,
                               const void *x, int64_t y_stride, void *y);

enum err CPU_SYMBOL(sum)(const struct kernel_ctx *ctx, int64_t n,
                         const float *x, double *out);

enum err CPU_SYMBOL(chunk_sum_squares)(const struct kernel_ctx *ctx,
                                       enum dtype dtype, int64_t n,
                                       const void *x, double *out);

enum err CPU_SYMBOL(adamw)(const struct kernel_ctx *ctx, enum dtype dtype,
                           int64_t n, const struct adamw *step, float *p,
                           const void *g, float *m, float *v);

enum err CPU_SYMBOL(lion)(const struct kernel_ctx *ctx, enum dtype dtype,
                          int64_t n, const struct adamw *step, float *p,
                          const void *g, float *m);

extern const struct kernels CPU_SYMBOL(table);

/* These kernels compute in f32 only. */
static inline enum err cpu_require_f32(enum dtype dtype, const char *op)
{
    if (dtype == DTYPE_F32)
        return ERR_OK;
    return err_set(ERR_UNSUPPORTED,
                   "%s: the cpu backend has no %s kernels; use f32", op,
                   dtype_name(dtype));
}

static inline int64_t cpu_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The number of parts of `size` that cover `count`. */
static inline int64_t cpu_parts(int64_t count, int64_t size)
{
    return (count + size - 1) / size;
}

#endif
