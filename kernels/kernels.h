/* The op table: everything that computes on tensors, behind one interface with
 * one table per backend and processor kernel set.
 *
 * Contract of every op
 *   - Tensors are row-major and contiguous; pointers are 64-byte aligned unless
 *     said otherwise. `dtype` is the element type of the tensors; statistics
 *     (mean, rstd, lse, losses) are always fp32. A backend that lacks a dtype
 *     returns ERR_UNSUPPORTED; other failures are programmer errors (asserts).
 *   - In bf16, arithmetic and sums are in fp32 and each element of an output is
 *     rounded once, to nearest even. Gradients of weights (dwte, dwpe, dgamma,
 *     dbeta, dbias, c of a GEMM_TN) are fp32 whatever the dtype: they are sums
 *     over many rows and calls.
 *   - "+=" outputs accumulate, others are overwritten (never read).
 *   - No op allocates. Temporary space is ctx->scratch, at least
 *     scratch_bytes(limits) bytes; its contents mean nothing between calls.
 *   - On CUDA an op is enqueued on ctx->stream; on CPU it returns when done. On
 *     CUDA all pointers but those to the structures below are to device memory,
 *     scalars that an op returns (sum's out) and lists (offsets) included, and
 *     ctx->scratch is 256-byte aligned.
 *   - Determinism: the result depends on the arguments and on the backend only,
 *     never on ctx->threads, on alignment or on earlier calls, and on the
 *     processor not on its kernel set either: that decides speed. Reductions
 *     run over fixed chunks and lanes, then in order; each element of a product
 *     is one chain of fused multiply-adds in the order of k, started from 0.
 *     What a GPU's libraries compute also depends on their versions and on the
 *     algorithms chosen.
 *
 * Tolerances are against an fp64 reference on inputs of order 1: relative to
 * the largest absolute reference value of the output tensor.
 *   gemm 2e-6*sqrt(k), norms 5e-6, activations 2e-6, attention 5e-6, rope 2e-6,
 *   cross_entropy 5e-6, routing 5e-6, adamw 2e-6 (one step), sums 1e-12 (fp64
 *   accumulation).
 * gemm_fp8: 2^-11 of the sum of an element's terms' magnitudes, as tensor cores
 * keep fewer bits of such sums than fp32 has; `fast`: none.
 */
#ifndef TESSERA_KERNELS_KERNELS_H
#define TESSERA_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernel_memory.h"
#include "kernels/kernel_shapes.h"
#include "src/base/dtype.h"
#include "src/base/err.h"

/* Of the processor's ops, of all kernel sets: raised whenever one of them gives
 * other bits. Checkpoints record it. */
#define KERNEL_ARITHMETIC 1

/* Who computes products and attention: a library, or kernels of our own. */
struct kernel_chosen {
    const char *products;  /* "cublaslt", "own" or "cublaslt+own" */
    const char *attention; /* "cudnn", "own" or "cudnn+own" */
    char text[224];        /* both with versions and numbers of shapes */
};

struct kernels {
    const char *backend;    /* "cpu", "cuda" */
    const char *kernel_set; /* "avx512", "avx2", "generic", "sm_80+sm_90a" */
    const struct kernel_memory *memory; /* where its tensors lie */
    /* Outputs that are added to ("+=") get one addition per call and element,
     * of a sum that began at 0, but for embedding_backward's: a gradient that
     * is one call's may be added to others in place. */
    bool adds_once;

    /* Writes what decides bits: of the processor "arithmetic 1", whatever the
     * kernel set is; of a GPU what else does, its name and libraries. At most
     * bytes-1 characters. */
    void (*describe)(char *text, size_t bytes);

    size_t (*scratch_bytes)(const struct kernel_limits *limits);

    /* The most FLOP/s that products take here, a multiply-add being two, with
     * operands of this dtype or, with fp8, of 8 bits; 0: not known. *source
     * says from where, in a word: "measured" by the processor's ctx->threads
     * (10 ms of each), "table" of GPUs by name, "clock" of another GPU times
     * what its kind does per cycle. NULL: never known. */
    double (*peak_flops)(const struct kernel_ctx *ctx, enum dtype dtype,
                         bool fp8, const char **source);

