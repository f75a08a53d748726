/* The ops: everything that computes on tensors. The op table's struct, the
 * declarations of every backend's functions, the tables and the wrappers of
 * tests all come from the entries below, of which each is
 *
 *     OP(name, (parameters), (arguments), tensors...)
 *
 * Before the parameters every op has `const struct kernel_ctx *ctx`. The
 * arguments are the parameters' names, for functions that pass them on. The
 * tensors are all pointers to the backend's memory, those in structures of
 * kernel_shapes.h included; some may be NULL. A new op gets an entry, its name
 * in KERNEL_OPS at the end of this file, its row in kernel_work.c, and a function
 * in a cpu_*.c and in a cuda_*.cu.
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
 *     CUDA all pointers but those to structures are to device memory,
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
 *   gemm and products of panels 2e-6*sqrt(k), norms 5e-6, activations 2e-6, attention 5e-6, rope 2e-6,
 *   cross_entropy 5e-6, routing 5e-6, updates 2e-6 (one step), sums 1e-12 (fp64
 *   accumulation).
 * gemm_fp8: 2^-11 of the sum of an element's terms' magnitudes, as tensor cores
 * keep fewer bits of such sums than fp32 has; `fast`: none.
 */
#pragma once

#include "kernels/kernel_shapes.h"
#include "kernels/kernel_updates.h"
#include "src/base/err.h"

/* An entry's parameters or arguments without their parentheses. */
#define KERNEL_BARE(...) __VA_ARGS__
/* The parameters of a function: of an entry's, and like those of an op. */
#define KERNEL_PARAMETERS(parameters)                                          \
    (const struct kernel_ctx *ctx, KERNEL_BARE parameters)
#define KERNEL_LIKE(op) KERNEL_##op(KERNEL_ENTRY_PARAMETERS)
#define KERNEL_UPDATE_LIKE(name) KERNEL_UPDATE(KERNEL_ENTRY_PARAMETERS, name, )
#define KERNEL_ENTRY_PARAMETERS(op, parameters, ...)                           \
    KERNEL_PARAMETERS(parameters)

/* The product that struct gemm describes (kernel_shapes.h). */
#define KERNEL_gemm(OP)                                                        \
    OP(gemm, (enum dtype dtype, const struct gemm *gemm), (dtype, gemm),       \
       gemm->a, gemm->b, gemm->c, gemm->bias)

/* out[n,d] = wte[tokens[i], :] + wpe[i % seq, :]; wpe NULL: without.
 * Tokens must be in [0, vocab): checked by the loader. */
#define KERNEL_embedding_forward(OP)                                           \
    OP(embedding_forward,                                                      \
       (enum dtype dtype, int64_t n, int64_t seq, int64_t d,                   \
        const int32_t *tokens, const void *wte, const void *wpe, void *out),   \
       (dtype, n, seq, d, tokens, wte, wpe, out), tokens, wte, wpe, out)
/* dwte[tokens[i], :] += dout[i, :] and dwpe[i % seq, :] += dout[i, :] in
 * order of i; dwpe NULL: without. Parallel over columns of d. */
#define KERNEL_embedding_backward(OP)                                          \
    OP(embedding_backward,                                                     \
       (enum dtype dtype, int64_t n, int64_t seq, int64_t d,                   \
        const int32_t *tokens, const void *dout, void *dwte, void *dwpe),      \
       (dtype, n, seq, d, tokens, dout, dwte, dwpe), tokens, dout, dwte, dwpe)

/* y = (x - mean) * rstd * gamma + beta; mean[n * groups] and rstd[n *
 * groups] are saved for backward. beta NULL: without. Two-pass variance.
 * NORM_RMS: y = x * rstd * gamma; mean and beta (and dbeta in backward) are
 * not touched and may be NULL. y may be x. */
