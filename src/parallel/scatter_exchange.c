/* Sends a block's gradients to the block's owners while backward goes on with
 * the next block, and adds what arrives in the order of leaves.
 *
 * A reduce-scatter would add on the way, in an order that depends on the ring
 * or tree of the day. Here nothing is added on the way: every rank gives each
 * owner its partition of its leaf as it is (an all-to-all), and the owner, who then
 * has the partition of every leaf, adds them one after the other as the tree of
 * tree.h says. The bytes of each rank are the same, (N - 1) / N of the block,
 * and the bits depend on the leaves alone. What it costs is room for the partitions
 * of all leaves at once, so a block goes in rounds of a bounded width. */
#include <assert.h>

#include "src/parallel/adds.h"
#include "src/parallel/scatter_impl.h"

/* --- adding --- */

struct reducers scatter_reducers(const struct scatter *scatter, int block)
{
    const struct owner *owner = scatter->owner;
    const struct owner_block *b = &owner->blocks[block];
    if (b->apart)
        return (struct reducers){ .members = owner->ranks / b->degree,
                                  .first = owner->rank % b->degree,
                                  .step = b->degree,
                                  .parts = b->degree,
                                  .begin = b->shard_begin,
                                  .elements = b->shard_end - b->shard_begin };
    return (struct reducers){ .members = owner->ranks,
                              .step = 1,
                              .parts = scatter->options.own_leaves,
                              .begin = b->offset,
                              .elements = b->elements };
}

static int member_rank(const struct reducers *reducers, int member)
{
    return reducers->first + member * reducers->step;
}

int64_t scatter_round_elements(const struct scatter *scatter, int block,
                               int rank, int64_t round)
{
    const struct owner *owner = scatter->owner;
    int place = owner_place(owner, block, rank);
    int64_t span = scatter_span(scatter, block);
    int64_t left = owner_begin(owner, block, place + 1) -
                   owner_begin(owner, block, place) - round * span;
    left = left < 0 ? 0 : left;
    return left < span ? left : span;
}

int64_t scatter_round_begin(const struct scatter *scatter, int block, int rank,
                            int64_t round)
{
    const struct owner *owner = scatter->owner;
    int place = owner_place(owner, block, rank);
    return owner_begin(owner, block, place) -
           scatter_reducers(scatter, block).begin +
           round * scatter_span(scatter, block);
}

/* Where a rank's partition of this round is in part `part` of its members'
 * buffers. */
static int64_t round_begin(const struct scatter *scatter,
                           const struct reducers *reducers, int part, int rank)
{
    const struct exchange *exchange = &scatter->exchange;
    return part * reducers->elements +
           scatter_round_begin(scatter, exchange->block, rank, exchange->round);
}

/* The partition of this round for a leaf of the microstep becomes sum `at`, which
 * in bf16 is one and goes to the stack. */
static void put_partition(const struct scatter *scatter,
                          const struct reducers *reducers, int place,
                          struct adds *adds, int at, float *stack)
{
    int rank = scatter->owner->rank;
    int part = place % reducers->parts;
    int64_t received = place * scatter_span(scatter, scatter->exchange.block);
    bool own = member_rank(reducers, place / reducers->parts) == rank;
    bool half = !own && scatter->options.bf16;
    float *value = own ? scatter_buffer(scatter, scatter->exchange.block) +
                             round_begin(scatter, reducers, part, rank)
                       : scatter->receive + received;
    adds_put(adds, at, half ? stack : value,
             half ? scatter->wire_in + received * BF16_BYTES : NULL);
}

/* All partitions of the round are here. What of them stays goes to the stack. */
static enum err add_round(struct scatter *scatter, int64_t count)
{
    const struct exchange *exchange = &scatter->exchange;
    const struct owner_block *b = &scatter->owner->blocks[exchange->block];
    struct reducers reducers = scatter_reducers(scatter, exchange->block);
    int64_t at =
        b->at + exchange->round * scatter_span(scatter, exchange->block);
    struct sums sums = exchange->sums;
    struct adds adds = { .kernels = scatter->kernels,
                         .ctx = scatter->ctx,
                         .n = count };
    int64_t end = scatter_leaf_end(scatter, sums.leaf);
    for (int i = 0; i < scatter_depth(scatter, &sums); i++)
        adds_put(&adds, i, scatter->stack[i] + at, NULL);
    for (int place = 0; sums.leaf < end; place++) {
        int to = scatter_depth(scatter, &sums);
        bool begins = sums.leaf % scatter->options.leaves == 0;
        put_partition(scatter, &reducers, place, &adds, to,
                      scatter->stack[0] + at);
        if (!begins)
            TRY(adds_join(&adds, to - 1));
        scatter_add_leaf(scatter, &sums);
        if (sums.leaf % scatter->options.leaves != 0)
            continue;
        while (tree_settle(&sums.tree, scatter->options.slots))
            TRY(adds_join(&adds, sums.tree.depth - 1));
    }
    for (int i = 0; i < scatter_depth(scatter, &sums); i++)
        TRY(adds_write(&adds, i, scatter->stack[i] + at));
    return ERR_OK;
}

