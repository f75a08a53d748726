/* Opens cuDNN with dlopen and finds its functions. libcudnn.so is a small file
 * that loads the large ones, of engines and their compiler, when it first needs
 * them: a missing one shows as a status of a later call, not here. */
#include "kernels/cuda/libraries/cuda_dnn_library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

/* The file of the version that the headers are of, which its ABI follows. */
#define TEXT(number) #number
#define FILE_OF(major) "libcudnn.so." TEXT(major)
#define FILE_NAME FILE_OF(CUDNN_MAJOR)

#define MEMBER(name, symbol)                                                   \
    {                                                                          \
#symbol, offsetof(struct cuda_dnn_library, name)                       \
    }

static const struct {
    const char *symbol;
    size_t offset;
} members[] = {
    MEMBER(version, cudnnGetVersion),
    MEMBER(status_name, cudnnGetErrorString),
    MEMBER(last_error, cudnnGetLastErrorString),
    MEMBER(create, cudnnCreate),
    MEMBER(destroy, cudnnDestroy),
    MEMBER(set_stream, cudnnSetStream),
    MEMBER(desc_create, cudnnBackendCreateDescriptor),
    MEMBER(desc_destroy, cudnnBackendDestroyDescriptor),
    MEMBER(set, cudnnBackendSetAttribute),
    MEMBER(get, cudnnBackendGetAttribute),
    MEMBER(finalize, cudnnBackendFinalize),
    MEMBER(execute, cudnnBackendExecute),
};

enum err cuda_dnn_library_open(struct cuda_dnn_library *library)
{
    memset(library, 0, sizeof *library);
    library->opened = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library->opened == NULL)
        return err_set(ERR_UNSUPPORTED,
                       "cuDNN: %s; install it or add its folder to "
                       "LD_LIBRARY_PATH",
                       dlerror());
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        void *symbol = dlsym(library->opened, members[i].symbol);
        if (symbol == NULL) {
            cuda_dnn_library_close(library);
            return err_set(ERR_UNSUPPORTED,
                           "cuDNN: " FILE_NAME " lacks %s; install a newer one",
                           members[i].symbol);
        }
        memcpy((char *)library + members[i].offset, &symbol, sizeof symbol);
    }
    return ERR_OK;
}

void cuda_dnn_library_close(struct cuda_dnn_library *library)
{
    if (library->opened != NULL)
        (void)dlclose(library->opened);
    memset(library, 0, sizeof *library);
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
