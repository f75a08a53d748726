/* NCCL, opened when a check runs: the few functions that one process needs for
 * an all-reduce among the GPUs of its node, as this program declares them. */
#pragma once

#include <stddef.h>

#include "src/base/err.h"

enum health_nccl_number { HEALTH_NCCL_SUM = 0, HEALTH_NCCL_FLOAT = 7 };

struct health_nccl {
    void *opened; /* by dlopen */
    int (*create_all)(void **comms, int count, const int *devices);
    int (*destroy)(void *comm);
    int (*all_reduce)(const void *from, void *to, size_t count, int type,
                      int op, void *comm, void *stream);
    int (*group_start)(void);
    int (*group_end)(void);
    const char *(*error)(int code);
    int (*version)(int *version);
};

/* ERR_UNSUPPORTED says what is missing; `library` is zeros then. */
enum err health_nccl_open(struct health_nccl *library);
void health_nccl_close(struct health_nccl *library);

/* `code` as an error of ours; ERR_OK for 0. */
enum err health_nccl_error(const struct health_nccl *library, int code,
                           const char *what);
