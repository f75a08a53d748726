/* What the ways of comm_tensors share; nobody else includes this. */
#pragma once

#include "src/comm/comm_impl.h"
#include "src/comm/comm_nccl_library.h"
#include "src/comm/comm_tensors.h"

/* One message of an operation on a device: never empty, never to oneself. */
struct comm_tensors_transfer {
    char *tensor; /* only read when sending */
    size_t bytes;
    size_t at; /* staged: offset in the staging memory */
    int peer;
    bool receive;
};

/* Pinned memory of one operation at a time. */
struct comm_tensors_staging {
    struct arena host;
    void *uploaded;     /* event: the last operation's uploads are done */
    unsigned long used; /* number of its last use */
    bool busy;
};

struct comm_tensors_request {
    struct comm_tensors *tensors;
    const char *what; /* for error texts: "exchange" */
    bool busy;
    struct comm_request *parts[2]; /* the receive first; NULL: none */
    /* These are for ways of devices. */
    bool collective; /* else an exchange: at most one transfer each way */
    int tag;         /* of an exchange */
    int transfer_count;
    struct comm_tensors_transfer *transfers; /* [2 size] */
    unsigned long group;                     /* nccl: the number of its own */
    void *ready;   /* event: the stream has come to the start */
    void *reached; /* event: the downloads of staged, or nccl's messages, are
                      done */
    /* These are for the way "staged". */
    struct comm_tensors_staging *staging;
    struct comm_tensors_request *next; /* downloads are not known to be done; of
                                        * nccl: in the same group */
    bool queued;
    bool arrived; /* uploads are enqueued, or that has failed with rc */
    enum err rc;
};

struct comm_tensors_way {
    const char *name;
    /* NULL: the name will do. */
    void (*label)(const struct comm_tensors *tensors, char *text, size_t bytes);
    /* NULL: nothing is set. */
    void (*why)(const struct comm_tensors *tensors, char *text, size_t bytes);
    enum err (*open)(struct comm_tensors *tensors);
    void (*close)(struct comm_tensors *tensors);
    /* What is left of starting an operation whose transfers are known. */
    enum err (*start)(struct comm_tensors_request *request);
    /* What was put aside since tensors->together; NULL: nothing is. */
    enum err (*start_held)(struct comm_tensors *tensors);
    enum err (*wait)(struct comm_tensors_request *request, double timeout_s);
    bool (*test)(struct comm_tensors_request *request);
    enum err (*settle)(struct comm_tensors *tensors, double timeout_s);
    /* NULL: the stream never waits for other ranks. */
    enum err (*reach)(struct comm_tensors *tensors, void *event,
                      double timeout_s);
};

struct comm_tensors {
    struct comm *comm; /* a duplicate, broken as soon as anything fails */
    const struct kernel_memory *memory;
    void *stream;
    const struct comm_tensors_way *way;
    const struct comm_nccl_library *library; /* lent; NULL: it is opened */
    bool automatic;                          /* the way was left to us */
    bool together; /* what is started may be put aside */
    void *state;   /* the way's */
    struct comm_tensors_request requests[COMM_TENSORS_REQUESTS];
    struct comm_tensors_transfer *transfers;
    void *paces[COMM_TENSORS_AHEAD]; /* events */
    unsigned long paced;
};

extern const struct comm_tensors_way comm_tensors_staged;
extern const struct comm_tensors_way comm_tensors_nccl;

/* comm_tensors_create() with a library that is lent, for tests. */
enum err comm_tensors_create_lent(struct comm *comm,
                                  const struct kernel_memory *memory,
                                  void *stream, enum comm_exchange way,
                                  const struct comm_nccl_library *library,
                                  struct comm_tensors **out);

/* The messages of an operation that comm has started: wait for them; whether
 * they are done. */
enum err comm_tensors_parts_wait(struct comm_tensors_request *request,
                                 double timeout_s);
bool comm_tensors_parts_test(struct comm_tensors_request *request);
/* Wait for the stream. */
enum err comm_tensors_stream_settle(struct comm_tensors *tensors,
                                    double timeout_s);