    /* Algorithms that decide bits and are chosen by measurement, once per run;
     * all three are NULL where there are none (CPU). Until they are chosen they
     * are what the libraries propose. */
    /* Times them for everything that ops were asked for so far, on operands in
     * `memory` (tensors of ordinary numbers, 256-byte aligned, overwritten),
     * and keeps the fastest: by one rank. Waits. */
    enum err (*measure)(const struct kernel_ctx *ctx, void *memory,
                        size_t bytes);
    /* The choices as text, for other ranks and attempts; the caller frees it.
     */
    enum err (*choices)(char **text);
    /* Takes them. ERR_DATA: the text is damaged; ERR_UNSUPPORTED: a library is
     * missing or of another version. */
    enum err (*choose)(const char *text);
    /* Whether slower kernels of our own may compute where a library is missing
     * or has nothing for a shape: true until this is called, and the log says
     * so. false: ops and measure return ERR_UNSUPPORTED then, and so does this
     * if a library is missing. NULL, as the next: there are no libraries. */
    enum err (*allow_fallback)(bool allow);
    /* Which of them compute what was asked for so far. */
    void (*chosen)(struct kernel_chosen *out);

    enum err (*gemm)(const struct kernel_ctx *ctx, enum dtype dtype,
                     const struct gemm *gemm);

    /* Both are NULL where there are no 8-bit floats (CPU). */
    /* y = x * *scale in fp32, rounded to nearest even in 8 bits; what is beyond
     * the largest finite value, Inf too, becomes that, NaN stays NaN (of either
     * sign). x[rows, cols] is bf16, both multiples of 16; across[cols, rows] is
     * the transpose of y[rows, cols]; one of the two may be NULL. *largest =
     * max(*largest, largest finite |x|), *largest not being negative. */
    enum err (*quantize)(const struct kernel_ctx *ctx, enum fp8 to,
                         int64_t rows, int64_t cols, const void *x,
                         const float *scale, void *y, void *across,
                         float *largest);
    enum err (*gemm_fp8)(const struct kernel_ctx *ctx,
                         const struct gemm_fp8 *gemm);

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

    /* y = (x - mean) * rstd * gamma + beta; mean[n * groups] and rstd[n *
     * groups] are saved for backward. beta NULL: without. Two-pass variance.
     * NORM_RMS: y = x * rstd * gamma; mean and beta (and dbeta in backward) are
     * not touched and may be NULL. y may be x. */
    enum err (*norm_forward)(const struct kernel_ctx *ctx, enum dtype dtype,
                             const struct norm *norm, const void *x,
                             const void *gamma, const void *beta, void *y,
                             float *mean, float *rstd);
    /* x[n,d] = a + scale * b, then as norm_forward of x; x may be a. Only one
     * group, and stride = d. */
    enum err (*add_norm_forward)(const struct kernel_ctx *ctx, enum dtype dtype,
                                 const struct norm *norm, const void *a,
                                 float scale, const void *b, void *x,
                                 const void *gamma, const void *beta, void *y,
                                 float *mean, float *rstd);
    /* With `accumulate` dx += the gradient through the norm (the residual
     * stream's gradient is already there), otherwise dx = it and dx may be dy.
     * dgamma +=, dbeta += (NULL: without). */
    enum err (*norm_backward)(const struct kernel_ctx *ctx, enum dtype dtype,
                              const struct norm *norm, const void *dy,
                              const void *x, const void *gamma,
                              const float *mean, const float *rstd,
                              bool accumulate, void *dx, void *dgamma,
                              void *dbeta);

    /* y = act(x), n elements: GELU with the exact erf, x/2 (1 + erf(x/sqrt 2));
     * SiLU x / (1 + exp(-x)). backward: dx = dy * act'(x); dx may be dy. */
    enum err (*activation_forward)(const struct kernel_ctx *ctx,
                                   enum dtype dtype, enum activation act,
                                   int64_t n, const void *x, void *y);
    enum err (*activation_backward)(const struct kernel_ctx *ctx,
                                    enum dtype dtype, enum activation act,
                                    int64_t n, const void *x, const void *dy,
                                    void *dx);
    /* Gated: y[n,width] = act(gate[n,width]) * up[n,width] (Shazeer 2020). Rows
     * of gate, up, dgate and dup are `stride` elements apart, those of y and dy
     * are contiguous. backward: dgate and dup may be gate and up. */
    enum err (*glu_forward)(const struct kernel_ctx *ctx, enum dtype dtype,
                            enum activation act, int64_t n, int64_t width,
                            int64_t stride, const void *gate, const void *up,
                            void *y);
    enum err (*glu_backward)(const struct kernel_ctx *ctx, enum dtype dtype,
                             enum activation act, int64_t n, int64_t width,
                             int64_t stride, const void *gate, const void *up,
                             const void *dy, void *dgate, void *dup);