/* --- exchanging --- */

/* Starts one part's all-to-all: each member sends its part to each, where it is
 * a leaf of the batch. Of experts that no other rank has there is none. */
static enum err start_part(struct scatter *scatter, int part)
{
    struct exchange *exchange = &scatter->exchange;
    struct comm *comm = comm_tensors_comm(scatter->tensors);
    struct reducers reducers = scatter_reducers(scatter, exchange->block);
    int64_t span = scatter_span(scatter, exchange->block);
    size_t *send_bytes = comm_sizes(comm, 0);
    size_t *send_offsets = comm_sizes(comm, 1);
    size_t *recv_bytes = comm_sizes(comm, 2);
    size_t *recv_offsets = comm_sizes(comm, 3);
    bool bf16 = scatter->options.bf16;
    size_t item = bf16 ? BF16_BYTES : sizeof(float);
    int me = scatter->owner->rank;
    int64_t active =
        scatter_leaf_end(scatter, exchange->sums.leaf) - exchange->sums.leaf;
    int64_t own =
        scatter_round_elements(scatter, exchange->block, me, exchange->round);
    const float *gradient = scatter_buffer(scatter, exchange->block);
    bool sends =
        (me - reducers.first) / reducers.step * reducers.parts + part < active;
    if (reducers.members == 1)
        return ERR_OK;
    for (int r = 0; r < scatter->owner->ranks; r++)
        send_bytes[r] = send_offsets[r] = recv_bytes[r] = recv_offsets[r] = 0;
    for (int m = 0; m < reducers.members; m++) {
        int r = member_rank(&reducers, m);
        int64_t place = (int64_t)m * reducers.parts + part;
        int64_t begin = round_begin(scatter, &reducers, part, r);
        int64_t count = scatter_round_elements(scatter, exchange->block, r,
                                               exchange->round);
        if (r == me)
            continue;
        recv_bytes[r] = place < active ? (size_t)own * item : 0;
        recv_offsets[r] = (size_t)(place * span) * item;
        if (!sends || count == 0)
            continue;
        send_bytes[r] = (size_t)count * item;
        send_offsets[r] = (size_t)(bf16 ? place * span : begin) * item;
        if (bf16)
            TRY(scatter->kernels->pack(scatter->ctx, DTYPE_F32, PACKING_BF16, 1,
                                       count, gradient + begin,
                                       scatter->wire_out +
                                           place * span * BF16_BYTES));
    }
    return comm_tensors_start_all_to_all(
        scatter->tensors, bf16 ? (const void *)scatter->wire_out : gradient,
        send_bytes, send_offsets,
        bf16 ? (void *)scatter->wire_in : scatter->receive, recv_bytes,
        recv_offsets, &exchange->requests[part % REQUESTS]);
}

static enum err start_round(struct scatter *scatter)
{
    int parts = scatter_reducers(scatter, scatter->exchange.block).parts;
    for (int part = 0; part < parts && part < REQUESTS; part++)
        TRY(start_part(scatter, part));
    return ERR_OK;
}

/* What was started, and the parts for which there was no request yet. */
static enum err wait_round(struct scatter *scatter)
{
    struct exchange *exchange = &scatter->exchange;
    int parts = scatter_reducers(scatter, exchange->block).parts;
    for (int part = 0; part < parts; part++) {
        struct comm_tensors_request *request =
            exchange->requests[part % REQUESTS];
        exchange->requests[part % REQUESTS] = NULL;
        if (request != NULL)
            TRY(comm_tensors_wait(request, 0.0));
        if (part + REQUESTS < parts)
            TRY(start_part(scatter, part + REQUESTS));
    }
    return ERR_OK;
}

enum err scatter_exchange_start(struct scatter *scatter, int block)
{
    assert(scatter->exchange.block == NO_BLOCK);
    scatter->exchange =
        (struct exchange){ .block = block, .sums = scatter->sums };
    return start_round(scatter);
}

enum err scatter_exchange_finish(struct scatter *scatter)
{
    struct exchange *exchange = &scatter->exchange;
    if (exchange->block == NO_BLOCK)
        return ERR_OK;
    int64_t longest = owner_longest(scatter->owner, exchange->block);
    for (;;) {
        int64_t count = scatter_round_elements(
            scatter, exchange->block, scatter->owner->rank, exchange->round);
        TRY(wait_round(scatter));
        if (count > 0)
            TRY(add_round(scatter, count));
        exchange->round++;
        if (exchange->round * scatter_span(scatter, exchange->block) >= longest)
            break;
        TRY(start_round(scatter));
    }
    exchange->block = NO_BLOCK;
    return ERR_OK;
}
