/* Ops that this backend lacks so far. */
#include "kernels/cpu.h"

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

size_t CPU_SYMBOL(route_scratch)(const struct kernel_limits *limits)
{
    (void)limits;
    return 0;
}