#define KERNEL_norm_forward(OP)                                                \
    OP(norm_forward,                                                           \
       (enum dtype dtype, const struct norm *norm, const void *x,              \
        const void *gamma, const void *beta, void *y, float *mean,             \
        float *rstd),                                                          \
       (dtype, norm, x, gamma, beta, y, mean, rstd), x, gamma, beta, y, mean,  \
       rstd)
/* x[n,d] = a + scale * b, then as norm_forward of x; x may be a. Only one
 * group, and stride = d. */
#define KERNEL_add_norm_forward(OP)                                            \
    OP(add_norm_forward,                                                       \
       (enum dtype dtype, const struct norm *norm, const void *a, float scale, \
        const void *b, void *x, const void *gamma, const void *beta, void *y,  \
        float *mean, float *rstd),                                             \
       (dtype, norm, a, scale, b, x, gamma, beta, y, mean, rstd), a, b, x,     \
       gamma, beta, y, mean, rstd)
/* With `accumulate` dx += the gradient through the norm (the residual
 * stream's gradient is already there), otherwise dx = it and dx may be dy.
 * dgamma +=, dbeta += (NULL: without). */
#define KERNEL_norm_backward(OP)                                               \
    OP(norm_backward,                                                          \
       (enum dtype dtype, const struct norm *norm, const void *dy,             \
        const void *x, const void *gamma, const float *mean,                   \
        const float *rstd, bool accumulate, void *dx, void *dgamma,            \
        void *dbeta),                                                          \
       (dtype, norm, dy, x, gamma, mean, rstd, accumulate, dx, dgamma, dbeta), \
       dy, x, gamma, mean, rstd, dx, dgamma, dbeta)

/* y = act(x), n elements: GELU with the exact erf, x/2 (1 + erf(x/sqrt 2));
 * SiLU x / (1 + exp(-x)). backward: dx = dy * act'(x); dx may be dy. */
#define KERNEL_activation_forward(OP)                                          \
    OP(activation_forward,                                                     \
       (enum dtype dtype, enum activation act, int64_t n, const void *x,       \
        void *y),                                                              \
       (dtype, act, n, x, y), x, y)
#define KERNEL_activation_backward(OP)                                         \
    OP(activation_backward,                                                    \
       (enum dtype dtype, enum activation act, int64_t n, const void *x,       \
        const void *dy, void *dx),                                             \
       (dtype, act, n, x, dy, dx), x, dy, dx)
/* Gated: y[n,width] = act(gate[n,width]) * up[n,width] (Shazeer 2020). Rows
 * of gate, up, dgate and dup are `stride` elements apart, those of y and dy
 * are contiguous. backward: dgate and dup may be gate and up. */
#define KERNEL_glu_forward(OP)                                                 \
    OP(glu_forward,                                                            \
       (enum dtype dtype, enum activation act, int64_t n, int64_t width,       \
        int64_t stride, const void *gate, const void *up, void *y),            \
       (dtype, act, n, width, stride, gate, up, y), gate, up, y)
#define KERNEL_glu_backward(OP)                                                \
    OP(glu_backward,                                                           \
       (enum dtype dtype, enum activation act, int64_t n, int64_t width,       \
        int64_t stride, const void *gate, const void *up, const void *dy,      \
        void *dgate, void *dup),                                               \
       (dtype, act, n, width, stride, gate, up, dy, dgate, dup), gate, up, dy, \
       dgate, dup)

/* x = min(max(x, -limit), limit), n elements, in place. backward: dx = 0
 * where |x| (after clipping) is limit. In bf16 limit is rounded towards
 * zero first, so that it is a value that x can have. */
#define KERNEL_clip_forward(OP)                                                \
    OP(clip_forward, (enum dtype dtype, int64_t n, float limit, void *x),      \
       (dtype, n, limit, x), x)
#define KERNEL_clip_backward(OP)                                               \
    OP(clip_backward,                                                          \
       (enum dtype dtype, int64_t n, float limit, const void *x, void *dx),    \
       (dtype, n, limit, x, dx), x, dx)

