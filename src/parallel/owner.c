/* Cuts each block into the shards and partitions of the ranks, and starts the
 * exchanges that bring a block's parts together. It has no tensors of its own:
 * weights and moments lie in the replica (replica_state.c).
 *
 * Two cuts, one in the other. Of N ranks every D neighbours are a shard group,
 * and each rank of it keeps a Dth of the weights, its shard; the N / D ranks with
 * the same shard are a replica group, and each of them updates one partition of it:
 *
 *     N = 4, D = 2      shard 0           shard 1
 *     group 0           rank 0: partition 0   rank 1: partition 2
 *     group 1           rank 2: partition 1   rank 3: partition 3
 *
 * A block of a few chunks a rank can't be cut evenly, and what is left over lies
 * at the same places of all blocks of a size. So each of them is dealt one place
 * further than the one before: of blocks that follow each other a rank has
 * neighbouring places, which together are even to a chunk.
 *
 * So a gather of weights stays within a shard group, which lies on one node
 * where D is its ranks (HSDP), and only updated partitions travel between the groups.
 * zero3 without groups is D = N, zero1 and zero2 are D = 1; then neighbouring ranks
 * have neighbouring partitions. Experts that are apart have the same picture with their
 * own degree. */
#include "src/parallel/owner.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/exact.h"
#include "src/base/new.h"
#include "src/parallel/shard.h"

/* Ranks among which the largest is sought. */
#define LOOKED_AT 1024

static int replicas(const struct owner *owner, int block)
{
    return owner->ranks / owner->blocks[block].degree;
}

/* How far a block's shards are turned; experts stay where they are. */
static int shard_turn(const struct owner *owner, int block)
{
    const struct owner_block *b = &owner->blocks[block];
    return b->apart ? 0 : b->turn / replicas(owner, block) % b->degree;
}

int owner_place(const struct owner *owner, int block, int rank)
{
    const struct owner_block *b = &owner->blocks[block];
    int count = replicas(owner, block);
    return (rank + shard_turn(owner, block)) % b->degree * count +
           (rank / b->degree + b->turn) % count;
}

/* Shard groups are the ranks [g degree, (g + 1) degree). */
static int shard_of(const struct owner *owner, int block, int rank)
{
    return owner_place(owner, block, rank) / replicas(owner, block);
}

int64_t owner_begin(const struct owner *owner, int block, int place)
{
    const struct owner_block *b = &owner->blocks[block];
    return b->offset +
           shard_cut_begin(owner->cut, b->elements, place, owner->ranks);
}

int64_t owner_longest(const struct owner *owner, int block)
{
    return owner_begin(owner, block, owner->ranks) -
           owner_begin(owner, block, owner->ranks - 1);
}

/* The last one that begins there or before: any others are empty. */
int owner_block_at(const struct owner *owner, int64_t element)
{
    int block = 0;
    for (int end = owner->block_count; end - block > 1;) {
        int middle = block + (end - block) / 2;
        if (owner->blocks[middle].offset <= element)
            block = middle;
        else
            end = middle;
    }
    return block;
}

/* One block, the model's, or as few of these together as have enough; so has what is
 * left then. */
static void list_blocks(struct owner *owner, const struct params *params,
                        enum owner_cut cut)
{
    const struct param_block all = { .elements = params->elements };
    bool one = cut < OWNER_CUT_BLOCKS;
    int count = one ? 1 : params->block_count;
    int64_t enough =
        cut == OWNER_CUT_JOINED ? (int64_t)owner->ranks * KERNEL_CHUNK : 0;
    struct owner_block *to = NULL;
    for (int b = 0; b < count; b++) {
        const struct param_block *from = one ? &all : &params->blocks[b];
        if (to == NULL || (to->elements >= enough &&
                           params->elements - from->offset >= enough)) {
            to = &owner->blocks[owner->block_count++];
            to->offset = from->offset;
        }
        to->elements += from->elements;
        to->parts += from->elements > 0;
    }
}

static void cut_block(struct owner *owner, int block)
{
    struct owner_block *b = &owner->blocks[block];
    int place = owner_place(owner, block, owner->rank);
    int first = shard_of(owner, block, owner->rank) * replicas(owner, block);
    b->begin = owner_begin(owner, block, place);
    b->end = owner_begin(owner, block, place + 1);
    b->at = owner->own;
    b->shard_begin = owner_begin(owner, block, first);
    b->shard_end = owner_begin(owner, block, first + replicas(owner, block));
    b->shard_at = owner->shard;
    owner->own += b->end - b->begin;
    owner->shard += b->shard_end - b->shard_begin;
    owner->elements += b->elements;
}

int owner_rank_at(const struct owner *owner, int block, int place)
{
    const struct owner_block *b = &owner->blocks[block];
    int count = replicas(owner, block);
    int shard = place / count - shard_turn(owner, block);
    int replica = (place - b->turn) % count;
    return (replica + count) % count * b->degree +
           (shard + b->degree) % b->degree;
}

