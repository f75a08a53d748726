/* What the way nccl's operations and its start and end share; nobody else includes
 * this. */
#pragma once

#include "src/comm/comm_tensors_impl.h"

/* Operations that the host is ahead of the device at most. A queue of kernels
 * that is full stops the host, beyond all deadlines. */
#define AHEAD 16
#define DEVICE_BYTES 64
struct past {
    void *ready, *reached; /* events of an operation that was waited for */
};

struct nccl {
    struct comm_nccl_library library;
    void *comm; /* NULL: not yet, or aborted */
    bool used;  /* the library */
    void *stream;
    void *settled;                     /* event */
    struct arena greeting;             /* a byte from and for each rank */
    struct comm_tensors_request *held; /* of the next group, by `next` */
    unsigned long group;               /* its number, the same on all ranks */
    struct comm_tensors_request
        *issuing; /* of one that NCCL is not done enqueueing */
    struct past pasts[AHEAD];
    unsigned long waits;
};

/* An event of the stream, or without one until NCCL is not busy. */
enum err comm_tensors_nccl_poll(const struct comm_tensors *tensors,
                                const char *what, void *event,
                                double timeout_s);
static inline enum err comm_tensors_nccl_error(const struct nccl *nccl,
                                               int result, const char *what)
{
    return comm_nccl_library_error(&nccl->library, nccl->comm, result, what);
}
/* Aborts the communicator, with all that was told it. */
void comm_tensors_nccl_give_up(struct nccl *nccl);

/* The way's label, why, open and close (comm_tensors_nccl_open.c). */
void comm_tensors_nccl_label(const struct comm_tensors *tensors, char *text,
                             size_t bytes);
void comm_tensors_nccl_why(const struct comm_tensors *tensors, char *text,
                           size_t bytes);
enum err comm_tensors_nccl_open(struct comm_tensors *tensors);
void comm_tensors_nccl_close(struct comm_tensors *tensors);