/* Rotary positions (Su et al. 2021) in place, halves convention (Hugging
 * Face's): for pair j of the first `rotated` of `heads` heads of x[n,
 * heads, head_dim], token t = row % seq: (x[j], x[j + head_dim/2]) turns by
 * the angle whose cosine and sine are table[t][0][j], table[t][1][j] (table
 * is [seq, 2, head_dim/2]); by its negative with `inverse`, which is
 * backward. */
#define KERNEL_rope(OP)                                                        \
    OP(rope,                                                                   \
       (enum dtype dtype, int64_t n, int64_t seq, int64_t heads,               \
        int64_t rotated, int64_t head_dim, const float *table, bool inverse,   \
        void *x),                                                              \
       (dtype, n, seq, heads, rotated, head_dim, table, inverse, x), table, x)

/* y = x * scale * m / (1 - p), m is 0 with probability p < 1: where the
 * element's random word is below p 2^32; samples rows of `elements`. p = 0:
 * y = x * scale. Also its own backward. y may be x. */
#define KERNEL_dropout(OP)                                                     \
    OP(dropout,                                                                \
       (enum dtype dtype, int64_t samples, int64_t elements, float p,          \
        const struct random_place *random, float scale, const void *x,         \
        void *y),                                                              \
       (dtype, samples, elements, p, random, scale, x, y), x, y)
/* y = x * (1 - amount + 2 amount u), u uniform in [0, 1): the upper 24 bits
 * of the element's random word. Also its own backward. y may be x. */
#define KERNEL_jitter(OP)                                                      \
    OP(jitter,                                                                 \
       (enum dtype dtype, int64_t samples, int64_t elements, float amount,     \
        const struct random_place *random, const void *x, void *y),            \
       (dtype, samples, elements, amount, random, x, y), x, y)

/* Causal attention on packed qkv[batch, seq, heads + 2 kv_heads, head_dim]:
 * first the queries' heads, then keys, then values; query head h uses key
 * head h / (heads / kv_heads). out[batch, seq, heads, head_dim], lse[batch,
 * heads, seq] (log sum exp of the scaled scores, before dropout). Scratch
 * does not grow with seq on CPU; CUDA has 4 bytes per query and head in
 * backward. CUDA's heads have at most 128 elements, others return
 * ERR_UNSUPPORTED. In bf16 it also rounds the probabilities, and in
 * backward the scores' gradients, before it multiplies them. */
#define KERNEL_attention_forward(OP)                                           \
    OP(attention_forward,                                                      \
       (enum dtype dtype, const struct attention *shape, const void *qkv,      \
        void *out, float *lse),                                                \
       (dtype, shape, qkv, out, lse), qkv, out, lse, shape->alibi_slopes,      \
       shape->sequence_ids)
#define KERNEL_attention_backward(OP)                                          \
    OP(attention_backward,                                                     \
       (enum dtype dtype, const struct attention *shape, const void *qkv,      \
        const void *out, const float *lse, const void *dout, void *dqkv),      \
       (dtype, shape, qkv, out, lse, dout, dqkv), qkv, out, lse, dout, dqkv,   \
       shape->alibi_slopes, shape->sequence_ids)

/* Attention of the queries over the keys of one chunk after another, in the
 * caller's order, which decides bits. Of the packed q[batch, seq, heads + 2
 * kv_heads, head_dim] only queries are read; kv[batch, seq, 2 kv_heads,
 * head_dim] are the keys' chunk's keys, then values. out, in fp32, and lse, as
 * attention_forward's, hold the attention over the keys of former calls and
 * become that over this chunk's keys, too; with `first` there were none and
 * they are not read. A query that sees no key of the chunk keeps its out
 * and lse; if it saw none before they are 0 and -Inf. */
#define KERNEL_attention_chunk_forward(OP)                                     \
    OP(attention_chunk_forward,                                                \
       (enum dtype dtype, const struct attention_chunk *chunk, const void *q,  \
        const void *kv, bool first, float *out, float *lse),                   \
       (dtype, chunk, q, kv, first, out, lse), q, kv, out, lse,                \
       chunk->shape.alibi_slopes, chunk->shape.sequence_ids, chunk->key_ids)
