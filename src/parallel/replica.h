/* One rank's part of a data-parallel model: weights, gradients and optimizer
 * state, as far as its strategy keeps them on every rank.
 *
 *              weights      gradients    moments   what travels in a step
 *   ddp        all          all          all       partial sums, their total
 *   zero1      all          all          own part  partial sums, weights
 *   zero2      all          by block     own part  each leaf's gradient,
 *                                                  weights
 *   zero3      own shard    by block     own part  the same, blocks of
 *                                                  weights
 *
 * Each element is updated and written by one rank (in ddp updated by all). The
 * sum of the gradients has one order, leaf by leaf within a slot and slots by
 * the tree (tree.h), so that all strategies give the same bits on any number of
 * ranks; only reduce_bf16 does not. ddp and zero1 add whole slots on the rank
 * that computes them and, on several nodes, exchange the last one's sums block by block
 * (reduce.h), zero2 and zero3 leaves on the owners of a
 * block (scatter.h). Under zero3 with a shard degree smaller than the number of
 * ranks each group of that many neighbours has all weights (HSDP).
 *
 * Several ranks may compute together, with zero2 and zero3. Sequence
 * parallelism: a microbatch is cut into C chunks of its sequences, each of
 * which is a leaf of the sum; a group of Q neighbouring ranks computes a
 * microbatch, each of them C / Q neighbouring chunks. The bits depend on C, not
 * on Q. Expert parallelism: each of D neighbouring ranks has 1 / D of the
 * experts at rest and computes their tokens for the whole group; experts are
 * never gathered (owner.h, scatter.h).
 *
 * With bf16 weights what the model gets, what is at rest for it and what
 * travels are bf16; fp32 masters exist where moments do. The optimizer changes
 * masters, each weight is its master rounded, and a checkpoint has the masters:
 * so it is the same whatever the weights are. Gradients are fp32 in any case.
 *
 * Weights that do not train (params.h) lie whole on every rank (frozen.h), and
 * nothing here or in the table above is about them.
 *
 * Under zero1 the ranks of a node share one copy of the weights
 * (shared_weights.h), where these are memory of the host.
 *
 * Weights, gradients, masters and moments are tensors
 * (kernels/kernel_memory.h): on a device the host never reaches them, also not
 * by the checkpoint items.
 *
 * The object implements the model's param_access. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/ckpt.h"
#include "kernels/kernels.h"
#include "src/base/dtype.h"
#include "src/base/err.h"
#include "src/comm/comm.h"
#include "src/comm/comm_tensors.h"
#include "src/model/group_access.h"
#include "src/model/params.h"
#include "src/parallel/frozen.h"
#include "src/parallel/optimizer/optimizer.h"

/* Version of the order in which the values of leaves and of partitions are
 * added, raised whenever that gives other bits. Checkpoints record it. */
#define REPLICA_SUMS 2

struct replica;

enum replica_strategy {
    REPLICA_AUTO, /* of settings: chosen before a replica is made */
    REPLICA_DDP,
    REPLICA_ZERO1,
    REPLICA_ZERO2,
    REPLICA_ZERO3
};
static const char *const replica_strategy_names[] = { "auto",  "ddp",   "zero1",
                                                      "zero2", "zero3", NULL };

/* Tensors that lie beside the moments and as they do, for those who change
 * weights or gradients besides the optimizer: fp32, of zeros at first. */
#define REPLICA_KEPT 4
struct replica_kept {
    const char *name; /* NULL behind the last */
    bool saved;       /* in checkpoints, as "algorithms/NAME/" and a tensor's */
};

struct replica_options {
    enum replica_strategy strategy;
    enum dtype dtype; /* of the weights: DTYPE_F32 or DTYPE_BF16 */
    const struct optimizer_ops *optimizer; /* NULL: AdamW */
    const struct optimizer_group *groups;  /* tensors with others; borrowed */
    int group_count;
    bool adds_once; /* the kernel table's; of a plan only, replica_create() asks
                       the table */
    enum comm_exchange exchange; /* of tensors */
    int shard_degree;    /* of zero3: a divisor of the ranks; 0: all of them */
    int prefetch;        /* blocks gathered ahead, of zero3 */
    int slots;           /* of a batch; with ddp and zero1 at least the ranks */
    int leaves;          /* of a slot: its microbatches times their chunks */
    int sequence_chunks; /* C, of a microbatch; 0 means 1, as for the others */
    int sequence_degree; /* Q, a divisor of C and of the ranks */
    int expert_degree;   /* D, a divisor of the experts and of the ranks */
    bool exact;          /* the same bits on any number of ranks; otherwise a
                          * rank's leaves may be one sum */
    bool
        flat; /* every rank sends to every other, as on one node: what exchanges
                * in levels are measured by */
    bool reduce_bf16; /* of zero2 and zero3: gradients are rounded to bf16 for
                       * their way to another rank; not with `exact` */
    bool
        once; /* with `exact`, where nodes and leaves allow it: shard groups exchange
                * gradients once a step, and hold the sums of their shards until then */
    bool near;      /* for a plan: all ranks see each other's memory */
    int node_ranks; /* for a plan: ranks of a node; 0: all are on one */
    int uneven;     /* likewise: nodes, where not all have so many; else 0 */
    struct replica_kept kept[REPLICA_KEPT];
};

