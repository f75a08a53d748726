/* A rank that moves tensors and looks at what came. Nothing here waits before
 * the end, so that a copy, message or op out of order shows in what arrives. */
#pragma once

#include "src/comm/comm_tensors_impl.h"
#include "tests/tap.h"

#define ROOM ((size_t)24 << 20)
#define CHECKS_MAX 128

/* What a tensor must hold once the stream is done. */
struct check {
    const unsigned char *got;
    size_t bytes;
    unsigned seed;
};

struct bench {
    struct comm *comm;
    const struct kernel_memory *memory;
    void *stream;
    struct comm_tensors *tensors;
    struct arena device, host;
    struct check checks[CHECKS_MAX];
    int check_count;
    enum err rc; /* of the first call that failed */
};

static inline unsigned char pattern(unsigned seed, size_t i)
{
    return (unsigned char)((i * 31 + (size_t)seed * 101 + 7) >> 2);
}

/* Memory and tensors, by this library in place of NCCL; NULL: the real one. */
static inline enum err bench_open(struct bench *b, enum comm_exchange way,
                                  const struct comm_nccl_library *library)
{
    TRY(b->memory->stream_create(false, &b->stream));
    TRY(b->memory->tensors_create(ROOM, &b->device));
    TRY(b->memory->host_create(ROOM, &b->host));
    return comm_tensors_create_lent(b->comm, b->memory, b->stream, way, library,
                                    &b->tensors);
}

static inline void bench_close(struct bench *b)
{
    comm_tensors_destroy(b->tensors);
    b->memory->host_destroy(&b->host);
    b->memory->tensors_destroy(&b->device);
    b->memory->stream_destroy(b->stream);
}

static inline void note(struct bench *b, enum err rc)
{
    if (rc != ERR_OK && b->rc == ERR_OK) {
        b->rc = rc;
        tap_note("rank %d: %s", comm_rank(b->comm), err_text());
    }
}

/* A point counts when it holds on every rank. */
static inline const char *way_name(enum comm_exchange way)
{
    return way == EXCHANGE_ANY      ? "any"
           : way == EXCHANGE_DIRECT ? "direct"
                                    : comm_exchange_names[way];
}

static inline void everywhere(struct comm *comm, bool pass, const char *way,
                              const char *what)
{
    int64_t good = pass;
    enum err rc = comm_all_reduce_i64(comm, &good, 1, COMM_MIN);
    tap_ok(rc == ERR_OK && good == 1, "%s: %s", way, what);
}

static inline void begin(struct bench *b)
{
    b->device.used = b->host.used = 0;
    b->check_count = 0;
    b->rc = ERR_OK;
}

static inline char *tensor(struct bench *b, size_t bytes)
{
    return arena_take(&b->device, bytes);
}

/* Enqueue that the tensor gets these bytes. */
static inline void put(struct bench *b, char *to, size_t bytes, unsigned seed)
{
    if (bytes == 0)
        return;
    unsigned char *host = arena_take(&b->host, bytes);
    for (size_t i = 0; i < bytes; i++)
        host[i] = pattern(seed, i);
    note(b, b->memory->upload(b->stream, bytes, host, to));
}

/* Enqueue that the tensor is looked at: by an op, whose result is read. */
static inline void look(struct bench *b, const char *from, size_t bytes,
                        unsigned seed)
{
    if (bytes == 0)
        return;
    char *copy = tensor(b, bytes);
    unsigned char *host = arena_take(&b->host, bytes);
    memset(host, 0xee, bytes);
    note(b, b->memory->copy(b->stream, bytes, from, copy));
    note(b, b->memory->download(b->stream, bytes, copy, host));
    b->checks[b->check_count++] = (struct check){ host, bytes, seed };
}

static inline void end(struct bench *b, const char *what)
{
    bool good = true;
    note(b, comm_tensors_settle(b->tensors, 0.0));
    for (int c = 0; c < b->check_count; c++)
        for (size_t i = 0; i < b->checks[c].bytes; i++)
            good = good && b->checks[c].got[i] == pattern(b->checks[c].seed, i);
    everywhere(b->comm, good && b->rc == ERR_OK, comm_tensors_way(b->tensors),
               what);
}

static inline void wait_for(struct bench *b,
                            struct comm_tensors_request *request)
{
    note(b, request != NULL ? comm_tensors_wait(request, 0.0) : ERR_INTERNAL);
}

/* Bytes that a rank contributes. */
static inline size_t share(int rank, int turn)
{
    return (size_t)((rank * 37 + turn * 50) % 150);
}

static inline struct comm_tensors_request *gather(struct bench *b, int turn,
                                                  char **data)
{
    struct comm *comm = comm_tensors_comm(b->tensors);
    size_t *bytes = comm_sizes(comm, 0), *offsets = comm_sizes(comm, 1);
    struct comm_tensors_request *request;
    int size = comm_size(comm), rank = comm_rank(comm);
    *data = tensor(b, (size_t)size * 200);
    for (int r = 0; r < size; r++) {
        bytes[r] = share(r, turn);
        offsets[r] = (size_t)(size - 1 - r) * 200 + 3;
    }
    put(b, *data + offsets[rank], bytes[rank], (unsigned)(rank + turn));
    note(b, comm_tensors_start_all_gather(b->tensors, *data, bytes, offsets,
                                          &request));
    memset(bytes, 0xff, (size_t)size * sizeof *bytes);
    return request;
}
