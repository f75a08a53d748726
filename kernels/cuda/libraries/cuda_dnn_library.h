/* cuDNN, opened when a program runs: so that programs start on machines without
 * it and are linked without its 500 MB. */
#pragma once

#include <cudnn.h>

#include "src/base/err.h"

/* F(member, function) */
#define CUDA_DNN_FUNCTIONS(F)                                                  \
    F(version, cudnnGetVersion)                                                \
    F(status_name, cudnnGetErrorString)                                        \
    F(last_error, cudnnGetLastErrorString)                                     \
    F(create, cudnnCreate)                                                     \
    F(destroy, cudnnDestroy)                                                   \
    F(set_stream, cudnnSetStream)                                              \
    F(desc_create, cudnnBackendCreateDescriptor)                               \
    F(desc_destroy, cudnnBackendDestroyDescriptor)                             \
    F(set, cudnnBackendSetAttribute)                                           \
    F(get, cudnnBackendGetAttribute)                                           \
    F(finalize, cudnnBackendFinalize)                                          \
    F(execute, cudnnBackendExecute)

struct cuda_dnn_library {
    void *opened; /* by dlopen */
#define CUDA_DNN_POINTER(member, function) __typeof__(function) *member;
    CUDA_DNN_FUNCTIONS(CUDA_DNN_POINTER)
};

/* ERR_UNSUPPORTED says what is missing; `library` is zeros then. */
enum err cuda_dnn_library_open(struct cuda_dnn_library *library);
void cuda_dnn_library_close(struct cuda_dnn_library *library);

/* `status` as an error of ours, "what was tried: cuDNN's name and last words";
 * ERR_OK for 0, ERR_UNSUPPORTED where it has no engine or no GPU. */
enum err cuda_dnn_library_error(const struct cuda_dnn_library *library,
                                cudnnStatus_t status, const char *what);