    /* x = min(max(x, -limit), limit), n elements, in place. backward: dx = 0
     * where |x| (after clipping) is limit. In bf16 limit is rounded towards
     * zero first, so that it is a value that x can have. */
    enum err (*clip_forward)(const struct kernel_ctx *ctx, enum dtype dtype,
                             int64_t n, float limit, void *x);
    enum err (*clip_backward)(const struct kernel_ctx *ctx, enum dtype dtype,
                              int64_t n, float limit, const void *x, void *dx);

    /* Rotary positions (Su et al. 2021) in place, halves convention (Hugging
     * Face's): for pair j of the first `rotated` of `heads` heads of x[n,
     * heads, head_dim], token t = row % seq: (x[j], x[j + head_dim/2]) turns by
     * the angle whose cosine and sine are table[t][0][j], table[t][1][j] (table
     * is [seq, 2, head_dim/2]); by its negative with `inverse`, which is
     * backward.
     */
    enum err (*rope)(const struct kernel_ctx *ctx, enum dtype dtype, int64_t n,
                     int64_t seq, int64_t heads, int64_t rotated,
                     int64_t head_dim, const float *table, bool inverse,
                     void *x);

    /* y = x * scale * m / (1 - p), m is 0 with probability p < 1: where the
     * element's random word is below p 2^32; samples rows of `elements`. p = 0:
     * y = x * scale. Also its own backward. y may be x. */
    enum err (*dropout)(const struct kernel_ctx *ctx, enum dtype dtype,
                        int64_t samples, int64_t elements, float p,
                        const struct random_place *random, float scale,
                        const void *x, void *y);
    /* y = x * (1 - amount + 2 amount u), u uniform in [0, 1): the upper 24 bits
     * of the element's random word. Also its own backward. y may be x. */
    enum err (*jitter)(const struct kernel_ctx *ctx, enum dtype dtype,
                       int64_t samples, int64_t elements, float amount,
                       const struct random_place *random, const void *x,
                       void *y);

    /* Causal attention on packed qkv[batch, seq, heads + 2 kv_heads, head_dim]:
     * first the queries' heads, then keys, then values; query head h uses key
     * head h / (heads / kv_heads). out[batch, seq, heads, head_dim], lse[batch,
     * heads, seq] (log sum exp of the scaled scores, before dropout). Scratch
     * does not grow with seq on CPU; CUDA has 4 bytes per query and head in
     * backward. CUDA's heads have at most 128 elements, others return
     * ERR_UNSUPPORTED. In bf16 it also rounds the probabilities, and in
     * backward the scores' gradients, before it multiplies them. */
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

    /* Attention of the queries over the keys of one chunk after another, in the
     * caller's order, which decides bits. Of the packed q[batch, seq, heads + 2
     * kv_heads, head_dim] only queries are read; kv[batch, seq, 2 kv_heads,
     * head_dim] are the keys' chunk's keys, then values. out and lse, as
     * attention_forward's, hold the attention over the keys of former calls and
     * become that over this chunk's keys, too; with `first` there were none and
     * they are not read. A query that sees no key of the chunk keeps its out
     * and lse; if it saw none before they are 0 and -Inf. */
    enum err (*attention_chunk_forward)(const struct kernel_ctx *ctx,
                                        enum dtype dtype,
                                        const struct attention_chunk *chunk,
                                        const void *q, const void *kv,
                                        bool first, void *out, float *lse);
    /* One chunk's share of the gradients. out and lse are those over all keys
     * that the queries see, each at least one. dq and dkv are laid out like q
     * and kv: dq's queries += (its keys and values are left alone), dkv +=. */
    enum err (*attention_chunk_backward)(const struct kernel_ctx *ctx,
                                         enum dtype dtype,
                                         const struct attention_chunk *chunk,
                                         const void *q, const void *kv,
                                         const void *out, const float *lse,
                                         const void *dout, void *dq, void *dkv);

    /* losses[i] = -log softmax(scale * logits[i,:])[labels[i]], 0 where
     * labels[i] < 0 (ignored); scale > 0. With `gradient` logits[n,vocab] is
     * overwritten by scale * (softmax - onehot) (rows of ignored labels by 0);
     * without it logits are left alone or destroyed, the caller must not rely
     * on either. */
    enum err (*cross_entropy)(const struct kernel_ctx *ctx, enum dtype dtype,
                              int64_t n, int64_t vocab, float scale,
                              void *logits, const int32_t *labels,
                              bool gradient, float *losses);