/* ERR_USAGE with the reason, when the options contradict each other or the
 * number of ranks. */
enum err replica_check(const struct replica_options *options, int ranks);
/* The same of what depends on the model. */
enum err replica_check_model(const struct replica_options *options,
                             const struct params *params);

/* The optimizer of some tensor that needs whole ones; NULL: none does. */
const char *replica_whole(const struct replica_options *options,
                          const struct params *params);

/* How many numbers the optimizers of the options keep of a model. */
int64_t replica_kept_elements(const struct replica_options *options,
                              const struct params *params);

/* All arguments but the options, which must pass the check, are borrowed. The
 * stream of ctx must be there and stay until replica_destroy(); what else it
 * has may come before the first batch or replica_init(). Collective; fails on
 * all ranks or on none. */
enum err replica_create(struct comm *comm, const struct kernels *kernels,
                        const struct kernel_ctx *ctx,
                        const struct params *params,
                        const struct replica_options *options,
                        struct replica **out);
/* Collective; left out after ERR_COMM. NULL is fine. */
void replica_destroy(struct replica *replica);

/* How tensors travel between ranks, for people: "nccl 2.28.9". */
void replica_exchange(const struct replica *replica, char *text, size_t bytes);
/* As comm_tensors_why(). */
void replica_exchange_why(const struct replica *replica, char *text,
                          size_t bytes);

/* Another number of leaves per slot, a multiple of the chunks, and options->once for
 * these; between batches. */
enum err replica_set_leaves(struct replica *replica, int leaves, bool once);

/* Bytes of a replica, by kind, on the rank that needs most. */
struct replica_bytes {
    size_t weights;      /* at rest, and buffers for whole blocks */
    size_t shared;       /* of them, with the ranks of a node, on a host */
    size_t master;       /* of bf16 weights: of the own part, in fp32 */
    size_t moments;      /* of the own part, and what else optimizers keep */
    size_t kept;         /* beside them, for algorithms */
    size_t frozen;       /* weights that do not train, shared on a host */
    size_t gradients;    /* of the leaf at work, or of the blocks at work */
    size_t partial_sums; /* of slots and leaves, until they can be added */
    size_t exchange;     /* received from other ranks, and small tables */
    size_t sums;         /* of chunks, for the gradient's norm */
    size_t items;        /* the table for checkpoints */
    bool by_block;       /* each rank has a part of each block to save */
    bool once;           /* shard groups exchange once a step */
    size_t small;        /* of what is saved, by way of the writer's buffers */
    size_t staging;      /* what a checkpoint saver copies; not part of ... */
    size_t total;        /* ... what replica_create() allocates */
};

/* Without creating one. */
enum err replica_plan(const struct params *params, int ranks,
                      const struct replica_options *options,
                      struct replica_bytes *out);

/* What trains: fresh weights, a function of the seed, and over them what the source has
 * (NULL: nothing); moments zero. Collective; fails on all ranks or on none. */
enum err replica_init(struct replica *replica, uint64_t seed,
                      const struct replica_source *source);

/* The same for what does not train, which no checkpoint has. Nothing happens
 * where everything trains. Collective; fails on all ranks or on none. */
enum err replica_init_frozen(struct replica *replica, uint64_t seed,
                             const struct replica_source *source);

/* For the model, between replica_begin_leaf() and replica_end_leaf(), or
 * replica_begin_eval() and replica_end_eval(). */
const struct param_access *replica_access(struct replica *replica);

/* The ranks with which this one shares the experts or a sequence; lent; NULL
 * where the degree is 1. */
const struct group_access *replica_experts(const struct replica *replica);
const struct group_access *replica_sequence(const struct replica *replica);

/* How often this rank takes part in computing leaves during a batch, and which
 * of the batch's leaves is its first in a microstep; -1: none. It has
 * replica_own_leaves() neighbouring ones in each, whose gradients lie one after
 * the other in a block's buffer. */
int replica_microsteps(const struct replica *replica);
int replica_leaf(const struct replica *replica, int microstep);
/* How many every rank has. */
int replica_microsteps_least(const struct replica *replica);
int replica_own_leaves(const struct replica *replica);

/* After replica_begin_leaf(): somebody of this rank's group has a leaf, so that
 * this rank must make the model's calls, too, with a leaf of its own or one
 * that is thrown away. A failure within them ends the run. */
bool replica_serves(const struct replica *replica);
/* Whether it shares a computation at all. */
bool replica_shares(const struct replica *replica);