/* One chunk's share of the gradients. out and lse are those over all keys
 * that the queries see, each at least one. fp32: dq[batch, seq, heads,
 * head_dim] +=, its tokens chunk->dq_stride apart, and dkv, laid out like kv,
 * +=. */
#define KERNEL_attention_chunk_backward(OP)                                    \
    OP(attention_chunk_backward,                                               \
       (enum dtype dtype, const struct attention_chunk *chunk, const void *q,  \
        const void *kv, const void *out, const float *lse, const void *dout,   \
        float *dq, float *dkv),                                                \
       (dtype, chunk, q, kv, out, lse, dout, dq, dkv), q, kv, out, lse, dout,  \
       dq, dkv, chunk->shape.alibi_slopes, chunk->shape.sequence_ids,          \
       chunk->key_ids)

/* Rows that are appended to slots: their keys and values, out of packed
 * qkv[rows, heads + 2 kv_heads, head_dim], are stored in the cache, and then
 * each row attends to positions 0 to its own of its slot, or to those of them
 * in its window, into out[rows, heads, head_dim]. Positions below the rows' must have been stored before. A row's
 * bits follow from its own slot's keys and values up to its position: scores are
 * chains over head_dim, the sum of exponentials runs over sixteen lanes by
 * position, the values' over positions in order, whatever else is in the call.
 * fp32 only. */
#define KERNEL_attention_cached(OP)                                            \
    OP(attention_cached,                                                       \
       (const struct attention_cached *shape, const float *qkv, float *out),   \
       (shape, qkv, out), qkv, out, shape->alibi_slopes, shape->slots,         \
       shape->positions, shape->keys, shape->values)

/* losses[i] = the cross entropy of softmax(scale * logits[i,:]) and what
 * struct target makes of labels[i], 0 where labels[i] < 0 (ignored); scale >
 * 0. With `gradient` logits[n,vocab] is overwritten by that of the loss (rows
 * of ignored labels by 0); without it logits are left alone or destroyed, the
 * caller must not rely on either. */
#define KERNEL_cross_entropy(OP)                                               \
    OP(cross_entropy,                                                          \
       (enum dtype dtype, int64_t n, int64_t vocab, float scale,               \
        const struct target *target, void *logits, const int32_t *labels,      \
        bool gradient, float *losses),                                         \
       (dtype, n, vocab, scale, target, logits, labels, gradient, losses),     \
       logits, labels, losses)

/* --- mixture of experts: n tokens, each goes to top_k experts --- */

/* probs[n, experts] holds logits and becomes their softmax; chosen[n,
 * top_k] are the experts in falling order of probability (equal ones: the
 * lower number first), weights[n, top_k] their probabilities, divided by
 * their L_p norm if route->normalize. */
#define KERNEL_route_forward(OP)                                               \
    OP(route_forward,                                                          \
       (const struct route *route, float *probs, int32_t *chosen,              \
        float *weights),                                                       \
       (route, probs, chosen, weights), probs, chosen, weights)
/* dlogits[n, experts] from dweights[n, top_k] and from dprobs[experts],
 * which every token's probabilities get besides (the load-balance loss). */
#define KERNEL_route_backward(OP)                                              \
    OP(route_backward,                                                         \
       (const struct route *route, const float *probs, const int32_t *chosen,  \
        const float *dweights, const float *dprobs, float *dlogits),           \
       (route, probs, chosen, dweights, dprobs, dlogits), probs, chosen,       \
       dweights, dprobs, dlogits)
/* Order the n top_k choices by expert, then token: offsets[experts + 1] as
 * in struct grouped_gemm; place[n * top_k]: the sorted row of choice i
 * (token i / top_k); source: its inverse. */
