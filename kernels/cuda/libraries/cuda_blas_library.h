/* cuBLASLt, opened when a program runs: so that programs start on machines
 * without it and are linked without its 540 MB. */
#pragma once

#include <cublasLt.h>

#include "src/base/err.h"

struct cuda_blas_library {
    void *opened; /* by dlopen */
    __typeof__(cublasLtCreate) *create;
    __typeof__(cublasLtDestroy) *destroy;
    __typeof__(cublasLtGetVersion) *version;
    __typeof__(cublasLtGetStatusName) *status_name;
    __typeof__(cublasLtMatmul) *matmul;
    __typeof__(cublasLtMatmulDescCreate) *desc_create;
    __typeof__(cublasLtMatmulDescDestroy) *desc_destroy;
    __typeof__(cublasLtMatmulDescSetAttribute) *desc_set;
    __typeof__(cublasLtMatrixLayoutCreate) *layout_create;
    __typeof__(cublasLtMatrixLayoutDestroy) *layout_destroy;
    __typeof__(cublasLtMatmulPreferenceCreate) *preference_create;
    __typeof__(cublasLtMatmulPreferenceDestroy) *preference_destroy;
    __typeof__(cublasLtMatmulPreferenceSetAttribute) *preference_set;
    __typeof__(cublasLtMatmulAlgoGetHeuristic) *heuristic;
    __typeof__(cublasLtMatmulAlgoCheck) *check;
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
