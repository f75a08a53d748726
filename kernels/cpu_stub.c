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

enum err CPU_SYMBOL(rope)(const struct kernel_ctx *ctx, enum dtype dtype,
                          int64_t n, int64_t seq, int64_t heads,
                          int64_t rotated, int64_t head_dim, const float *table,
                          bool inverse, void *x)
{
    (void)ctx;
    (void)dtype;
    (void)n;
    (void)seq;
    (void)heads;
    (void)rotated;
    (void)head_dim;
    (void)table;
    (void)inverse;
    (void)x;
    return err_set(ERR_UNSUPPORTED, "rope: not built");
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
