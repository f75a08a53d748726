/* Opens NCCL with dlopen for the all-reduce of one node's GPUs. The training
 * run has its own table of NCCL's functions (src/comm/comm_nccl_library.c): this
 * one is for a process that joins all GPUs at once, needs few of them, and goes
 * on with any version. */
#include "healthcheck/health_nccl.h"

#include <dlfcn.h>
#include <string.h>

#define FILE_NAME "libnccl.so.2"

#define MEMBER(name, symbol)                                                   \
    {                                                                          \
        symbol, offsetof(struct health_nccl, name)                             \
    }

static const struct {
    const char *symbol;
    size_t offset;
} members[] = {
    MEMBER(create_all, "ncclCommInitAll"),
    MEMBER(destroy, "ncclCommDestroy"),
    MEMBER(all_reduce, "ncclAllReduce"),
    MEMBER(group_start, "ncclGroupStart"),
    MEMBER(group_end, "ncclGroupEnd"),
    MEMBER(error, "ncclGetErrorString"),
    MEMBER(version, "ncclGetVersion"),
};

enum err health_nccl_open(struct health_nccl *library)
{
    memset(library, 0, sizeof *library);
    library->opened = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library->opened == NULL)
        return err_set(ERR_UNSUPPORTED,
                       "%s; install NCCL or add it to LD_LIBRARY_PATH",
                       dlerror());
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        void *symbol = dlsym(library->opened, members[i].symbol);
        if (symbol == NULL) {
            health_nccl_close(library);
            return err_set(ERR_UNSUPPORTED,
                           FILE_NAME " lacks %s; install NCCL 2",
                           members[i].symbol);
        }
        memcpy((char *)library + members[i].offset, &symbol, sizeof symbol);
    }
    return ERR_OK;
}

void health_nccl_close(struct health_nccl *library)
{
    if (library->opened != NULL)
        (void)dlclose(library->opened);
    memset(library, 0, sizeof *library);
}

enum err health_nccl_error(const struct health_nccl *library, int code,
                           const char *what)
{
    if (code == 0)
        return ERR_OK;
    return err_set(ERR_IO, "NCCL: %s: %s; NCCL_DEBUG=WARN says more", what,
                   library->error(code));
}