#define KERNEL_route_sort(OP)                                                  \
    OP(route_sort,                                                             \
       (const struct route *route, const int32_t *chosen, int64_t *offsets,    \
        int32_t *place, int32_t *source),                                      \
       (route, chosen, offsets, place, source), chosen, offsets, place,        \
       source)
/* out[e] = the sum of column e of probs[n, experts], fp64. */
#define KERNEL_route_sums(OP)                                                  \
    OP(route_sums,                                                             \
       (const struct route *route, const float *probs, double *out),           \
       (route, probs, out), probs, out)
/* The load-balance loss of Fedus, Zoph and Shazeer 2021 with c_e =
 * offsets[e + 1] - offsets[e]: counts[e] += c_e; *loss += scale * (sum over
 * e in order of c_e * sums[e] / n), fp64. sums are route_sums'; n >= 0. */
#define KERNEL_balance_forward(OP)                                             \
    OP(balance_forward,                                                        \
       (const struct route *route, double scale, const int64_t *offsets,       \
        const double *sums, int64_t *counts, double *loss),                    \
       (route, scale, offsets, sums, counts, loss), offsets, sums, counts,     \
       loss)
/* dprobs[e] = scale * c_e / n, rounded once; 0 if n is. */
#define KERNEL_balance_backward(OP)                                            \
    OP(balance_backward,                                                       \
       (const struct route *route, double scale, const int64_t *offsets,       \
        float *dprobs),                                                        \
       (route, scale, offsets, dprobs), offsets, dprobs)
/* out[r, :] = x[source[r] / top_k, :] for n * top_k rows of d. */
#define KERNEL_expert_gather(OP)                                               \
    OP(expert_gather,                                                          \
       (enum dtype dtype, const struct route *route, int64_t d,                \
        const int32_t *source, const void *x, void *out),                      \
       (dtype, route, d, source, x, out), source, x, out)
/* out[t, :] = sum over j in order of weights[t, j] * y[place[t top_k + j],
 * :]; weights NULL: 1. */
#define KERNEL_expert_combine(OP)                                              \
    OP(expert_combine,                                                         \
       (enum dtype dtype, const struct route *route, int64_t d,                \
        const int32_t *place, const float *weights, const void *y, void *out), \
       (dtype, route, d, place, weights, y, out), place, weights, y, out)
/* For every sorted row r with w = weights[source[r]]:
 * dweights[source[r]] = dot(dh[r, :], h[r, :]), then dh[r, :] *= w and
 * h[r, :] *= w. */
#define KERNEL_expert_weigh(OP)                                                \
    OP(expert_weigh,                                                           \
       (enum dtype dtype, const struct route *route, int64_t width,            \
        const int32_t *source, const float *weights, void *h, void *dh,        \
        float *dweights),                                                      \
       (dtype, route, width, source, weights, h, dh, dweights), source,        \
       weights, h, dh, dweights)
/* The bits of a group follow from its own rows and weights, whatever the
 * other groups are and wherever it lies. TN: a group without rows leaves c
 * alone with `accumulate`, zeroes it without. */
#define KERNEL_grouped_gemm(OP)                                                \
    OP(grouped_gemm, (enum dtype dtype, const struct grouped_gemm *gemm),      \
       (dtype, gemm), gemm->offsets, gemm->a, gemm->b, gemm->c)

/* --- matrices in panels (struct panels) --- */

/* panels: kernels_panels_bytes(shape) bytes, all of which are written, of
 * x[groups, n, k], or with `turned` x[groups, k, n]. */
#define KERNEL_panels_fill(OP)                                                 \
    OP(panels_fill,                                                            \
       (const struct panels *shape, bool turned, const float *x,               \
        void *panels),                                                         \
       (shape, turned, x, panels), x, panels)
/* out[i, :] = row rows[i] of group 0, times its scale, for `count` rows of k. */
#define KERNEL_panels_rows(OP)                                                 \
    OP(panels_rows,                                                            \
       (const struct panels *shape, const void *panels, int64_t count,         \
        const int32_t *rows, float *out),                                      \
       (shape, panels, count, rows, out), panels, rows, out)
