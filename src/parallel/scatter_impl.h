/* What the parts of a scatter share; nobody else includes this. */
#pragma once

#include "src/base/arena.h"
#include "src/parallel/access_trace.h"
#include "src/parallel/scatter.h"
#include "src/parallel/tree.h"

#define NO_BLOCK (-1)
#define BUFFERS (2 * TRACE_PLACES - TRACE_LAYER) /* two of a layer's blocks */
#define BF16_BYTES 2
#define REQUESTS 8 /* all-to-alls of a round in flight */

/* Where the sums stand: complete subtrees, and after them a slot that has only
 * some of its leaves. */
struct sums {
    struct tree tree;
    int64_t leaf; /* the next one */
};

/* A block on its way to its owners: a round is one all-to-all for each part. */
struct exchange {
    int block; /* NO_BLOCK: none */
    int64_t round;
    /* part p: [p % REQUESTS] */
    struct comm_tensors_request *requests[REQUESTS];
    struct sums sums; /* before its microstep */
};

struct scatter {
    struct comm_tensors *tensors;
    const struct kernels *kernels;
    const struct kernel_ctx *ctx;
    const struct params *params;
    const struct owner *owner;
    struct scatter_options options;
    struct arena arena;
    int64_t total;                /* leaves of a batch */
    int64_t span;                 /* elements of a partition in one round */
    int depth;                    /* of the stack */
    float *stack[TREE_DEPTH_MAX]; /* [own] */
    float *buffer[BUFFERS];
    float *receive;   /* [places][span], or in bf16 ... */
    char *wire_in;    /* ... here, ... */
    char *wire_out;   /* ... and what is sent */
    struct sums sums; /* before this microstep */
    int microstep;
    bool *opened; /* [blocks] in this microstep, of the host */
    struct exchange exchange;
};

/* The first leaf after the microstep that begins with this one. */
int64_t scatter_leaf_end(const struct scatter *scatter, int64_t begin);

/* Places of the stack that are taken. */
int scatter_depth(const struct scatter *scatter, const struct sums *sums);

/* The leaf is at place `depth` of the tree now, or was added to what is there;
 * may end its slot, and places that become one are to be settled then. */
void scatter_add_leaf(const struct scatter *scatter, struct sums *sums);

float *scatter_buffer(const struct scatter *scatter, int block);

/* The block's exchange starts (scatter_exchange.c); the one that is under way,
 * if there is one, is finished. Collective. */
enum err scatter_exchange_start(struct scatter *scatter, int block);
enum err scatter_exchange_finish(struct scatter *scatter);
