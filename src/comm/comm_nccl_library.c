/* Opens NCCL with dlopen, finds its functions and turns its codes into errors.
 * What travels by it is comm_tensors_nccl.c; healthcheck/health_nccl.c opens
 * its own, with fewer functions. */
#include "src/comm/comm_nccl_library.h"

#include <dlfcn.h>
#include <string.h>

#define FILE_NAME "libnccl.so.2"
/* ncclCommInitRankConfig that does not block, and ncclCommFinalize. */
#define OLDEST 21400

#define MEMBER(name, symbol)                                                   \
    {                                                                          \
#symbol, offsetof(struct comm_nccl_library, name)                      \
    }

static const struct {
    const char *symbol;
    size_t offset;
} members[] = {
    MEMBER(version, ncclGetVersion),
    MEMBER(unique_id, ncclGetUniqueId),
    MEMBER(init, ncclCommInitRankConfig),
    MEMBER(finalize, ncclCommFinalize),
    MEMBER(destroy, ncclCommDestroy),
    MEMBER(abort, ncclCommAbort),
    MEMBER(async_error, ncclCommGetAsyncError),
    MEMBER(error_text, ncclGetErrorString),
    MEMBER(last_error, ncclGetLastError),
    MEMBER(group_start, ncclGroupStart),
    MEMBER(group_end, ncclGroupEnd),
    MEMBER(send, ncclSend),
    MEMBER(recv, ncclRecv),
};

enum err comm_nccl_library_open(struct comm_nccl_library *library)
{
    int version = 0;
    memset(library, 0, sizeof *library);
    /* It stays in memory when closed: threads of its own may still run. */
    library->opened = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library->opened == NULL)
        return err_set(ERR_UNSUPPORTED,
                       "NCCL: %s; install libnccl2 or add its folder to "
                       "LD_LIBRARY_PATH",
                       dlerror());
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        void *symbol = dlsym(library->opened, members[i].symbol);
        if (symbol == NULL) {
            comm_nccl_library_close(library);
            return err_set(ERR_UNSUPPORTED,
                           "NCCL: " FILE_NAME " lacks %s; install version "
                           "2.14 or newer",
                           members[i].symbol);
        }
        memcpy((char *)library + members[i].offset, &symbol, sizeof symbol);
    }
    if (library->version(&version) != COMM_NCCL_SUCCESS || version < OLDEST) {
        comm_nccl_library_close(library);
        return err_set(ERR_UNSUPPORTED,
                       "NCCL: " FILE_NAME " is version %d; install 2.14 "
                       "(%d) or newer",
                       version, OLDEST);
    }
    return ERR_OK;
}

void comm_nccl_library_close(struct comm_nccl_library *library)
{
    if (library->opened != NULL)
        (void)dlclose(library->opened);
    memset(library, 0, sizeof *library);
}

enum err comm_nccl_library_error(const struct comm_nccl_library *library,
                                 void *comm, int result, const char *what)
{
    enum err rc = ERR_INTERNAL;
    const char *more = NULL;
    if (result == COMM_NCCL_SUCCESS || result == COMM_NCCL_IN_PROGRESS)
        return ERR_OK;
    if (result == COMM_NCCL_CUDA_ERROR || result == COMM_NCCL_SYSTEM_ERROR)
        rc = ERR_IO;
    if (result == COMM_NCCL_INVALID_USAGE)
        rc = ERR_UNSUPPORTED;
    if (result == COMM_NCCL_REMOTE_ERROR)
        rc = ERR_COMM;
    more = library->last_error(comm);
    return err_set(rc, "NCCL: %s: %s%s%s; NCCL_DEBUG=WARN says more", what,
                   library->error_text(result),
                   more != NULL && more[0] != '\0' ? ": " : "",
                   more != NULL ? more : "");
}
