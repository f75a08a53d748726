/* NCCL, opened when a program runs: so that programs start on machines without
 * it. What is used of its interface is declared here and compared with nccl.h
 * by tests/test_comm_nccl_library.c, so that no header of it or of CUDA is
 * needed. */
#pragma once

#include <stddef.h>

#include "src/base/err.h"

/* ncclResult_t, of which more are translated. */
enum comm_nccl_result {
    COMM_NCCL_SUCCESS = 0,
    COMM_NCCL_CUDA_ERROR = 1,
    COMM_NCCL_SYSTEM_ERROR = 2,
    COMM_NCCL_INTERNAL_ERROR = 3,
    COMM_NCCL_INVALID_ARGUMENT = 4,
    COMM_NCCL_INVALID_USAGE = 5,
    COMM_NCCL_REMOTE_ERROR = 6,
    COMM_NCCL_IN_PROGRESS = 7,
};

#define COMM_NCCL_BYTE 0 /* ncclInt8 */
#define COMM_NCCL_FLOAT 7
#define COMM_NCCL_SUM 0

/* ncclUniqueId */
struct comm_nccl_id {
    char bytes[128];
};

/* ncclConfig_t of version 2.17, of which 2.14's is the beginning. Newer libraries
 * know by `bytes` and `version` what follows in theirs, and set that themselves. */
#define COMM_NCCL_CONFIG_MAGIC 0xcafebeefu
#define COMM_NCCL_CONFIG_OLD 21400
#define COMM_NCCL_CONFIG_NEW 21700
struct comm_nccl_config {
    size_t bytes;
    unsigned magic;
    unsigned version;
    int blocking;
    /* INT_MIN, NULL: the library's choice */
    int cga_cluster; /* cgaClusterSize; here 2.14's ends */
    int ctas_min, ctas_max;
    const char *net_name;
    int split_share;
};

/* Blocks of NCCL's kernels, and so channels of messages, at most: their buffers are
 * the most that NCCL takes, and what the memory plan counts. Its own limit is 32. */
#define COMM_NCCL_CTAS 16
/* The most that NCCL takes as the environment is: what the memory plan counts. */
int comm_nccl_library_ctas(void);
/* What is asked for, and what of the user's goes over it, as text. */
void comm_nccl_library_ctas_why(char *text, size_t bytes);

/* Its functions: what one returns (an int is an enum comm_nccl_result), its name
 * here and there, its arguments; comm is a ncclComm_t, stream a cudaStream_t. */
#define COMM_NCCL_FUNCTIONS(F)                                                 \
    F(int, version, ncclGetVersion, int *version)                              \
    F(int, unique_id, ncclGetUniqueId, struct comm_nccl_id *id)                \
    F(int, init, ncclCommInitRankConfig, void **comm, int ranks,               \
      struct comm_nccl_id id, int rank, struct comm_nccl_config *config)       \
    F(int, init_all, ncclCommInitAll, void **comms, int count,                 \
      const int *devices)                                                      \
    F(int, finalize, ncclCommFinalize, void *comm)                             \
    F(int, destroy, ncclCommDestroy, void *comm)                               \
    F(int, abort, ncclCommAbort, void *comm)                                   \
    F(int, async_error, ncclCommGetAsyncError, void *comm, int *result)        \
    F(const char *, error_text, ncclGetErrorString, int result)                \
    F(const char *, last_error, ncclGetLastError, void *comm)                  \
    F(int, group_start, ncclGroupStart, void)                                  \
    F(int, group_end, ncclGroupEnd, void)                                      \
    F(int, send, ncclSend, const void *data, size_t count, int type, int peer, \
      void *comm, void *stream)                                                \
    F(int, recv, ncclRecv, void *data, size_t count, int type, int peer,       \
      void *comm, void *stream)                                                \
    F(int, all_reduce, ncclAllReduce, const void *from, void *to,              \
      size_t count, int type, int op, void *comm, void *stream)

#define COMM_NCCL_MEMBER(type, name, symbol, ...) type (*name)(__VA_ARGS__);

struct comm_nccl_library {
    void *opened; /* by dlopen */
    COMM_NCCL_FUNCTIONS(COMM_NCCL_MEMBER)
};

/* ERR_UNSUPPORTED says what is missing; `library` is zeros then. */
enum err comm_nccl_library_open(struct comm_nccl_library *library);
void comm_nccl_library_close(struct comm_nccl_library *library);

/* One that does not block, as large as the library's version knows; one before 2.17
 * is told of the limit by its environment, unless the user has set that. */
void comm_nccl_library_config(const struct comm_nccl_library *library,
                              struct comm_nccl_config *out);

/* `result` as an error of ours, "what was tried: NCCL's text"; ERR_OK for
 * success and for what is in progress. ERR_COMM: a peer failed; ERR_IO: the
 * GPU, the network or the node did; ERR_UNSUPPORTED: NCCL refuses this use, as
 * of one GPU by two ranks. */
enum err comm_nccl_library_error(const struct comm_nccl_library *library,
                                 void *comm, int result, const char *what);
