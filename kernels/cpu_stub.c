/* Ops that this backend lacks so far. */
#include "kernels/cpu.h"

enum err CPU_SYMBOL(add_norm_forward)(const struct kernel_ctx *ctx,
                                      enum dtype dtype, const struct norm *norm,
                                      const void *a, float scale, const void *b,
                                      void *x, const void *gamma,
                                      const void *beta, void *y, float *mean,
                                      float *rstd)
{
    (void)ctx;
    (void)dtype;
    (void)norm;
    (void)a;
    (void)scale;
    (void)b;
    (void)x;
    (void)gamma;
    (void)beta;
    (void)y;
    (void)mean;
    (void)rstd;
    return err_set(ERR_UNSUPPORTED, "add_norm_forward: not built");
}

enum err CPU_SYMBOL(glu_forward)(const struct kernel_ctx *ctx, enum dtype dtype,
                                 enum activation act, int64_t n, int64_t width,
                                 int64_t stride, const void *gate,
                                 const void *up, void *y)
{
    (void)ctx;
    (void)dtype;
    (void)act;
    (void)n;
    (void)width;
    (void)stride;
    (void)gate;
    (void)up;
    (void)y;
    return err_set(ERR_UNSUPPORTED, "glu_forward: not built");
}

enum err CPU_SYMBOL(glu_backward)(const struct kernel_ctx *ctx,
                                  enum dtype dtype, enum activation act,
                                  int64_t n, int64_t width, int64_t stride,
                                  const void *gate, const void *up,
                                  const void *dy, void *dgate, void *dup)
{
    (void)ctx;
    (void)dtype;
    (void)act;
    (void)n;
    (void)width;
    (void)stride;
    (void)gate;
    (void)up;
    (void)dy;
    (void)dgate;
    (void)dup;
    return err_set(ERR_UNSUPPORTED, "glu_backward: not built");
}

enum err CPU_SYMBOL(clip_forward)(const struct kernel_ctx *ctx,
                                  enum dtype dtype, int64_t n, float limit,
                                  void *x)
{
    (void)ctx;
    (void)dtype;
    (void)n;
    (void)limit;
    (void)x;
    return err_set(ERR_UNSUPPORTED, "clip_forward: not built");
}

enum err CPU_SYMBOL(clip_backward)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, int64_t n, float limit,
                                   const void *x, void *dx)
{
    (void)ctx;
    (void)dtype;
    (void)n;
    (void)limit;
    (void)x;
    (void)dx;
    return err_set(ERR_UNSUPPORTED, "clip_backward: not built");
}

enum err CPU_SYMBOL(dropout)(const struct kernel_ctx *ctx, enum dtype dtype,
                             int64_t samples, int64_t elements, float p,
                             const struct random_place *random, float scale,
                             const void *x, void *y)
{
    (void)ctx;
    (void)dtype;
    (void)samples;
    (void)elements;
    (void)p;
    (void)random;
    (void)scale;
    (void)x;
    (void)y;
    return err_set(ERR_UNSUPPORTED, "dropout: not built");
}

enum err CPU_SYMBOL(jitter)(const struct kernel_ctx *ctx, enum dtype dtype,
                            int64_t samples, int64_t elements, float amount,
                            const struct random_place *random, const void *x,
                            void *y)
{
    (void)ctx;
    (void)dtype;
    (void)samples;
    (void)elements;
    (void)amount;
    (void)random;
    (void)x;
    (void)y;
    return err_set(ERR_UNSUPPORTED, "jitter: not built");
}

enum err CPU_SYMBOL(route_forward)(const struct kernel_ctx *ctx,
                                   const struct route *route, float *probs,
                                   int32_t *chosen, float *weights)
{
    (void)ctx;
    (void)route;
    (void)probs;
    (void)chosen;
    (void)weights;
    return err_set(ERR_UNSUPPORTED, "route_forward: not built");
}

enum err CPU_SYMBOL(route_backward)(const struct kernel_ctx *ctx,
                                    const struct route *route,
                                    const float *probs, const int32_t *chosen,
                                    const float *dweights, const float *dprobs,
                                    float *dlogits)
{
    (void)ctx;
    (void)route;
    (void)probs;
    (void)chosen;
    (void)dweights;
    (void)dprobs;
    (void)dlogits;
    return err_set(ERR_UNSUPPORTED, "route_backward: not built");
}

enum err CPU_SYMBOL(route_sort)(const struct kernel_ctx *ctx,
                                const struct route *route,
                                const int32_t *chosen, int64_t *offsets,
                                int32_t *place, int32_t *source)
{
    (void)ctx;
    (void)route;
    (void)chosen;
    (void)offsets;
    (void)place;
    (void)source;
    return err_set(ERR_UNSUPPORTED, "route_sort: not built");
}

enum err CPU_SYMBOL(route_sums)(const struct kernel_ctx *ctx,
                                const struct route *route, const float *probs,
                                double *out)
{
    (void)ctx;
    (void)route;
    (void)probs;
    (void)out;
    return err_set(ERR_UNSUPPORTED, "route_sums: not built");
}

enum err CPU_SYMBOL(expert_gather)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, const struct route *route,
                                   int64_t d, const int32_t *source,
                                   const void *x, void *out)
{
    (void)ctx;
    (void)dtype;
    (void)route;
    (void)d;
    (void)source;
    (void)x;
    (void)out;
    return err_set(ERR_UNSUPPORTED, "expert_gather: not built");
}

enum err CPU_SYMBOL(expert_combine)(const struct kernel_ctx *ctx,
                                    enum dtype dtype, const struct route *route,
                                    int64_t d, const int32_t *place,
                                    const float *weights, const void *y,
                                    void *out)
{
    (void)ctx;
    (void)dtype;
    (void)route;
    (void)d;
    (void)place;
    (void)weights;
    (void)y;
    (void)out;
    return err_set(ERR_UNSUPPORTED, "expert_combine: not built");
}

enum err CPU_SYMBOL(expert_weigh)(const struct kernel_ctx *ctx,
                                  enum dtype dtype, const struct route *route,
                                  int64_t width, const int32_t *source,
                                  const float *weights, void *h, void *dh,
                                  float *dweights)
{
    (void)ctx;
    (void)dtype;
    (void)route;
    (void)width;
    (void)source;
    (void)weights;
    (void)h;
    (void)dh;
    (void)dweights;
    return err_set(ERR_UNSUPPORTED, "expert_weigh: not built");
}

enum err CPU_SYMBOL(grouped_gemm)(const struct kernel_ctx *ctx,
                                  enum dtype dtype,
                                  const struct grouped_gemm *gemm)
{
    (void)ctx;
    (void)dtype;
    (void)gemm;
    return err_set(ERR_UNSUPPORTED, "grouped_gemm: not built");
}

enum err CPU_SYMBOL(pack)(const struct kernel_ctx *ctx, enum packing packing,
                          int64_t rows, int64_t cols, const float *x,
                          void *packed)
{
    (void)ctx;
    (void)packing;
    (void)rows;
    (void)cols;
    (void)x;
    (void)packed;
    return err_set(ERR_UNSUPPORTED, "pack: not built");
}

enum err CPU_SYMBOL(unpack)(const struct kernel_ctx *ctx, enum packing packing,
                            int64_t rows, int64_t cols, const void *packed,
                            float *x)
{
    (void)ctx;
    (void)packing;
    (void)rows;
    (void)cols;
    (void)packed;
    (void)x;
    return err_set(ERR_UNSUPPORTED, "unpack: not built");
}

size_t CPU_SYMBOL(route_scratch)(const struct kernel_limits *limits)
{
    (void)limits;
    return 0;
}
