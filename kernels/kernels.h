/* The op table: everything that computes on tensors, behind one interface with
 * one table per backend and processor kernel set.
 *
 * Contract of every op
 *   - Tensors are row-major and contiguous; pointers are 64-byte aligned unless
 *     said otherwise. `dtype` is the element type of the tensors; statistics
 *     (mean, rstd, lse, losses) are always fp32. A backend that lacks a dtype
 *     returns ERR_UNSUPPORTED; other failures are programmer errors (asserts).
 *   - "+=" outputs accumulate, others are overwritten (never read).
 *   - No op allocates. Temporary space is ctx->scratch, at least
 *     scratch_bytes(limits) bytes; its contents mean nothing between calls.
 *   - On CUDA an op is enqueued on ctx->stream; on CPU it returns when done.
 *   - Determinism: the result depends on the arguments and on the table
 *     (backend, kernel set, BLAS version) only, never on ctx->threads, on
 *     alignment or on earlier calls. Reductions run over fixed chunks, then in
 *     order; a GEMM is cut into fixed tiles, each one single-threaded BLAS call.
 *
 * Tolerances are against an fp64 reference on inputs of order 1: relative to
 * the largest absolute reference value of the output tensor.
 *   gemm 2e-6*sqrt(k), layernorm 5e-6, gelu 2e-6, attention 5e-6,
 *   cross_entropy 5e-6, adamw 2e-6 (one step), sums 1e-12 (fp64 accumulation).
 */
#ifndef TESSERA_KERNELS_KERNELS_H
#define TESSERA_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/dtype.h"
#include "src/base/err.h"

/* Chunk of flat arenas: blocks of parameters are padded to it, shards are cut
 * at its multiples, and norms are summed per chunk. Elements. */
#define KERNEL_CHUNK 16384

struct kernel_ctx {
    int threads;          /* >= 1; CPU threads of this rank */
    void *stream;         /* backend stream; NULL on CPU */
    void *scratch;        /* lent; at least scratch_bytes(limits) bytes */
    size_t scratch_bytes;
};

/* The largest shapes that a model will ask for; sizes scratch. */
struct kernel_limits {
    int threads;
    int64_t tokens;    /* rows of one leaf: batch * seq */
    int64_t batch;     /* sequences of one leaf */
    int64_t seq;       /* tokens per sequence */
    int64_t width;     /* largest row of norm, bias and GELU: 4 * d_model */
    int64_t heads;
    int64_t head_dim;
    int64_t vocab;
};

enum gemm_form {
    GEMM_NT, /* C[m,n] = A[m,k] B[n,k]^T : Y = X W^T */
    GEMM_NN, /* C[m,n] = A[m,k] B[k,n]   : dX = dY W */
    GEMM_TN  /* C[m,n] = A[k,m]^T B[k,n] : dW = dY^T X */
};

struct gemm {
    enum gemm_form form;
    int64_t m, n, k;
    const void *a;
    const void *b;
    void *c;
    bool accumulate;  /* C += instead of C = */
    const void *bias; /* [n], added to every row of C; NULL: none; not with
                         accumulate */
};

struct attention {
    int64_t batch, seq, heads, head_dim;
    float scale; /* multiplies q k^T, usually 1/sqrt(head_dim) */
    /* [batch, seq] document number of each token, tokens attend only within
     * their document; NULL: each row is one document */
    const int32_t *sequence_ids;
};

struct adamw {
    float lr;            /* lr(t) */
    float decay;         /* p *= 1 - decay first; (lr / lr0) * weight_decay */
    float beta1, beta2, eps;
    float correction1;   /* 1 - beta1^t */
    float correction2;   /* 1 - beta2^t */
    float grad_scale;    /* gradient is g * grad_scale (1/tokens, clipping) */
};

struct kernels {
    const char *backend;    /* "cpu", "cuda" */
    const char *kernel_set; /* "avx512", "avx2", "generic", "sm_90", ... */

    /* Writes what else decides bits, e.g. "OpenBLAS 0.3.21 SkylakeX", at most
     * bytes-1 characters. */
    void (*describe)(char *text, size_t bytes);

    size_t (*scratch_bytes)(const struct kernel_limits *limits);

    enum err (*gemm)(const struct kernel_ctx *ctx, enum dtype dtype,
                     const struct gemm *gemm);