/* Ends what a failure has brought out of step, ERR_COMM or one within the
 * model's calls: returns the error that all ranks are to end with
 * (group_roll_call()). Without groups it is rc itself. Nothing more is called
 * then, replica_destroy() neither. */
enum err replica_roll_call(struct replica *replica, enum err rc);

/* One batch: begin, then each microstep in order, with the model's training of
 * the leaf within; then finish, which leaves the summed gradient of the own
 * part in place. With zero2 and zero3 a microstep is collective: every rank
 * takes all, with or without a leaf, and when its leaf has failed; what the
 * model has not called is made up for by replica_end_leaf(). With ddp and zero1 on
 * several nodes a rank's last microstep is. finish is
 * collective, and left out when the batch is to be given up; after ERR_COMM
 * nothing more is called. */
void replica_begin_batch(struct replica *replica);
/* Before any rank's last microstep, and before a microstep of the same number on all: the
 * batch is given up by all, and what only its sum needs may be left out. */
void replica_give_up(struct replica *replica);
enum err replica_begin_leaf(struct replica *replica, int microstep);
enum err replica_end_leaf(struct replica *replica);
enum err replica_finish_batch(struct replica *replica);

/* Around the evaluation of one leaf; with zero3 collective as above. */
void replica_begin_eval(struct replica *replica);
enum err replica_end_eval(struct replica *replica);

/* One value per leaf of the batch, values[slots * leaves], of which this rank
 * has filled its own: the sum in the order of gradients, the same bits on every
 * rank. Collective. */
enum err replica_leaf_sum(struct replica *replica, const double *values,
                          double *sum);

/* L2 norm of the whole summed gradient, the same bits on every rank. On a
 * device the host waits here for all that was enqueued. Collective, after
 * replica_finish_batch(). */
enum err replica_gradient_norm(struct replica *replica, double *norm);

/* The host waits for all that was enqueued on a device, messages included:
 * ERR_COMM names the ranks that did not come. */
enum err replica_settle(struct replica *replica);

/* Update, and exchange what other ranks need of it: steps[1 + group_count], the
 * first is of tensors that are in no group. Collective. */
enum err replica_update(struct replica *replica,
                        const struct optimizer_step *steps);

/* An interval of the flat space of params that this rank updates, and what it
 * has of it, fp32 tensors all of them. */
struct replica_partition {
    const struct params *params;
    int64_t begin, elements;
    float *weights;  /* masters */
    float *gradient; /* the summed one; NULL: a batch is not finished */
    float *kept[REPLICA_KEPT]; /* NULL: there are not so many */
};

/* Calls with each partition of this rank, in the order of the flat space; with ddp,
 * where every rank updates all, the whole of it is one. Collective; a call that
 * fails on one rank, as an op of a device may, fails on all. What is changed may
 * depend on the elements and their place alone. Weights may be changed while no
 * rank computes with them: between a call that ends with an exchange and
 * replica_publish(). */
enum err replica_visit(
    const struct replica *replica,
    enum err (*visit)(void *arg, const struct replica_partition *partition),
    void *arg);

/* Weights and the kept tensor of this index change places, with
 * replica_publish(). Collective. */
enum err replica_swap(struct replica *replica, int kept);
/* Tensors whose updates are left out altogether, weights and moments stay as
 * they are: held[tensors of params], lent until another is given, the same on
 * all ranks; NULL: none. */
void replica_hold(struct replica *replica, const bool *held);

/* Who looks at updates: before and after elements [begin, end) of the flat space
 * were updated, in its order, with where the first one's fp32 weight lies. On a
 * device the update is only enqueued then. */
struct replica_watch {
    enum err (*before)(void *arg, int64_t begin, int64_t end,
                       const float *weights);
    enum err (*after)(void *arg, int64_t begin, int64_t end,
                      const float *weights);
    void *arg;
};
/* No more elements at once, but of optimizers of whole tensors one tensor. */
#define REPLICA_WATCHED ((int64_t)16 * KERNEL_CHUNK)
/* From the next update on; lent until another is given, NULL: nobody. The bits
 * stay the same. */
void replica_watch(struct replica *replica, const struct replica_watch *watch);

/* After weights were changed: those at work are made of the masters, and
 * exchanged as after an update. Collective. */
enum err replica_publish(struct replica *replica);

/* Checkpoint items: every tensor's weights (masters), moments and what else its
 * optimizer keeps ("optimizer/", the name of it and "/" before the tensor's),
 * and what is kept besides ("algorithms/"),
 * this rank's interval of each, fp32. Lent, for saving and for loading; after loading
 * call replica_loaded(). */
const struct ckpt_item *replica_items(const struct replica *replica,
                                      int *count);
/* After how many steps of the run a moment began at 0, by the number of its item:
 * AdamW's corrections count from there. 0 until it is set. */
void replica_set_began(struct replica *replica, int item, int64_t steps);
int64_t replica_began(const struct replica *replica, int item);
/* Make the weights and exchange what other ranks need after a load. Collective.
 */
enum err replica_loaded(struct replica *replica);
