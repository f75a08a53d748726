/* What the ways of comm_tensors share; nobody else includes this. */
#ifndef TESSERA_COMM_COMM_TENSORS_IMPL_H
#define TESSERA_COMM_COMM_TENSORS_IMPL_H

#include "src/comm/comm_impl.h"
#include "src/comm/comm_tensors.h"

struct comm_tensors_request {
    struct comm_tensors *tensors;
    const char *what; /* for error texts: "exchange" */
    bool busy;
    struct comm_request *parts[2]; /* the receive first; NULL: none */
};

struct comm_tensors_way {
    const char *name;
    /* The way's part of comm_tensors_wait() and _settle(). */
    enum err (*wait)(struct comm_tensors_request *request, double timeout_s);
    bool (*test)(struct comm_tensors_request *request);
    enum err (*settle)(struct comm_tensors *tensors, double timeout_s);
};

struct comm_tensors {
    struct comm *comm; /* a duplicate, broken as soon as anything fails */
    const struct kernel_memory *memory;
    void *stream;
    const struct comm_tensors_way *way;
    struct comm_tensors_request requests[COMM_TENSORS_REQUESTS];
};

#endif
