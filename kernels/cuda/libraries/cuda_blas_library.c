/* Opens cuBLASLt with dlopen and finds its functions. What is computed with it
 * is in cuda_blas.c.
 *
 * The types of the functions are the headers', the file is that of their major
 * version, and every call goes through the table: so tests put in a double that
 * needs no GPU. */
#include "kernels/cuda/libraries/cuda_blas_library.h"

#include <stddef.h>

#include "kernels/cuda/device/cuda_device.h"
#include "src/base/process.h"

/* The file of the version that the headers are of, which its ABI follows. */
#define TEXT(number) #number
#define FILE_OF(major) "libcublasLt.so." TEXT(major)
#define FILE_NAME FILE_OF(CUBLAS_VER_MAJOR)

#define MEMBER(name, function)                                                 \
    { .symbol = #function, .offset = offsetof(struct cuda_blas_library, name) },

static const struct process_symbol symbols[] = { CUDA_BLAS_FUNCTIONS(MEMBER) };

enum err cuda_blas_library_open(struct cuda_blas_library *library)
{
    static const struct process_library what = {
        PROCESS_LIBRARY("cuBLASLt: ", FILE_NAME, symbols),
        .missing = "install CUDA's libcublas or add its folder to "
                   "LD_LIBRARY_PATH",
        .old = "install the libcublas of the CUDA this was built with"
    };
    TRY(process_library_open(&what, library, sizeof *library));
    library->time = cuda_device_time;
    return ERR_OK;
}

void cuda_blas_library_close(struct cuda_blas_library *library)
{
    process_library_close(library, sizeof *library);
}

/* Those that our own kernels can help with are ERR_UNSUPPORTED, on which callers
 * fall back; what is left is a mistake in what it was asked. */
enum err cuda_blas_library_error(const struct cuda_blas_library *library,
                                 cublasStatus_t status, const char *what)
{
    enum err rc = ERR_INTERNAL;
    if (status == CUBLAS_STATUS_SUCCESS)
        return ERR_OK;
    if (status == CUBLAS_STATUS_NOT_INITIALIZED ||
        status == CUBLAS_STATUS_ARCH_MISMATCH ||
        status == CUBLAS_STATUS_NOT_SUPPORTED)
        rc = ERR_UNSUPPORTED;
    if (status == CUBLAS_STATUS_ALLOC_FAILED)
        rc = ERR_MEMORY;
    return err_set(rc, "cuBLASLt: %s: %s; CUBLASLT_LOG_LEVEL=2 says more", what,
                   library->status_name(status));
}
