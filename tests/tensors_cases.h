/* What tensors between ranks must do, by any way and on any device. */
#pragma once

#include "tests/tensors_bench.h"

static inline void test_ring(struct bench *b, size_t bytes, const char *what)
{
    int rank = comm_rank(b->comm), size = comm_size(b->comm);
    int before = (rank + size - 1) % size;
    struct comm_tensors_request *request;
    begin(b);
    char *out = tensor(b, bytes), *in = tensor(b, bytes);
    put(b, in, bytes, 99);
    put(b, out, bytes, (unsigned)rank);
    note(b, comm_tensors_start_exchange(b->tensors, (rank + 1) % size, out,
                                        bytes, before, in, bytes, 7, &request));
    wait_for(b, request);
    put(b, out, bytes, 98);
    look(b, in, bytes, (unsigned)before);
    end(b, what);
}

/* From rank 0 to the last one, each with one byte more; twice, because the last
 * one does nothing but receive, as early as it can. */
static inline void test_chain(struct bench *b)
{
    int rank = comm_rank(b->comm), size = comm_size(b->comm);
    size_t out = rank + 1 < size ? 1000 + (size_t)rank : 0;
    size_t in = rank > 0 ? 1000 + (size_t)rank - 1 : 0;
    struct comm_tensors_request *request;
    char *to[2];
    begin(b);
    for (unsigned turn = 0; turn < 2; turn++) {
        char *from = tensor(b, out);
        to[turn] = tensor(b, in);
        put(b, from, out, (unsigned)rank + turn);
        put(b, to[turn], in, 99);
        note(b, comm_tensors_start_exchange(b->tensors, out > 0 ? rank + 1 : -1,
                                            from, out, in > 0 ? rank - 1 : -1,
                                            to[turn], in, 0, &request));
        wait_for(b, request);
    }
    for (unsigned turn = 0; turn < 2; turn++)
        look(b, to[turn], in, (unsigned)rank - 1 + turn);
    end(b, "a chain, whose ends only send or receive");
}

static inline void look_gathered(struct bench *b, int turn, const char *data)
{
    int size = comm_size(b->comm);
    for (int r = 0; r < size; r++)
        look(b, data + (size_t)(size - 1 - r) * 200 + 3, share(r, turn),
             (unsigned)(r + turn));
}

/* Bytes from one rank to another. */
static inline size_t mail(int from, int to, int turn)
{
    return (size_t)((from + 2 * to + turn) % 5) * 21;
}

static inline struct comm_tensors_request *all_to_all(struct bench *b, int turn,
                                                      char **recv)
{
    struct comm *comm = comm_tensors_comm(b->tensors);
    size_t *sizes[4];
    struct comm_tensors_request *request;
    int size = comm_size(comm), rank = comm_rank(comm);
    char *send = tensor(b, (size_t)size * 100);
    *recv = tensor(b, (size_t)size * 100);
    for (int i = 0; i < 4; i++)
        sizes[i] = comm_sizes(comm, i);
    for (int r = 0; r < size; r++) {
        sizes[0][r] = mail(rank, r, turn);
        sizes[1][r] = (size_t)r * 100;
        sizes[2][r] = mail(r, rank, turn);
        sizes[3][r] = (size_t)(size - 1 - r) * 100 + 1;
        put(b, send + r * 100, sizes[0][r], (unsigned)(10 * rank + r + turn));
    }
    note(b, comm_tensors_start_all_to_all(b->tensors, send, sizes[0], sizes[1],
                                          *recv, sizes[2], sizes[3], &request));
    for (int i = 0; i < 4; i++)
        memset(sizes[i], 0xff, (size_t)size * sizeof *sizes[i]);
    return request;
}

static inline void look_mail(struct bench *b, int turn, const char *recv)
{
    int size = comm_size(b->comm), rank = comm_rank(b->comm);
    for (int r = 0; r < size; r++)
        look(b, recv + (size_t)(size - 1 - r) * 100 + 1, mail(r, rank, turn),
             (unsigned)(10 * r + rank + turn));
}

static inline void test_collectives(struct bench *b)
{
    char *data;
    for (int turn = 0; turn < 3; turn++) {
        begin(b);
        wait_for(b, gather(b, turn, &data));
        look_gathered(b, turn, data);
        end(b, "all-gather, uneven, some parts empty");
        begin(b);
        wait_for(b, all_to_all(b, turn, &data));
        look_mail(b, turn, data);
        end(b, "all-to-all, uneven, some parts empty");
    }
}

/* Operations of all kinds at once; each rank looks after them and waits for
 * them in an order of its own. */
static inline void test_many(struct bench *b, unsigned seed)
{
    enum { COUNT = 18 };
    struct comm_tensors_request *requests[COUNT];
    char *data[COUNT];
    int rank = comm_rank(b->comm), size = comm_size(b->comm), left = COUNT;
    int before = (rank + size - 1) % size;
    unsigned chance = seed * 7919 + (unsigned)rank;
    begin(b);
    for (int i = 0; i < COUNT; i++) {
        if (i % 3 == 0) {
            requests[i] = gather(b, i, &data[i]);
        } else if (i % 3 == 1) {
            requests[i] = all_to_all(b, i, &data[i]);
        } else {
            char *out = tensor(b, (size_t)i * 1000);
            data[i] = tensor(b, (size_t)i * 1000);
            put(b, out, (size_t)i * 1000, (unsigned)(i + rank));
            note(b, comm_tensors_start_exchange(
                        b->tensors, (rank + 1) % size, out, (size_t)i * 1000,
                        before, data[i], (size_t)i * 1000, i, &requests[i]));
        }
    }
    while (left > 0 && b->rc == ERR_OK) {
        chance = chance * 1103515245 + 12345;
        int i = (int)((chance >> 8) % COUNT);
        if (requests[i] == NULL ||
            ((chance >> 20) % 4 != 0 && !comm_tensors_test(requests[i])))
            continue;
        wait_for(b, requests[i]);
        requests[i] = NULL;
        left--;
        if (i % 3 == 0)
            look_gathered(b, i, data[i]);
        else if (i % 3 == 1)
            look_mail(b, i, data[i]);
        else
            look(b, data[i], (size_t)i * 1000, (unsigned)(i + before));
    }
    end(b, "many at once, in any order");
}

/* One more than there is room for is refused, and the others come to an end. */
static inline void test_full(struct bench *b)
{
    struct comm_tensors_request *requests[COMM_TENSORS_REQUESTS], *more;
    begin(b);
    for (int i = 0; i < COMM_TENSORS_REQUESTS; i++)
        note(b, comm_tensors_start_exchange(b->tensors, -1, NULL, 0, -1, NULL,
                                            0, 0, &requests[i]));
    enum err rc = comm_tensors_start_exchange(b->tensors, -1, NULL, 0, -1, NULL,
                                              0, 0, &more);
    if (rc != ERR_INTERNAL || more != NULL)
        b->rc = ERR_INTERNAL;
    for (int i = 0; i < COMM_TENSORS_REQUESTS; i++)
        wait_for(b, requests[i]);
    end(b, "too many at once are refused");
}

/* All of them. */
static inline void test_cases(struct bench *b)
{
    test_ring(b, 0, "ring of empty messages");
    test_ring(b, 1, "ring of one byte");
    test_ring(b, 100000, "ring of 100 kB");
    test_ring(b, (size_t)5 << 20, "ring of 5 MiB");
    test_chain(b);
    test_collectives(b);
    for (unsigned seed = 0; seed < 3; seed++)
        test_many(b, seed);
    test_full(b);
}
