/* cuBLASLt, opened when a program runs: so that programs start on machines
 * without it and are linked without its 540 MB. */
#pragma once

#include <cublasLt.h>

#include "src/base/err.h"

/* F(member, function) */
#define CUDA_BLAS_FUNCTIONS(F)                                                 \
    F(create, cublasLtCreate)                                                  \
    F(destroy, cublasLtDestroy)                                                \
    F(version, cublasLtGetVersion)                                             \
    F(status_name, cublasLtGetStatusName)                                      \
    F(matmul, cublasLtMatmul)                                                  \
    F(desc_create, cublasLtMatmulDescCreate)                                   \
    F(desc_destroy, cublasLtMatmulDescDestroy)                                 \
    F(desc_set, cublasLtMatmulDescSetAttribute)                                \
    F(layout_create, cublasLtMatrixLayoutCreate)                               \
    F(layout_destroy, cublasLtMatrixLayoutDestroy)                             \
    F(preference_create, cublasLtMatmulPreferenceCreate)                       \
    F(preference_destroy, cublasLtMatmulPreferenceDestroy)                     \
    F(preference_set, cublasLtMatmulPreferenceSetAttribute)                    \
    F(heuristic, cublasLtMatmulAlgoGetHeuristic)                               \
    F(check, cublasLtMatmulAlgoCheck)

struct cuda_blas_library {
    void *opened; /* by dlopen */
#define CUDA_BLAS_POINTER(member, function) __typeof__(function) *member;
    CUDA_BLAS_FUNCTIONS(CUDA_BLAS_POINTER)
    /* cuda_device_time, beside the library because what it times is the
     * library's. */
    enum err (*time)(void *stream, enum err (*run)(void *), void *argument,
                     double *us);
};

/* ERR_UNSUPPORTED says what is missing; `library` is zeros then. */
enum err cuda_blas_library_open(struct cuda_blas_library *library);
void cuda_blas_library_close(struct cuda_blas_library *library);

/* `status` as an error of ours, "what was tried: cuBLASLt's name of it";
 * ERR_OK for 0, ERR_UNSUPPORTED where it has no algorithm or no GPU. */
enum err cuda_blas_library_error(const struct cuda_blas_library *library,
                                 cublasStatus_t status, const char *what);