/* The rank whose partitions are the longest together; of very many some are
 * looked at, which lack a chunk of a kind of block at most. */
static int largest(const struct owner *owner)
{
    int64_t most = -1;
    int rank = 0;
    for (int r = owner->ranks - 1; r >= 0; r -= 1 + owner->ranks / LOOKED_AT) {
        int64_t own = 0;
        for (int b = 0; b < owner->block_count; b++) {
            int place = owner_place(owner, b, r);
            own +=
                owner_begin(owner, b, place + 1) - owner_begin(owner, b, place);
        }
        rank = own > most ? r : rank;
        most = own > most ? own : most;
    }
    return rank;
}

enum err owner_create(const struct params *params, enum owner_cut cut, int rank,
                      int ranks, int degree, int expert_degree,
                      struct owner **out)
{
    return owner_create_rows(params, cut, rank, ranks, degree, expert_degree, 1,
                             out);
}

enum err owner_create_rows(const struct params *params, enum owner_cut cut,
                           int rank, int ranks, int degree, int expert_degree,
                           int row, struct owner **out)
{
    enum err rc = ERR_OK;
    assert(degree >= 1 && ranks % degree == 0);
    assert(expert_degree >= 1 && ranks % expert_degree == 0);
    assert(expert_degree == 1 || cut == OWNER_CUT_BLOCKS);
    assert(row >= 1 && ranks % row == 0);
    struct owner *owner = NULL;
    TRY(new_zeroed(&owner, 1));
    TRY_OUT(new_zeroed(&owner->blocks, (size_t)params->block_count + 1));
    if (cut == OWNER_CUT_WHOLE)
        TRY_OUT(new_zeroed(&owner->cut, (size_t)ranks + 1));
    if (owner->cut != NULL)
        shard_cut_whole(params, ranks, owner->cut);
    owner->ranks = ranks;
    owner->degree = degree;
    owner->expert_degree = expert_degree;
    owner->row = cut >= OWNER_CUT_BLOCKS ? row : 1;
    if (owner->row > 1)
        TRY_OUT(new_zeroed(&owner->messages,
                           6 * (size_t)row + 2 * (size_t)(ranks / row)));
    list_blocks(owner, params, cut);
    for (int b = 0; b < owner->block_count; b++) {
        struct owner_block *block = &owner->blocks[b];
        block->apart =
            expert_degree > 1 && params->blocks[b].kind == PARAM_BLOCK_EXPERTS;
        block->degree = block->apart ? expert_degree : degree;
        for (int before = b - 1; before >= 0 && block->turn == 0; before--)
            if (owner->blocks[before].elements == block->elements)
                block->turn = owner->blocks[before].turn + 1;
    }
    owner->rank = rank == OWNER_LARGEST ? largest(owner) : rank;
    for (int b = 0; b < owner->block_count; b++)
        cut_block(owner, b);
    assert(owner->elements == params->elements);
out:
    return new_or_none(rc, owner, out, owner_destroy);
}

void owner_destroy(struct owner *owner)
{
    if (owner == NULL)
        return;
    free(owner->blocks);
    free(owner->cut);
    free(owner->messages);
    free(owner);
}

static bool is_peer(const struct owner *owner, int block,
                    enum owner_group group, int rank)
{
    int degree = owner->blocks[block].degree;
    if (rank == owner->rank)
        return false;
    if (group == OWNER_SHARD_GROUP)
        return rank / degree == owner->rank / degree;
    return rank % degree == owner->rank % degree;
}

/* Ranks with the same experts are so many apart. */
static int apart_by(const struct owner *owner, int block)
{
    return owner->blocks[block].apart ? owner->blocks[block].degree : 1;
}

enum owner_group owner_gather_begin(const struct owner *owner, int block,
                                    enum owner_group group)
{
    const struct owner_block *b = &owner->blocks[block];
    int step = apart_by(owner, block);
    bool all = group == OWNER_SHARD_GROUP ? b->degree == owner->ranks
                                          : b->degree == step;
    return all && owner->row > step && owner->row % step == 0 ? OWNER_FAR
                                                              : group;
}

/* The part of the block that the rank brings into the group. */
static void part_of(const struct owner *owner, int block,
                    enum owner_group group, int rank, int64_t *begin,
                    int64_t *end)
{
    int count = group == OWNER_SHARD_GROUP ? replicas(owner, block) : 1;
    int first = owner_place(owner, block, rank) / count * count;
    *begin = owner_begin(owner, block, first);
    *end = owner_begin(owner, block, first + count);
}

/* --- by nodes --- */

/* A gather on its way into owner->messages, of the ranks base, base + step and so on,
 * which are numbered; of their whole block, or of experts' shard. */
