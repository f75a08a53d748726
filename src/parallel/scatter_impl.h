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

/* Whose gradients of a block are added together: of `members` ranks, from
 * `first` on in steps of `step`, each with `parts` leaves' gradients of the
 * interval. Leaf member * parts + part of the microstep is at place so many. */
struct reducers {
    int members, first, step, parts;
    int64_t begin, elements;
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
    int *number;           /* [members] the other way round */
    int64_t *at;           /* [count + 1] where each is in a row */
    int64_t *left_at;      /* the same of what was added last */
    int64_t width;         /* of a row, elements */
    float *receive, *left; /* rows: received; added, for the next level */
};

/* A route's ranks are the reducers' members; to all others it is said which rank that is. */
struct levels {
    const struct scatter *scatter;
    struct topology *topology; /* of the members */
    struct route_plan *route;
    int members, first, step; /* as the reducers' */
    int bottom, top;          /* levels with messages */
    int most;                 /* values of a piece that any of them sends */
    int turn;      /* the last of a microstep: what it leaves is the stack */
    int microstep; /* of the route */
    struct comm_message *messages; /* [2 members] scratch */
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
    int64_t total; /* leaves of a batch */
    int group;     /* ranks that have a range of them: all, or ... */
    int64_t range; /* ... a shard group; its leaves */
    int depth;     /* of the stack */
    float *stack[TREE_DEPTH_MAX]; /* [own], of groups [shard] */
    float *sum;                   /* [own] of groups: the total */
    float *buffer[BUFFERS];
    float *receive;   /* [places][span], or in bf16 ... */
    char *wire_in;    /* ... here, ... */
    char *wire_out;   /* ... and what is sent */
    struct sums sums; /* before this microstep */
    int microstep;
    bool *opened; /* [blocks] in this microstep, of the host */
    struct exchange exchange;
    /* of blocks, and of those with experts that are apart: */
    int64_t span[2];          /* elements of a partition in one round */
    struct levels *levels[2]; /* NULL: every leaf goes to every owner */
};

static inline int64_t scatter_span(const struct scatter *scatter, int block)
{
    return scatter->span[scatter->owner->blocks[block].apart];
}

static inline struct levels *scatter_levels_of(const struct scatter *scatter,
                                               int block)
{
    return scatter->levels[scatter->owner->blocks[block].apart];
}

struct reducers scatter_reducers(const struct scatter *scatter, int block);

/* The first leaf after the microstep that begins with this one. */
int64_t scatter_leaf_end(const struct scatter *scatter, int64_t begin);

/* Places of the stack that are taken. */
int scatter_depth(const struct scatter *scatter, const struct sums *sums);

/* The leaf is at place `depth` of the tree now, or was added to what is there;
 * may end its slot, and places that become one are to be settled then. */
void scatter_add_leaf(const struct scatter *scatter, struct sums *sums);

float *scatter_buffer(const struct scatter *scatter, int block);

/* Elements of the rank's partition of a block that are sent in this round, and where
 * in its reducers' interval they begin. */
int64_t scatter_round_elements(const struct scatter *scatter, int block,
                               int rank, int64_t round);
int64_t scatter_round_begin(const struct scatter *scatter, int block, int rank,
                            int64_t round);

/* The exchange in levels (scatter_levels.c) of blocks, or of those apart, as this rank;
 * none where it would save nothing. Then its memory. To close, finish and test, NULL is
 * fine. */
enum err scatter_levels_open(struct scatter *scatter, bool apart, int rank);
void scatter_levels_close(struct levels *levels);
void scatter_levels_layout(struct levels *levels, struct arena *arena);
/* Before a gradient goes to the buffer. Collective, as the others. */
enum err scatter_levels_gradient(struct levels *levels, const float *buffer);
enum err scatter_levels_done(struct levels *levels, int block);
enum err scatter_levels_finish(struct levels *levels);
void scatter_levels_test(const struct levels *levels);

/* The block's exchange starts (scatter_exchange.c); the one that is under way,
 * if there is one, is finished. Collective. */
enum err scatter_exchange_start(struct scatter *scatter, int block);
enum err scatter_exchange_finish(struct scatter *scatter);
