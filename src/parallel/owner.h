/* Who owns which part of each block of the flat parameter space.
 *
 * Every block is cut at multiples of KERNEL_CHUNK into one partition per rank, so
 * that gathering and scattering a block are balanced. Neighbouring ranks form
 * shard groups of `degree` ranks: the weights of a block are spread over the
 * ranks of a group, each group has all of them. A rank's part of the weights is
 * its shard; the partition that it updates lies within, and the partitions of the ranks
 * with the same shard, one of each group, make up the shard. What a rank owns
 * of all blocks lies packed, block after block. Without blocks the whole space
 * is cut as if it were one, or so that every tensor is one rank's. Small blocks may
 * be joined: one of the owner's is then several neighbours of the model's.
 *
 * Experts may lie apart: with an expert degree above 1 their blocks have that
 * degree, whatever the others have, and a shard is whole experts, which stay
 * where they are (replica_check_model() sees to it that the cuts fit). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/dtype.h"
#include "src/base/err.h"
#include "src/comm/comm_tensors.h"
#include "src/model/params.h"

/* One block as this rank sees it; begin and end lie in the flat space, `at` in
 * the packed one. */
struct owner_block {
    int64_t offset, elements; /* of the block */
    int degree;               /* ranks of a shard group */
    int parts;                /* blocks of the model in it that train */
    int turn;                 /* blocks as long as it before it */
    bool apart;               /* experts that are never gathered */
    int64_t begin, end, at;
    int64_t shard_begin, shard_end, shard_at;
};

struct owner {
    int rank, ranks;
    int degree; /* of blocks that are not apart */
    int expert_degree;
    int row; /* ranks of a node, of several that have as many each; or 1 */
    int block_count;
    struct owner_block *blocks;
    int64_t *cut;     /* of whole tensors (shard.h); NULL: even chunks */
    int64_t elements; /* of all */
    int64_t own;      /* of this rank's partitions */
    int64_t shard;    /* of its shards */
    struct comm_message *messages; /* of a gather; NULL: nodes do not count */
};

enum owner_cut {
    OWNER_CUT_FLAT,  /* the whole space */
    OWNER_CUT_WHOLE, /* the whole space, each tensor one rank's */
    OWNER_CUT_BLOCKS,
    OWNER_CUT_JOINED /* blocks, as many together as have a chunk for each rank */
};

#define OWNER_LARGEST (-1) /* as rank: one that owns most */

/* degree, expert_degree: divisors of ranks. */
enum err owner_create(const struct params *params, enum owner_cut cut, int rank,
                      int ranks, int degree, int expert_degree,
                      struct owner **out);
/* The same, and on nodes of `row` ranks each: where a gather goes by nodes. */
enum err owner_create_rows(const struct params *params, enum owner_cut cut,
                           int rank, int ranks, int degree, int expert_degree,
                           int row, struct owner **out);
void owner_destroy(struct owner *owner);

/* Which partition of a block the rank owns, counted from the left. */
int owner_place(const struct owner *owner, int block, int rank);
/* The rank that owns partition `place`. */
int owner_rank_at(const struct owner *owner, int block, int place);
/* Neighbouring partitions are of one place in shard groups, else of neighbouring ranks. */
static inline bool owner_columns(const struct owner *owner)
{
    return owner->degree > 1 && owner->degree < owner->ranks;
}
/* Where partition `place` of a block begins, in the flat space. Of a cut by
 * chunks the last partition is the longest. */
int64_t owner_begin(const struct owner *owner, int block, int place);
int64_t owner_longest(const struct owner *owner, int block);
/* The block in which this element of the flat space is. */
int owner_block_at(const struct owner *owner, int64_t element);

enum owner_group {
    OWNER_SHARD_GROUP,   /* shards, of the ranks of one group */
    OWNER_REPLICA_GROUP, /* partitions, of the ranks with the same shard */
    /* both in turn where either is all ranks, or all with the same experts, and several of
     * them are on each of several nodes: a node gets a part once */
    OWNER_FAR, /* partitions, each to the rank of every other node that carries it */
    OWNER_NODE /* own and carried partitions, of the ranks of a node */
};

/* Which of `count` neighbours, from rank `begin` on, carries what another rank owns, to
 * it or from it: behind the last of them ranks follow each other round to the first, and
 * each carries as many, which so lie together in a block. -1: it is one of them. */
static inline int owner_carrier(int ranks, int begin, int count, int rank)
{
    int after = (rank - begin - count + ranks) % ranks;
    return after < ranks - count
               ? (int)((int64_t)after * count / (ranks - count))
               : -1;
}

/* With what a gather of the group begins: OWNER_FAR, after which OWNER_NODE is
 * started, or the group itself. */
enum owner_group owner_gather_begin(const struct owner *owner, int block,
                                    enum owner_group group);

/* Start to exchange a block's partitions or shards within each group. This rank's
 * lies at its place in the target already; target[0], an element of `dtype`, is
 * element target_begin of the flat space. Collective over all ranks. */
enum err owner_start_gather(const struct owner *owner,
                            struct comm_tensors *tensors, int block,
                            enum owner_group group, enum dtype dtype,
                            void *target, int64_t target_begin,
                            struct comm_tensors_request **out);

/* own: a sum of squares of each chunk of this rank's partitions, [owner->own /
 * KERNEL_CHUNK]. Every rank gets the sum of all ranks', rounded once (exact.h).
 * Collective over `comm`, whose ranks are the owner's. */
enum err owner_chunk_sum(const struct owner *owner, struct comm *comm,
                         const double *own, double *sum);