/* The product that struct panels_product describes, chains as gemm's: of fp32
 * the bits are gemm's. int8 is multiplied by its scale when the chain is
 * complete, rounded, and then the bias is added. */
#define KERNEL_panels_product(OP)                                              \
    OP(panels_product, (const struct panels_product *product), (product),      \
       product->panels, product->offsets, product->a, product->c,              \
       product->bias)

/* --- tensors in fewer bits --- */

/* packed: kernels_packed_bytes(packing, rows, cols) bytes. bf16 goes to
 * PACKING_INT8 only, in the bytes of the same numbers in fp32; what comes
 * back is rounded once. */
#define KERNEL_pack(OP)                                                        \
    OP(pack,                                                                   \
       (enum dtype dtype, enum packing packing, int64_t rows, int64_t cols,    \
        const void *x, void *packed),                                          \
       (dtype, packing, rows, cols, x, packed), x, packed)
#define KERNEL_unpack(OP)                                                      \
    OP(unpack,                                                                 \
       (enum dtype dtype, enum packing packing, int64_t rows, int64_t cols,    \
        const void *packed, void *x),                                          \
       (dtype, packing, rows, cols, packed, x), packed, x)

/* dbias[d] += column sums of dy[n,d]. */
#define KERNEL_bias_backward(OP)                                               \
    OP(bias_backward,                                                          \
       (enum dtype dtype, int64_t n, int64_t d, const void *dy, void *dbias),  \
       (dtype, n, d, dy, dbias), dy, dbias)

/* y += x; out = a + scale * b (out may be a or b); fill with zeros; n
 * elements. */
#define KERNEL_accumulate(OP)                                                  \
    OP(accumulate, (enum dtype dtype, int64_t n, const void *x, void *y),      \
       (dtype, n, x, y), x, y)
#define KERNEL_add(OP)                                                         \
    OP(add,                                                                    \
       (enum dtype dtype, int64_t n, const void *a, float scale,               \
        const void *b, void *out),                                             \
       (dtype, n, a, scale, b, out), a, b, out)
/* out = the sum that struct add_tree describes, n elements of fp32: the bits of
 * as many accumulates. out may be one of its values in fp32; none has to be
 * aligned. */
#define KERNEL_add_tree(OP)                                                    \
    OP(add_tree, (int64_t n, const struct add_tree *tree, float *out),         \
       (n, tree, out), tree->values[0], tree->values[1], tree->values[2],      \
       tree->values[3], tree->values[4], tree->values[5], tree->values[6],     \
       tree->values[7], tree->values[8], tree->values[9], tree->values[10],    \
       tree->values[11], tree->values[12], tree->values[13], tree->values[14], \
       tree->values[15], out)
#define KERNEL_zero(OP)                                                        \
    OP(zero, (enum dtype dtype, int64_t n, void *x), (dtype, n, x), x)

/* y[r, :] = x[r, :], rows of `width` elements of any type, which lie
 * x_stride and y_stride elements apart; x and y do not overlap and may
 * begin at any element. */
#define KERNEL_copy_rows(OP)                                                   \
    OP(copy_rows,                                                              \
       (enum dtype dtype, int64_t rows, int64_t width, int64_t x_stride,       \
        const void *x, int64_t y_stride, void *y),                             \
       (dtype, rows, width, x_stride, x, y_stride, y), x, y)

/* y = x in another type, n elements, each rounded once; from and to are
 * DTYPE_F32 and DTYPE_BF16 in either order. */
#define KERNEL_convert(OP)                                                     \
    OP(convert,                                                                \
       (int64_t n, enum dtype from, const void *x, enum dtype to, void *y),    \
       (n, from, x, to, y), x, y)

