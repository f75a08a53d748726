/* gemm through cuBLASLt. Every kind of product (form, shape, dtype, += or bias,
 * alignment) has a plan, made at its first use: descriptors and the algorithm.
 * The algorithm is the heuristics' first one, or the fastest measured one, or
 * what another rank or attempt chose: bits follow from it, so all ranks and
 * attempts of a run should have the same. Algorithms that add up partial
 * products in an order of chance are never taken. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernels.h"

/* Used by one thread at a time. */
struct cuda_blas;
struct cuda_blas_library;

/* For the device that the thread uses. `library` is lent; NULL: the real one is
 * opened. ERR_UNSUPPORTED without the library or a GPU. */
enum err cuda_blas_create(const struct cuda_blas_library *library,
                          struct cuda_blas **out);
void cuda_blas_destroy(struct cuda_blas *blas);

/* 130100: version 13.1. */
size_t cuda_blas_version(const struct cuda_blas *blas);

/* The table's gemm. What cuBLASLt has no algorithm for (bf16 GEMM_TN with a
 * bias, odd alignments), at every call, `own` computes, if cuda_fallback() lets
 * it, which is asked once for every kind of product; NULL: ERR_UNSUPPORTED. */
enum err cuda_blas_gemm(struct cuda_blas *blas, const struct kernel_ctx *ctx,
                        enum dtype dtype, const struct gemm *gemm,
                        enum err(*own) KERNEL_LIKE(gemm));

/* The table's gemm_fp8, likewise: before compute capability 8.9 there is no
 * algorithm. */
enum err cuda_blas_gemm_fp8(struct cuda_blas *blas,
                            const struct kernel_ctx *ctx,
                            const struct gemm_fp8 *gemm,
                            enum err(*own) KERNEL_LIKE(gemm_fp8));

/* The product by the heuristics' algorithm number `which`, of those that are
 * measured, for comparisons; the plan's own stays. *there: there are as many,
 * and this one computes it. */
enum err cuda_blas_gemm_by(struct cuda_blas *blas, const struct kernel_ctx *ctx,
                           enum dtype dtype, const struct gemm *gemm, int which,
                           bool *there);

/* Kinds of products that were asked for, and of them those that the own kernel
 * does. */
void cuda_blas_count(const struct cuda_blas *blas, int *kinds, int *own);

/* Times up to 8 algorithms for every plan that was used so far and keeps the
 * fastest: after the first steps, once per run, on one rank. Operands lie in
 * `memory` (device memory of ordinary numbers, which is overwritten); plans
 * that need more than `bytes` keep theirs. */
enum err cuda_blas_measure(struct cuda_blas *blas, const struct kernel_ctx *ctx,
                           void *memory, size_t bytes);

/* All plans' algorithms as text, for other ranks and checkpoints. The caller
 * frees it. */
enum err cuda_blas_choices(const struct cuda_blas *blas, char **text);

/* Takes them from text, also for plans that are made later. ERR_DATA: the text
 * is damaged; ERR_UNSUPPORTED: it is another version's of cuBLASLt. Nothing is
 * changed then. */
enum err cuda_blas_choose(struct cuda_blas *blas, const char *text);

/* The one of this process that the op table uses; NULL if cuBLASLt cannot be
 * used here, for which cuda_blas_missing() is the reason. */
struct cuda_blas *cuda_blas_shared(void);
const char *cuda_blas_missing(void);
