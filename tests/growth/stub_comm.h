/* A communicator of as many ranks as one likes, of which this process is one:
 * comm.h over a stub, for calling what the product calls at 16,384 ranks. What
 * the others would bring is the buffer's as it is, or what a callback writes
 * there. Everything is counted as this rank meets it. */
#pragma once

#include "src/comm/comm.h"

struct stub_counts {
    int64_t
        rounds; /* of all ranks, one after the other: what a barrier costs */
    int64_t messages; /* to or from single ranks, beside those */
    int64_t bytes;    /* that this rank receives */
};

/* Writes what the other ranks bring to an all-gather or send in an all-to-all: `number`
 * of it since stub_comm_others(), the buffer, each rank's place in it. */
typedef void (*stub_others_fn)(void *arg, int number, char *data,
                               const size_t *bytes, const size_t *offsets);

/* `per_node` neighbours have one host name. An error ends the program. */
struct comm *stub_comm_create(int rank, int size, int per_node);
void stub_comm_others(struct comm *comm, stub_others_fn others, void *arg);
/* What was counted since the last call, on its duplicates as well. */
struct stub_counts stub_comm_counts(struct comm *comm);
