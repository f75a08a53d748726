/* Opens NCCL with dlopen for the all-reduce of one node's GPUs. The training
 * run has its own table of NCCL's functions (src/comm/comm_nccl_library.c): this
 * one is for a process that joins all GPUs at once, needs few of them, and goes
 * on with any version. */
#include "healthcheck/health_nccl.h"

#include "src/base/library.h"

#define MEMBER(name, symbol_)                                                  \
    {                                                                          \
        .symbol = symbol_, .offset = offsetof(struct health_nccl, name)        \
    }

static const struct library_member members[] = {
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
    static const struct library what = {
        .name = "",
        .file = "libnccl.so.2",
        .missing = "install NCCL or add it to LD_LIBRARY_PATH",
        .old = "install NCCL 2",
        .members = members,
        .count = sizeof members / sizeof members[0],
    };
    return library_open(&what, library, sizeof *library);
}

void health_nccl_close(struct health_nccl *library)
{
    library_close(library, sizeof *library);
}

enum err health_nccl_error(const struct health_nccl *library, int code,
                           const char *what)
{
    if (code == 0)
        return ERR_OK;
    return err_set(ERR_IO, "NCCL: %s: %s; NCCL_DEBUG=WARN says more", what,
                   library->error(code));
}
