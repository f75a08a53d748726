/* What the parts of a replica share; nobody else includes this. */
#pragma once

#include "src/base/arena.h"
#include "src/comm/topology.h"
#include "src/parallel/access_trace.h"
#include "src/parallel/gather.h"
#include "src/parallel/group.h"
#include "src/parallel/owner.h"
#include "src/parallel/reduce.h"
#include "src/parallel/replica.h"
#include "src/parallel/scatter.h"
#include "src/parallel/shared_weights.h"
#include "src/parallel/spans.h"

/* Elements that change places at once. */
#define REPLICA_SWAP ((int64_t)1 << 18)

struct replica {
    struct comm *comm;
    struct comm_tensors *tensors;
    const struct kernels *kernels;
    const struct kernel_ctx *ctx;
    const struct params *params;
    struct replica_options options;
    struct param_access access;
    struct topology *topology; /* which ranks share a node */
    struct owner *owner;
    struct owner *pieces; /* of reduce: `owner`, or under ddp on several nodes
                           * its own */
    struct arena arena;   /* of tensors */
    struct arena host;
    struct shared_weights *shared; /* zero1 on a host: one copy per node */
    struct frozen *frozen;         /* NULL: everything trains */
    char *weights; /* this rank's shards, packed: all where there is one
                         * rank per shard group */
    float *master; /* this rank's partitions, packed; [elements] in ddp; NULL:
                         * the weights are fp32 themselves */
    struct spans *spans;               /* what this rank updates, and how */
    float *moments[UPDATE_MOMENTS];    /* as spans are packed */
    float *states;                     /* likewise */
    float *scratch;                    /* of an update */
    const bool *held;                  /* [params->count]; NULL: none */
    const struct replica_watch *watch; /* of updates; NULL: nobody */
    float *kept[REPLICA_KEPT];         /* as options.kept */
    float *swapped;     /* [REPLICA_SWAP] on their way; NULL: nothing is kept */
    double *chunk_sums; /* [own / KERNEL_CHUNK], host */
    double *own_sums;   /* the same, before they come to the host; NULL: they
                         * are made there */
    struct ckpt_item *items;
    int item_count;
    int64_t *began;  /* [item_count] replica_set_began() */
    int *kept_items; /* [kinds of what optimizers keep][tensors], -1: none */

    /* ddp, zero1 */
    struct reduce *reduce;
    float *slot_gradient; /* lent by reduce */
    struct arena leaf_arena;
    /* of a slot's leaves after the first; NULL: they add to its gradient */
    float *leaf_block[TRACE_PLACES];
    int64_t leaf_layouts; /* how often they were laid out */
    bool leaf_opened;     /* the embedding's, by the head */
    int begun;            /* the block whose matrices products begin, or -1 */
    bool once[2]; /* the first, the last block: its leaf adds in place */
    bool sends;   /* blocks that are done, as it is the rank's last leaf */
    bool given_up;

    /* zero2, zero3 */
    struct scatter *scatter;
    struct access_trace *trace;
    struct gather *gather; /* zero3; NULL: all weights are here, but for experts
                            * that are apart */
    struct group *group;   /* NULL: the rank computes alone */
    bool broken;           /* an exchange has failed */

    double *leaf_values; /* [leaves of a batch] scratch, dealt order */
    int microstep;
    float *gradient; /* of the partitions, packed, or in reduce's arena; lent */
};

bool replica_by_block(const struct replica_options *options);

/* Where the weights of this rank's partition of a block lie, and of its shard. */
void *replica_partition(const struct replica *replica, int block);
void *replica_shard(const struct replica *replica, int block);

/* Where the summed gradient of an element lies, which is of this rank's partition of the
 * owner's block or, under ddp, anywhere. */
static inline float *replica_gradient_at(const struct replica *replica,
                                         int block, int64_t element)
{
    const struct owner_block *b = &replica->owner->blocks[block];
    return replica->gradient +
           (replica->scatter != NULL ? b->at + (element - b->begin) : element);
}

/* Between nodes blocks are exchanged one by one under backward, small ones together, also
 * of who updates everything; on more nodes all at once, behind it. */
#define BLOCK_NODES_MAX 64

static inline bool replica_in_pieces(const struct replica *replica)
{
    return replica->topology->nodes > 1 &&
           replica->topology->nodes <= BLOCK_NODES_MAX;
}

static inline bool replica_is_ddp(const struct replica *replica)
{
    return replica->options.strategy == REPLICA_DDP;
}

/* Where this rank's own partition of a block begins among masters and what is kept
 * beside them, which under ddp have all elements; and its masters, the fp32
 * weights that the optimizer updates. */
int64_t replica_own_at(const struct replica *replica, int block);
float *replica_own_master(const struct replica *replica, int block);
/* All masters, which every rank has under ddp and only there. */
float *replica_all_masters(const struct replica *replica);

/* Where a moment of this element of the flat space lies, and of those that
 * follow in its tensor; NULL: not here. */
const float *replica_moment_at(const struct replica *replica, int moment,
                               int64_t element);

/* How many tensors are kept beside the moments. */
int replica_kept_count(const struct replica_options *options);
/* Where the fp32 weight lies that this rank updates: an element of the flat
 * space, in its partition of the owner's block. */
float *replica_master_at(const struct replica *replica, int block,
                         int64_t element);

/* When a tensor's moment of this number began, or its state UPDATE_MOMENTS + n;
 * 0 of what it has not. */
int64_t replica_kept_began(const struct replica *replica, int kind, int tensor);

struct spans_input replica_spans_input(const struct replica *replica);

/* The options with 1 for what is not given, the way to exchange and the
 * optimizer. */
struct replica_options replica_filled(const struct replica_options *options);

/* Leaves of a rank in a microstep. */
int replica_part(const struct replica_options *options);

/* How leaves are dealt under zero2 and zero3. */
struct scatter_options replica_scatter_options(const struct replica *replica);

/* The microstep's leaf begins a slot of the sum, which may hold all that the
 * rank has. */
bool replica_begins_slot(const struct replica *replica, int microstep);

/* The table of checkpoint items, without memory and with (replica_state.c). */
/* What an exchange of this rank's came to. One that has failed for a reason of its own is
 * told here, since the others, which wait, hear of a lost rank; nothing is tried again. */
enum err replica_sent(struct replica *replica, enum err rc);

enum err replica_list_items(struct replica *replica);

/* The model's calls (replica_access.c); what is left of them without a model.
 */
struct param_access replica_access_table(struct replica *replica);
enum err replica_finish_trace(struct replica *replica);
