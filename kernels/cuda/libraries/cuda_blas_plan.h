/* What cuBLASLt needs to know of one kind of product. It counts columns first:
 * a row-major matrix is the transpose of one of its, so C^T = B^T A^T, where B
 * comes first. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cuda/libraries/cuda_blas_library.h"
#include "kernels/kernels.h"

/* Bytes of ctx->scratch that products use, from its beginning, which is
 * 256-byte aligned. */
#define CUDA_BLAS_WORKSPACE ((size_t)32 << 20)

/* Alignments that algorithms tell apart; better ones count as this, so that
 * bits do not depend on them. */
#define CUDA_BLAS_PLAN_ALIGNMENT 16

enum cuda_blas_plan_type {
    CUDA_BLAS_PLAN_F32,
    CUDA_BLAS_PLAN_BF16,
    CUDA_BLAS_PLAN_E4M3,
    CUDA_BLAS_PLAN_E5M2
};

/* Compared as bytes: it has no gaps. */
struct cuda_blas_plan_key {
    int64_t m, n, k;
    uint8_t form, a_type, b_type, c_type;
    uint8_t accumulate, bias;                       /* bias: there is one */
    uint16_t fast;                                  /* of 8-bit floats */
    uint16_t align_a, align_b, align_c, align_bias; /* bytes; 0: no bias */
};

struct cuda_blas_plan {
    struct cuda_blas_plan_key key;
    bool made;   /* the descriptors are there */
    bool chosen; /* by cuda_blas_choose, not by the heuristics */
    bool found;  /* there is an algorithm */
    bool told;   /* the own kernel does it, which was asked and said */
    cublasLtMatmulAlgo_t algo;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t b, a, c; /* in cuBLASLt's order */
};

struct cuda_blas_plan_operands {
    const void *a, *b, *bias;
    void *c;
    const float *unscale_a, *unscale_b; /* of 8-bit floats */
};

struct cuda_blas_plan_key cuda_blas_plan_key(enum dtype dtype,
                                             const struct gemm *gemm);
struct cuda_blas_plan_key cuda_blas_plan_key_fp8(const struct gemm_fp8 *gemm);

/* The type of the bias: C's, or there is no algorithm. */
enum cuda_blas_plan_type
cuda_blas_plan_bias(const struct cuda_blas_plan_key *key);

size_t cuda_blas_plan_bytes(enum cuda_blas_plan_type type);

/* Makes descriptors and, unless one was chosen, finds the algorithm: `found`
 * says whether there is one. ERR_DATA: the chosen one does not run here. */
enum err cuda_blas_plan_make(const struct cuda_blas_library *library,
                             cublasLtHandle_t handle,
                             struct cuda_blas_plan *plan);
void cuda_blas_plan_free(const struct cuda_blas_library *library,
                         struct cuda_blas_plan *plan);

/* The heuristics' first algorithms, at most `most`; possibly none. */
enum err cuda_blas_plan_candidates(const struct cuda_blas_library *library,
                                   cublasLtHandle_t handle,
                                   const struct cuda_blas_plan *plan, int most,
                                   cublasLtMatmulHeuristicResult_t *results,
                                   int *count);

/* Enqueues the product with this algorithm. */
enum err cuda_blas_plan_run(const struct cuda_blas_library *library,
                            cublasLtHandle_t handle,
                            const struct cuda_blas_plan *plan,
                            const cublasLtMatmulAlgo_t *algo,
                            const struct cuda_blas_plan_operands *operands,
                            const struct kernel_ctx *ctx);

/* Plans' algorithms as text: a line with cuBLASLt's version, then a line for
 * every plan with its key and its algorithm in hexadecimal, or "-" for none:
 *   cublasLt 130100
 *   NT bf16 bf16 bf16 8192 4096 1024 0 1 0 16 16 16 16 0123...cdef
 * Beside the form and the types of a, b and c: m n k, +=, bias, fast sums of
 * 8-bit floats, alignments of a, b, c, bias. */
/* "NT", of enum gemm_form; "bf16", of enum cuda_blas_plan_type. */
const char *cuda_blas_text_form(int form);
const char *cuda_blas_text_type(int type);

/* The caller frees *text. */
enum err cuda_blas_text_write(size_t version,
                              const struct cuda_blas_plan *plans, size_t count,
                              char **text);

/* The caller frees *plans, which have no descriptors. ERR_DATA names the line
 * that is damaged; ERR_UNSUPPORTED: another version's. */
enum err cuda_blas_text_read(size_t version, const char *text,
                             struct cuda_blas_plan **plans, size_t *count);