struct listing {
    const struct owner *owner;
    int block;
    char *target;
    int64_t target_begin;
    size_t item;
    int base, step;
    int row, ranks, rank; /* of them: on a node, all, this one */
    int count;
};

/* The partitions of `count` ranks from `rank` on, which follow each other in the block,
 * or go on at its front. */
static void list_partitions(struct listing *to, int peer, bool receive,
                            int rank, int count)
{
    const struct owner *owner = to->owner;
    int first = to->base * to->ranks, end = first + to->ranks;
    int place =
        owner_place(owner, to->block, to->base + rank % to->ranks * to->step);
    for (int left = count, n; left > 0; left -= n, place = first) {
        n = left < end - place ? left : end - place;
        int64_t begin = owner_begin(owner, to->block, place);
        int64_t stop = owner_begin(owner, to->block, place + n);
        if (begin < stop)
            owner->messages[to->count++] = (struct comm_message){
                to->target + (size_t)(begin - to->target_begin) * to->item,
                (size_t)(stop - begin) * to->item, to->base + peer * to->step,
                receive
            };
    }
}

/* From each node to each other: a partition to who carries it there. */
static void list_far(struct listing *to)
{
    int row = to->row, ranks = to->ranks, rank = to->rank;
    int node = rank / row, each = ranks / row - 1;
    int first = (node + 1) * row + rank % row * each;
    for (int i = first; i < first + each; i++)
        list_partitions(to, i % ranks, true, i % ranks, 1);
    for (int n = node + 1; n <= node + each; n++) {
        int begin = n * row % ranks;
        list_partitions(to, begin + owner_carrier(ranks, begin, row, rank),
                        false, rank, 1);
    }
}

/* Within a node what each of its ranks owns and carries. */
static void list_node(struct listing *to)
{
    int row = to->row, each = to->ranks / row - 1;
    int begin = to->rank / row * row;
    for (int way = 0; way < 2; way++)
        for (int r = begin; r < begin + row; r++) {
            int from = way == 0 ? r : to->rank;
            if (r == to->rank)
                continue;
            list_partitions(to, r, way == 0, from, 1);
            list_partitions(to, r, way == 0,
                            begin + row + (from - begin) * each, each);
        }
}

enum err owner_start_gather(const struct owner *owner,
                            struct comm_tensors *tensors, int block,
                            enum owner_group group, enum dtype dtype,
                            void *target, int64_t target_begin,
                            struct comm_tensors_request **out)
{
    struct comm *comm = comm_tensors_comm(tensors);
    size_t *send_bytes = comm_sizes(comm, 0);
    size_t *send_offsets = comm_sizes(comm, 1);
    size_t *recv_bytes = comm_sizes(comm, 2);
    size_t *recv_offsets = comm_sizes(comm, 3);
    size_t item = dtype_bytes(dtype);
    int64_t own_begin, own_end;
    int step = apart_by(owner, block);
    struct listing listing = { .owner = owner,
                               .block = block,
                               .target = target,
                               .target_begin = target_begin,
                               .item = item,
                               .base = owner->rank % step,
                               .step = step,
                               .row = owner->row / step,
                               .ranks = owner->ranks / step,
                               .rank = owner->rank / step };
    if (group == OWNER_FAR || group == OWNER_NODE) {
        group == OWNER_FAR ? list_far(&listing) : list_node(&listing);
        return comm_tensors_start_messages(tensors, owner->messages,
                                           listing.count, out);
    }
    part_of(owner, block, group, owner->rank, &own_begin, &own_end);
    for (int r = 0; r < owner->ranks; r++) {
        int64_t begin, end;
        bool peer = is_peer(owner, block, group, r);
        part_of(owner, block, group, r, &begin, &end);
        send_bytes[r] = peer ? (size_t)(own_end - own_begin) * item : 0;
        send_offsets[r] = 0;
        recv_bytes[r] = peer ? (size_t)(end - begin) * item : 0;
        recv_offsets[r] =
            recv_bytes[r] > 0 ? (size_t)(begin - target_begin) * item : 0;
    }
    const char *own =
        (const char *)target + (size_t)(own_begin - target_begin) * item;
    return comm_tensors_start_all_to_all(tensors, own, send_bytes, send_offsets,
                                         target, recv_bytes, recv_offsets, out);
}

enum err owner_chunk_sum(const struct owner *owner, struct comm *comm,
                         const double *own, double *sum)
{
    struct exact exact = { { 0 } };
    for (int64_t i = 0; i < owner->own / KERNEL_CHUNK; i++)
        exact_add(&exact, own[i]);
    TRY(comm_all_reduce_i64(comm, exact.word, EXACT_WORDS, COMM_SUM));
    *sum = exact_value(&exact);
    return ERR_OK;
}