    /* --- mixture of experts: n tokens, each goes to top_k experts ----------
     */

    /* probs[n, experts] holds logits and becomes their softmax; chosen[n,
     * top_k] are the experts in falling order of probability (equal ones: the
     * lower number first), weights[n, top_k] their probabilities, divided by
     * their L_p norm if route->normalize. */
    enum err (*route_forward)(const struct kernel_ctx *ctx,
                              const struct route *route, float *probs,
                              int32_t *chosen, float *weights);
    /* dlogits[n, experts] from dweights[n, top_k] and from dprobs[experts],
     * which every token's probabilities get besides (the load-balance loss). */
    enum err (*route_backward)(const struct kernel_ctx *ctx,
                               const struct route *route, const float *probs,
                               const int32_t *chosen, const float *dweights,
                               const float *dprobs, float *dlogits);
    /* Order the n top_k choices by expert, then token: offsets[experts + 1] as
     * in struct grouped_gemm; place[n * top_k]: the sorted row of choice i
     * (token i / top_k); source: its inverse. */
    enum err (*route_sort)(const struct kernel_ctx *ctx,
                           const struct route *route, const int32_t *chosen,
                           int64_t *offsets, int32_t *place, int32_t *source);
    /* out[e] = the sum of column e of probs[n, experts], fp64. */
    enum err (*route_sums)(const struct kernel_ctx *ctx,
                           const struct route *route, const float *probs,
                           double *out);
    /* The load-balance loss of Fedus, Zoph and Shazeer 2021 with c_e =
     * offsets[e + 1] - offsets[e]: counts[e] += c_e; *loss += scale * (sum over
     * e in order of c_e * sums[e] / n), fp64. sums are route_sums'; n >= 0. */
    enum err (*balance_forward)(const struct kernel_ctx *ctx,
                                const struct route *route, double scale,
                                const int64_t *offsets, const double *sums,
                                int64_t *counts, double *loss);
    /* dprobs[e] = scale * c_e / n, rounded once; 0 if n is. */
    enum err (*balance_backward)(const struct kernel_ctx *ctx,
                                 const struct route *route, double scale,
                                 const int64_t *offsets, float *dprobs);
    /* out[r, :] = x[source[r] / top_k, :] for n * top_k rows of d. */
    enum err (*expert_gather)(const struct kernel_ctx *ctx, enum dtype dtype,
                              const struct route *route, int64_t d,
                              const int32_t *source, const void *x, void *out);
    /* out[t, :] = sum over j in order of weights[t, j] * y[place[t top_k + j],
     * :]; weights NULL: 1. */
    enum err (*expert_combine)(const struct kernel_ctx *ctx, enum dtype dtype,
                               const struct route *route, int64_t d,
                               const int32_t *place, const float *weights,
                               const void *y, void *out);
    /* For every sorted row r with w = weights[source[r]]:
     * dweights[source[r]] = dot(dh[r, :], h[r, :]), then dh[r, :] *= w and
     * h[r, :] *= w. */
    enum err (*expert_weigh)(const struct kernel_ctx *ctx, enum dtype dtype,
                             const struct route *route, int64_t width,
                             const int32_t *source, const float *weights,
                             void *h, void *dh, float *dweights);
    /* The bits of a group follow from its own rows and weights, whatever the
     * other groups are and wherever it lies. TN: a group without rows leaves c
     * alone with `accumulate`, zeroes it without. */
    enum err (*grouped_gemm)(const struct kernel_ctx *ctx, enum dtype dtype,
                             const struct grouped_gemm *gemm);

    /* --- tensors in fewer bits ----------------------------------------------
     */

    /* packed: kernels_packed_bytes(packing, rows, cols) bytes. bf16 goes to
     * PACKING_INT8 only, in the bytes of the same numbers in fp32; what comes
     * back is rounded once. */
    enum err (*pack)(const struct kernel_ctx *ctx, enum dtype dtype,
                     enum packing packing, int64_t rows, int64_t cols,
                     const void *x, void *packed);
    enum err (*unpack)(const struct kernel_ctx *ctx, enum dtype dtype,
                       enum packing packing, int64_t rows, int64_t cols,
                       const void *packed, void *x);

    /* dbias[d] += column sums of dy[n,d]. */
    enum err (*bias_backward)(const struct kernel_ctx *ctx, enum dtype dtype,
                              int64_t n, int64_t d, const void *dy,
                              void *dbias);

