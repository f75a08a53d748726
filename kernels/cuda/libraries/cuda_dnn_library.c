/* Opens cuDNN with dlopen and finds its functions. libcudnn.so is a small file
 * that loads the large ones, of engines and their compiler, when it first needs
 * them: a missing one shows as a status of a later call, not here. */
#include "kernels/cuda/libraries/cuda_dnn_library.h"

#include <stddef.h>

#include "src/base/process.h"

/* The file of the version that the headers are of, which its ABI follows. */
#define TEXT(number) #number
#define FILE_OF(major) "libcudnn.so." TEXT(major)
#define FILE_NAME FILE_OF(CUDNN_MAJOR)

#define MEMBER(name, function)                                                 \
    { .symbol = #function, .offset = offsetof(struct cuda_dnn_library, name) },

static const struct process_symbol symbols[] = { CUDA_DNN_FUNCTIONS(MEMBER) };

enum err cuda_dnn_library_open(struct cuda_dnn_library *library)
{
    static const struct process_library what = {
        PROCESS_LIBRARY("cuDNN: ", FILE_NAME, symbols),
        .missing = "install it or add its folder to LD_LIBRARY_PATH",
        .old = "install a newer one"
    };
    return process_library_open(&what, library, sizeof *library);
}

void cuda_dnn_library_close(struct cuda_dnn_library *library)
{
    process_library_close(library, sizeof *library);
}

enum err cuda_dnn_library_error(const struct cuda_dnn_library *library,
                                cudnnStatus_t status, const char *what)
{
    enum err rc = ERR_INTERNAL;
    char words[256] = "";
    if (status == CUDNN_STATUS_SUCCESS)
        return ERR_OK;
    /* Statuses are numbered in groups of a thousand. */
    if (status / 1000 == CUDNN_STATUS_NOT_INITIALIZED / 1000 ||
        status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000)
        rc = ERR_UNSUPPORTED;
    library->last_error(words, sizeof words);
    return err_set(rc, "cuDNN: %s: %s %s; CUDNN_LOGLEVEL_DBG=2 says more", what,
                   library->status_name(status), words);
}