/* *out = sum of x[n], fp64, fixed chunks of KERNEL_CHUNK then in order. */
#define KERNEL_sum(OP)                                                         \
    OP(sum, (int64_t n, const float *x, double *out), (n, x, out), x, out)
/* out[c] = sum of squares of chunk c of x[n]; n is a multiple of
 * KERNEL_CHUNK; out has n / KERNEL_CHUNK entries. */
#define KERNEL_chunk_sum_squares(OP)                                           \
    OP(chunk_sum_squares,                                                      \
       (enum dtype dtype, int64_t n, const void *x, double *out),              \
       (dtype, n, x, out), x, out)

/* The updates of optimizers are in kernel_updates.h. */

/* --- 8-bit floats: NULL where there are none (CPU) --- */

/* y = x * *scale in fp32, rounded to nearest even in 8 bits; what is beyond
 * the largest finite value, Inf too, becomes that, NaN stays NaN (of either
 * sign). x[rows, cols] is bf16, both multiples of 16; across[cols, rows] is
 * the transpose of y[rows, cols]; one of the two may be NULL. *largest =
 * max(*largest, largest finite |x|), *largest not being negative. */
#define KERNEL_quantize(OP)                                                    \
    OP(quantize,                                                               \
       (enum fp8 to, int64_t rows, int64_t cols, const void *x,                \
        const float *scale, void *y, void *across, float *largest),            \
       (to, rows, cols, x, scale, y, across, largest), x, scale, y, across,    \
       largest)
/* The product that struct gemm_fp8 describes. */
#define KERNEL_gemm_fp8(OP)                                                    \
    OP(gemm_fp8, (const struct gemm_fp8 *gemm), (gemm), gemm->a, gemm->b,      \
       gemm->c, gemm->bias, gemm->unscale_a, gemm->unscale_b)

/* --- the list: ops of every backend, and those of 8-bit floats --- */

/* clang-format off */
#define KERNEL_OPS(OP)                                                         \
    KERNEL_gemm(OP) KERNEL_embedding_forward(OP) KERNEL_embedding_backward(OP) \
    KERNEL_norm_forward(OP) KERNEL_add_norm_forward(OP)                        \
    KERNEL_norm_backward(OP) KERNEL_activation_forward(OP)                     \
    KERNEL_activation_backward(OP) KERNEL_glu_forward(OP)                      \
    KERNEL_glu_backward(OP) KERNEL_clip_forward(OP) KERNEL_clip_backward(OP)   \
    KERNEL_rope(OP) KERNEL_dropout(OP) KERNEL_jitter(OP)                       \
    KERNEL_attention_forward(OP) KERNEL_attention_backward(OP)                 \
    KERNEL_attention_chunk_forward(OP) KERNEL_attention_chunk_backward(OP)     \
    KERNEL_attention_cached(OP) KERNEL_panels_fill(OP) KERNEL_panels_rows(OP)  \
    KERNEL_panels_product(OP) KERNEL_cross_entropy(OP) KERNEL_route_forward(OP)                          \
    KERNEL_route_backward(OP) KERNEL_route_sort(OP) KERNEL_route_sums(OP)      \
    KERNEL_balance_forward(OP) KERNEL_balance_backward(OP)                     \
    KERNEL_expert_gather(OP) KERNEL_expert_combine(OP) KERNEL_expert_weigh(OP) \
    KERNEL_grouped_gemm(OP) KERNEL_pack(OP) KERNEL_unpack(OP)                  \
    KERNEL_bias_backward(OP) KERNEL_accumulate(OP) KERNEL_add(OP)              \
    KERNEL_add_tree(OP) KERNEL_zero(OP) KERNEL_copy_rows(OP)                   \
    KERNEL_convert(OP) KERNEL_sum(OP) KERNEL_chunk_sum_squares(OP)             \
    KERNEL_UPDATES(KERNEL_UPDATE, OP)
#define KERNEL_OPS_FP8(OP) KERNEL_quantize(OP) KERNEL_gemm_fp8(OP)
/* clang-format on */