    /* y += x; out = a + scale * b (out may be a or b); fill with zeros; n
     * elements. */
    enum err (*accumulate)(const struct kernel_ctx *ctx, enum dtype dtype,
                           int64_t n, const void *x, void *y);
    enum err (*add)(const struct kernel_ctx *ctx, enum dtype dtype, int64_t n,
                    const void *a, float scale, const void *b, void *out);
    enum err (*zero)(const struct kernel_ctx *ctx, enum dtype dtype, int64_t n,
                     void *x);

    /* y[r, :] = x[r, :], rows of `width` elements of any type, which lie
     * x_stride and y_stride elements apart; x and y do not overlap and may
     * begin at any element. */
    enum err (*copy_rows)(const struct kernel_ctx *ctx, enum dtype dtype,
                          int64_t rows, int64_t width, int64_t x_stride,
                          const void *x, int64_t y_stride, void *y);

    /* y = x in another type, n elements, each rounded once; from and to are
     * DTYPE_F32 and DTYPE_BF16 in either order. */
    enum err (*convert)(const struct kernel_ctx *ctx, int64_t n,
                        enum dtype from, const void *x, enum dtype to, void *y);

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
    /* DecoupledLionW (Chen et al. 2023; Composer's definition), with adamw's
     * lr, decay, beta1, beta2 and grad_scale: p *= 1 - decay;
     * p -= lr * sign(b1 m + (1-b1) g); m = b2 m + (1-b2) g. */
    enum err (*lion)(const struct kernel_ctx *ctx, enum dtype dtype, int64_t n,
                     const struct adamw *step, float *p, const void *g,
                     float *m);
};

/* Bytes of a packed tensor, a multiple of 64; PACKING_NONE: of the fp32 one. */
size_t kernels_packed_bytes(enum packing packing, int64_t rows, int64_t cols);

/* The table for a backend ("cpu", "cuda") and kernel set ("auto": the best that
 * this processor runs, or a name). ERR_UNSUPPORTED names what was not built or
 * what the processor lacks, and what there is instead. The table is static.
 * "cuda" needs a build with CUDA and a GPU. */
enum err kernels_find(const char *backend, const char *kernel_set,
                      const struct kernels **out);

/* The same for a plan: the table may only be asked for sizes, and "cuda" needs
 * no GPU. */
enum err kernels_find_planned(const char *backend, const char *kernel_set,
                              const struct kernels **out);

/* All tables of this build that the processor can run, NULL-terminated, best
 * first, those of a GPU's memory not among them: for tests that run every op on
 * every table. Programs that are linked with the CUDA kernels for the processor
 * (tests/cuda_emulator.h) have these as the last one, cuda/emulated. */
const struct kernels *const *kernels_all(void);

/* Address space that each of a rank's threads but the first takes: the stack
 * that the C library gives it (ulimit -s; 2 MiB without a limit) and its guard
 * page. Kernels take nothing else: their space is ctx->scratch. */
size_t kernels_thread_space(void);

/* Threads that a rank should use: processors in its affinity mask divided by
 * the ranks that share them, no more than SLURM_CPUS_PER_TASK (which counts for
 * one rank already), at least 1. `shared_by` is the number of ranks on this
 * node with the same mask. */
int kernels_threads_default(int shared_by);

/* Give each thread that OpenMP adds to the caller a processor of its own, where
 * the affinity mask has as many processors as there are `threads`. A thread that
 * slept is often woken on the processor of the one that woke it, and Linux parts
 * them only milliseconds later: products take up to twice their time
 * (docs/benchmarks.md). The caller itself stays free, and with it what it starts
 * later. Does nothing with fewer threads than processors: then ranks may share
 * them. */
void kernels_spread_threads(int threads);

/* Let OpenMP's idle threads spin for a moment, then sleep: a thread that goes
 * on spinning takes the core from the one that it waits for when processors are
 * shared (measured: a step beside one busy process is 9 times slower), one that
 * sleeps at once is woken for every product (4 % of them). The moment is
 * KERNEL_SPINS of GCC's runtime, some 25 us where a pause is 40 cycles. OpenMP
 * reads this from the environment before main, so the program is started anew,
 * once, unless OMP_WAIT_POLICY asks for something else than "passive" or
 * GOMP_SPINCOUNT, which outdoes it, is there. The first call of a main that has
 * kernels. */
#define KERNEL_SPINS "2000"
void kernels_wait_passively(char **argv);

#endif