    /* out[n,d] = wte[tokens[i], :] + wpe[i % seq, :]; wpe NULL: without.
     * Tokens must be in [0, vocab): checked by the loader. */
    enum err (*embedding_forward)(const struct kernel_ctx *ctx,
                                  enum dtype dtype, int64_t n, int64_t seq,
                                  int64_t d, const int32_t *tokens,
                                  const void *wte, const void *wpe, void *out);
    /* dwte[tokens[i], :] += dout[i, :] and dwpe[i % seq, :] += dout[i, :] in
     * order of i; dwpe NULL: without. Parallel over columns of d. */
    enum err (*embedding_backward)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, int64_t n, int64_t seq,
                                   int64_t d, const int32_t *tokens,
                                   const void *dout, void *dwte, void *dwpe);

    /* y = (x - mean) * rstd * gamma + beta per row of d; mean[n], rstd[n] are
     * saved for backward. beta NULL: without. Two-pass variance. */
    enum err (*layernorm_forward)(const struct kernel_ctx *ctx,
                                  enum dtype dtype, int64_t n, int64_t d,
                                  const void *x, const void *gamma,
                                  const void *beta, float eps, void *y,
                                  float *mean, float *rstd);
    /* dx += gradient through the norm (the residual stream's gradient is
     * already there); dgamma[d] +=, dbeta[d] += (NULL: without). */
    enum err (*layernorm_backward)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, int64_t n, int64_t d,
                                   const void *dy, const void *x,
                                   const void *gamma, const float *mean,
                                   const float *rstd, void *dx, void *dgamma,
                                   void *dbeta);

    /* GELU with the exact erf: y = x/2 (1 + erf(x/sqrt 2)), n elements.
     * backward: dx = dy * gelu'(x); dx may be dy. */
    enum err (*gelu_forward)(const struct kernel_ctx *ctx, enum dtype dtype,
                             int64_t n, const void *x, void *y);
    enum err (*gelu_backward)(const struct kernel_ctx *ctx, enum dtype dtype,
                              int64_t n, const void *x, const void *dy,
                              void *dx);

    /* Causal attention on packed qkv[batch, seq, 3, heads, head_dim];
     * out[batch, seq, heads, head_dim], lse[batch, heads, seq] (log sum exp of
     * the scaled scores). No seq x seq tensor is stored. */
    enum err (*attention_forward)(const struct kernel_ctx *ctx,
                                  enum dtype dtype,
                                  const struct attention *shape,
                                  const void *qkv, void *out, float *lse);
    enum err (*attention_backward)(const struct kernel_ctx *ctx,
                                   enum dtype dtype,
                                   const struct attention *shape,
                                   const void *qkv, const void *out,
                                   const float *lse, const void *dout,
                                   void *dqkv);

    /* losses[i] = -log softmax(logits[i,:])[labels[i]], 0 where labels[i] < 0
     * (ignored). With `gradient` logits[n,vocab] is overwritten by
     * softmax - onehot (rows of ignored labels by 0); without it logits are
     * left alone or destroyed, the caller must not rely on either. */
    enum err (*cross_entropy)(const struct kernel_ctx *ctx, enum dtype dtype,
                              int64_t n, int64_t vocab, void *logits,
                              const int32_t *labels, bool gradient,
                              float *losses);

    /* dbias[d] += column sums of dy[n,d]. */
    enum err (*bias_backward)(const struct kernel_ctx *ctx, enum dtype dtype,
                              int64_t n, int64_t d, const void *dy,
                              void *dbias);

    /* y += x; out = a + b (out may be a or b); fill with zeros; n elements. */
    enum err (*accumulate)(const struct kernel_ctx *ctx, enum dtype dtype,
                           int64_t n, const void *x, void *y);
    enum err (*add)(const struct kernel_ctx *ctx, enum dtype dtype, int64_t n,
                    const void *a, const void *b, void *out);
    enum err (*zero)(const struct kernel_ctx *ctx, enum dtype dtype, int64_t n,
                     void *x);

    /* *out = sum of x[n], fp64, fixed chunks of KERNEL_CHUNK then in order. */
    enum err (*sum)(const struct kernel_ctx *ctx, int64_t n, const float *x,
                    double *out);
    /* out[c] = sum of squares of chunk c of x[n]; n is a multiple of
     * KERNEL_CHUNK; out has n / KERNEL_CHUNK entries. */
    enum err (*chunk_sum_squares)(const struct kernel_ctx *ctx,
                                  enum dtype dtype, int64_t n, const void *x,
                                  double *out);

    /* DecoupledAdamW, one step on n elements (Composer's definition):
     * p *= 1 - decay; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
     * p -= lr / correction1 * m / (sqrt(v) / sqrt(correction2) + eps).
     * p, m, v fp32; g of `dtype`. */
    enum err (*adamw)(const struct kernel_ctx *ctx, enum dtype dtype, int64_t n,
                      const struct adamw *step, float *p, const void *g,
                      float *m, float *v);
};

/* The table for a backend ("cpu", "cuda") and kernel set ("auto": the best that
 * this processor runs, or a name). ERR_UNSUPPORTED names what was not built or
 * what the processor lacks, and what there is instead. The table is static. */
enum err kernels_find(const char *backend, const char *kernel_set,
                      const struct kernels **out);

/* All tables of this build that the processor can run, NULL-terminated, best
 * first: for tests that run every op on every backend. */
const struct kernels *const *kernels_all(void);

/* Threads that a rank should use: processors in its affinity mask divided by
 * the ranks that share them, no more than SLURM_CPUS_PER_TASK (which counts for
 * one rank already), at least 1. `shared_by` is the number of ranks on this
 * node with the same mask. */
int kernels_threads_default(int shared_by);

/* Let OpenMP's idle threads sleep instead of spin: a spinning thread takes the
 * core from the one that it waits for when processors are shared (measured: a
 * step beside one busy process is 9 times slower), and sleeping costs nothing
 * measurable otherwise. OpenMP reads this from the environment before main, so
 * the program is started anew, once, unless the user has set OMP_WAIT_POLICY.
 * The first call of a main that computes. */
void kernels_wait_passively(char **argv);

#endif
