/* Plans' algorithms as text: a line with cuBLASLt's version, then a line for
 * every plan with its key and its algorithm in hexadecimal, or "-" for none:
 *   cublasLt 130100
 *   NT bf16 bf16 bf16 8192 4096 1024 0 1 0 16 16 16 16 0123...cdef
 * Beside the form and the types of a, b and c: m n k, +=, bias, fast sums of
 * 8-bit floats, alignments of a, b, c, bias. */
#pragma once

#include <stddef.h>

#include "kernels/cuda/libraries/cuda_blas_plan.h"

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
