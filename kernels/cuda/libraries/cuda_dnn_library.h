/* cuDNN, opened when a program runs: so that programs start on machines without
 * it and are linked without its 500 MB. */
#pragma once

#include <cudnn.h>

#include "src/base/err.h"

struct cuda_dnn_library {
    void *opened; /* by dlopen */
    __typeof__(cudnnGetVersion) *version;
    __typeof__(cudnnGetErrorString) *status_name;
    __typeof__(cudnnGetLastErrorString) *last_error;
    __typeof__(cudnnCreate) *create;
    __typeof__(cudnnDestroy) *destroy;
    __typeof__(cudnnSetStream) *set_stream;
    __typeof__(cudnnBackendCreateDescriptor) *desc_create;
    __typeof__(cudnnBackendDestroyDescriptor) *desc_destroy;
    __typeof__(cudnnBackendSetAttribute) *set;
    __typeof__(cudnnBackendGetAttribute) *get;
    __typeof__(cudnnBackendFinalize) *finalize;
    __typeof__(cudnnBackendExecute) *execute;
};

/* ERR_UNSUPPORTED says what is missing; `library` is zeros then. */
enum err cuda_dnn_library_open(struct cuda_dnn_library *library);
void cuda_dnn_library_close(struct cuda_dnn_library *library);

/* `status` as an error of ours, "what was tried: cuDNN's name and last words";
 * ERR_OK for 0, ERR_UNSUPPORTED where it has no engine or no GPU. */
enum err cuda_dnn_library_error(const struct cuda_dnn_library *library,
                                cudnnStatus_t status, const char *what);
