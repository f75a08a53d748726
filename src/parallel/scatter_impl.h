/* What the parts of a scatter share; nobody else includes this. */
#pragma once

#include "src/base/arena.h"
#include "src/parallel/access_trace.h"
#include "src/parallel/route.h"
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

/* A level of the exchange: what is under way, and what a rank brings together, all
 * of it [count] pieces. */
struct stage {
    int block; /* NO_BLOCK: nothing */
    int64_t round;
    int most; /* values of a piece in a message, one request each */
    struct comm_tensors_request *requests[REQUESTS];
    int count;
    int *owners;           /* [count] whose they are */
    int *number;           /* [ranks] the other way round */
    int64_t *at;           /* [count + 1] where each is in a row */
    int64_t *left_at;      /* the same of what was added last */
    int64_t width;         /* of a row, elements */
    float *receive, *left; /* rows: received; added, for the next level */
};

struct levels {
    struct route_plan *route;
    int ranks, top;                /* levels are 1 to top */
    int microstep;                 /* of the route */
    struct comm_message *messages; /* [2 ranks] scratch */
    float **values, **left;        /* [inputs of a level] scratch */
    struct stage stage[ROUTE_LEVELS_MAX];
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
    struct levels *levels; /* NULL: every leaf goes to every owner */
};

/* The first leaf after the microstep that begins with this one. */
int64_t scatter_leaf_end(const struct scatter *scatter, int64_t begin);

/* Places of the stack that are taken. */
int scatter_depth(const struct scatter *scatter, const struct sums *sums);

/* The leaf is at place `depth` of the tree now, or was added to what is there;
 * may end its slot, and places that become one are to be settled then. */
void scatter_add_leaf(const struct scatter *scatter, struct sums *sums);

float *scatter_buffer(const struct scatter *scatter, int block);

/* Elements of the rank's partition of a block that are sent in this round, and where
 * in the block they begin. */
int64_t scatter_round_elements(const struct scatter *scatter, int block,
                               int rank, int64_t round);
int64_t scatter_round_begin(const struct scatter *scatter, int block, int rank,
                            int64_t round);

/* The exchange in levels (scatter_levels.c), as this rank of the topology; none where
 * it would save nothing. Then its memory. */
enum err scatter_levels_open(struct scatter *scatter, int rank);
void scatter_levels_close(struct scatter *scatter);
void scatter_levels_layout(struct scatter *scatter, struct arena *arena);
/* Before a gradient goes to the buffer. Collective, as the others. */
enum err scatter_levels_gradient(struct scatter *scatter, const float *buffer);
enum err scatter_levels_done(struct scatter *scatter, int block);
enum err scatter_levels_finish(struct scatter *scatter);
void scatter_levels_test(const struct scatter *scatter);

/* The block's exchange starts (scatter_exchange.c); the one that is under way,
 * if there is one, is finished. Collective. */
enum err scatter_exchange_start(struct scatter *scatter, int block);
enum err scatter_exchange_finish(struct scatter *scatter);
