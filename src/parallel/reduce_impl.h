/* What the parts of the reduction share; nobody else includes this. */
#pragma once

#include <stdbool.h>

#include "src/base/arena.h"
#include "src/comm/comm_window.h"
#include "src/parallel/reduce.h"
#include "src/parallel/tree.h"

/* A subtree that some rank is left with. */
struct partial {
    struct tree_node node;
    int rank;   /* or of what its node has together, the one that sends it */
    int number; /* among the rank's partials: the depth of its buffer there */
    int place;  /* among the partials that are received; < 0: shared */
};

#define NO_PIECE (-1)

/* What follows from elements, owner, ranks and slots alone. */
struct shape {
    int buffers;          /* gradient buffers of this rank's stack */
    int partials;         /* of all ranks */
    int layers;           /* the most partials that any rank is left with */
    int64_t span;         /* elements of an interval exchanged per round */
    int64_t rounds;       /* of a whole arena that is one piece */
    int received;         /* partials that come in messages */
    size_t receive_bytes; /* two rounds of them */
    size_t shared_bytes;  /* of other ranks' partials, if all are shared, */
    size_t near_bytes;    /* and in whole huge pages */
};

struct reduce {
    struct comm *comm;
    struct comm_tensors *tensors;
    const struct kernels *kernels;
    const struct kernel_ctx *ctx;
    int64_t elements;
    const struct owner *owner; /* NULL: even intervals of one piece */
    int pieces;
    int rank, ranks, slots;
    int row; /* ranks of each node that add theirs before they send; or 1 */
    struct shape plan;
    struct arena tables;
    struct arena arena;           /* of tensors */
    struct comm_window *window;   /* the stacks of this node; NULL: ... */
    struct arena stacks;          /* ... of this rank, on a device */
    float *stack[TREE_DEPTH_MAX]; /* [plan.buffers][elements] */
    struct tree nodes;
    int left; /* of this rank's node, in the stacks of ... */
    const float *left_stack[TREE_DEPTH_MAX];
    int slot; /* next to be finished */
    bool lent;
    bool everywhere; /* the total is for all ranks */
    bool alone;      /* no rank sees another's stack */
    /* where there are several pieces */
    int *missing; /* [pieces] blocks not done in this rank's last slot */
    int next;     /* to begin */
    /* on their way; NO_PIECE: none. In the node all have it, between nodes and, of a
     * total for all ranks, back. */
    int meets, travels, back;
    struct comm_request *meeting;
    struct comm_tensors_request *coming_back;
    struct partial *partials;               /* in slot order */
    int *first_partial;                     /* [ranks + 1] */
    float *receive;                         /* [2][plan.received][span] */
    struct comm_tensors_request **requests; /* [2][layers] */
};

/* The stack of a rank, where this one reads and writes it; NULL: its partials
 * come in messages. */
float *reduce_stack(const struct reduce *reduce, int rank);

/* Messages of this rank's go to the other and come from there. */
bool reduce_far(const struct reduce *reduce, int rank);

/* A rank's interval of a piece: its first element, and how many. */
int64_t reduce_interval_begin(const struct reduce *reduce, int piece, int rank);
int64_t reduce_interval(const struct reduce *reduce, int piece, int rank);

/* Elements [begin, begin + n) of the slot that is lent are added to what they can be
 * added to. *nodes: the subtrees that are left. */
enum err reduce_combine(const struct reduce *reduce, int64_t begin, int64_t n,
                        struct tree *nodes);
/* With several pieces, when the rank's last slot is done: those that have not begun do,
 * and all come to their end. Collective. */
enum err reduce_end_pieces(struct reduce *reduce);
