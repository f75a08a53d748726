/* Reads each block of a checkpoint once and passes it to all ranks that want
 * it, down a binary tree.
 *
 * After a change of ranks or strategy nearly every rank wants a bit of nearly
 * every shard. If each read for itself, a file system that gives one copy of
 * the checkpoint in a minute would be asked for as many as there are ranks.
 * Here each block is read and verified by one rank, which ckpt_plan.c has
 * chosen so that all read alike, and the network has the rest: two rounds are
 * in flight, so that reading goes on while the round before is passed on. Where
 * bytes go in memory is ckpt_place.c's. */
#include "checkpoint/ckpt_load_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt_place.h"
#include "checkpoint/files/ckpt_read.h"
#include "src/base/array.h"
#include "src/base/new.h"

/* Two rounds are in flight; each slot has at most one receive and two sends,
 * which fits into comm's pool of requests. */
#define ROUNDS 2
#define SLOTS 32
#define CHILDREN 2
/* Blocks of all ranks in one round: the tags of two rounds are different. */
#define ROUND_BLOCKS 8192
#define TAGS 32768

/* A block in which this rank takes part. */
struct slot {
    int shard;
    const struct ckpt_extent *extent;
    int64_t first, end, bytes;
    bool wanted; /* by this rank; a reader need not want what it reads */
    int tag;
    int parent; /* -1: this rank reads it */
    int children[CHILDREN];
    int child_count;
    char *data;
    struct comm_request *receive;
    struct comm_request *sends[CHILDREN];
};

struct round {
    char *window; /* CKPT_EXCHANGE_BYTES */
    struct slot slots[SLOTS];
    int count;
    int blocks;     /* of all ranks */
    int64_t status; /* the largest code of all ranks */
    struct comm_request *agreement;
};

struct exchange {
    struct comm *comm;
    int rank, ranks;
    const struct ckpt_manifest *manifest;
    const struct ckpt_item *items;
    const int *item_of_tensor;
    const struct ckpt_memory *memory; /* of the items; NULL: the program's */
    struct ckpt_plan *plan;
    struct ckpt_read *reader;
    struct round rounds[ROUNDS];
    int64_t *bytes; /* [ranks]: of the round that is being made */
    int *counts;    /* [ranks]: likewise, blocks */
    struct ckpt_stretch
        next; /* the first that the last round had no room for */
    bool has_next;
    int64_t sequence;         /* of shared blocks */
    struct ckpt_stretch *own; /* private ones; their takers are gone */
    size_t own_count, own_room;
    /* the first failure of this rank's own reads and copies */
    struct err_kept failed;
    struct ckpt_load_stats *stats;
};

/* --- one block --- */

static enum err scatter(const struct exchange *x,
                        const struct ckpt_extent *extent, int64_t first,
                        int64_t end, const void *data)
{
    const struct ckpt_tensor *tensor = &x->manifest->tensors[extent->tensor];
    assert(x->item_of_tensor[extent->tensor] >= 0); /* or nobody wants it */
    const struct ckpt_item *item = &x->items[x->item_of_tensor[extent->tensor]];
    struct ckpt_place place = { .dims = tensor->dims,
                                .shape = tensor->shape,
                                .stored = extent->part,
                                .wanted = item->part,
                                .stored_dtype = tensor->dtype,
                                .wanted_dtype = item->dtype,
                                .data = item->data,
                                .memory = x->memory };
    return ckpt_place_copy(&place, first, end, data);
}

/* Where the verified bytes of a stretch go. */
struct target {
    const struct exchange *x;
    const struct ckpt_extent *extent;
    int64_t first; /* element that comes next */
    char *data;    /* NULL: to the items */
};

static enum err take(void *arg, const void *data, size_t bytes)
{
    enum err rc = ERR_OK;
    struct target *target = arg;
    enum dtype dtype =
        target->x->manifest->tensors[target->extent->tensor].dtype;
    int64_t end = target->first + (int64_t)(bytes / dtype_bytes(dtype));
    if (target->data != NULL) {
        memcpy(target->data, data, bytes);
        target->data += bytes;
    } else {
        rc = scatter(target->x, target->extent, target->first, end, data);
    }
    target->first = end;
    return rc;
}

/* Notes a failure; the first one counts. */
static void note(struct exchange *x, enum err rc)
{
    if (x->failed.code == ERR_OK)
        err_keep(&x->failed, rc);
}

/* Read elements [first, end) of an extent; nothing more after a failure. */
static void read_elements(struct exchange *x, int shard,
                          const struct ckpt_extent *extent, int64_t first,
                          int64_t end, char *data)
{
    struct target target = { x, extent, first, data };
    enum dtype dtype = x->manifest->tensors[extent->tensor].dtype;
    assert(first >= 0 && first < end);
    if (x->failed.code != ERR_OK)
        return;
    note(x,
         ckpt_read_extent(x->reader, shard, extent, first, end, take, &target));
    if (x->failed.code == ERR_OK)
        x->stats->read_bytes += (end - first) * (int64_t)dtype_bytes(dtype);
}

/* --- rounds --- */

static void keep_private(struct exchange *x, const struct ckpt_stretch *own)
{
    enum err rc = array_room(&x->own, &x->own_room, x->own_count + 1);
    if (rc == ERR_OK)
        x->own[x->own_count++] = *own;
    else
        note(x, rc);
}

/* Moves on to the next block that is not private. */
static void advance(struct exchange *x)
{
    while ((x->has_next = ckpt_plan_next(x->plan, &x->next)) && x->next.private)
        if (x->next.reader == x->rank)
            keep_private(x, &x->next);
}

/* Who is number `place` in the block's tree: the reader first, then the takers
 * after it, cyclically, so that passing on is everybody's duty in turn. */
struct tree {
    const struct ckpt_stretch *block;
    int start; /* the reader among the takers; -1: it is none of them */
    int count;
};

static struct tree make_tree(const struct ckpt_stretch *block)
{
    struct tree tree = { .block = block, .start = -1 };
    for (int i = 0; i < block->taker_count; i++)
        if (block->takers[i] == block->reader)
            tree.start = i;
    tree.count = block->taker_count + (tree.start < 0);
    return tree;
}

static int tree_rank(const struct tree *tree, int place)
{
    assert(place >= 0 && place < tree->count);
    const struct ckpt_stretch *block = tree->block;
    if (tree->start < 0)
        return place == 0 ? block->reader : block->takers[place - 1];
    return block->takers[(tree->start + place) % block->taker_count];
}

static bool has_room(const struct exchange *x, const struct round *round,
                     const struct tree *tree)
{
    bool room = round->blocks < ROUND_BLOCKS;
    for (int i = 0; i < tree->count && room; i++) {
        int r = tree_rank(tree, i);
        room = x->counts[r] < SLOTS &&
               x->bytes[r] + tree->block->bytes <= CKPT_EXCHANGE_BYTES;
    }
    return room;
}

static void add_slot(struct exchange *x, struct round *round,
                     const struct tree *tree, int place)
{
    assert(round->count < SLOTS && place >= 0 && place < tree->count);
    const struct ckpt_stretch *block = tree->block;
    struct slot *slot = &round->slots[round->count++];
    *slot = (struct slot){
        .shard = block->shard,
        .extent = block->extent,
        .first = block->first,
        .end = block->end,
        .bytes = block->bytes,
        .wanted = place > 0 || tree->start >= 0,
        .tag = (int)(x->sequence % TAGS),
        .parent = place == 0 ? -1 : tree_rank(tree, (place - 1) / CHILDREN),
        .data = round->window + x->bytes[x->rank],
    };
    for (int c = CHILDREN * place + 1;
         c <= CHILDREN * place + CHILDREN && c < tree->count; c++)
        slot->children[slot->child_count++] = tree_rank(tree, c);
}

/* Fills a round with the same blocks on all ranks; a rank keeps those in which
 * it takes part. */
static void make_round(struct exchange *x, struct round *round)
{
    memset(x->bytes, 0, (size_t)x->ranks * sizeof *x->bytes);
    memset(x->counts, 0, (size_t)x->ranks * sizeof *x->counts);
    round->count = 0;
    round->blocks = 0;
    for (; x->has_next; advance(x)) {
        struct tree tree = make_tree(&x->next);
        if (!has_room(x, round, &tree))
            break;
        for (int i = 0; i < tree.count; i++) {
            int r = tree_rank(&tree, i);
            if (r == x->rank)
                add_slot(x, round, &tree, i);
            x->bytes[r] += x->next.bytes;
            x->counts[r]++;
        }
        round->blocks++;
        x->sequence++;
    }
}

static enum err pass_on(struct exchange *x, struct slot *slot)
{
    for (int c = 0; c < slot->child_count; c++)
        TRY(comm_start_send(x->comm, slot->data, (size_t)slot->bytes,
                            slot->children[c], slot->tag, &slot->sends[c]));
    return ERR_OK;
}

static void keep(struct exchange *x, const struct slot *slot)
{
    if (slot->wanted)
        note(x, scatter(x, slot->extent, slot->first, slot->end, slot->data));
}

/* Expect what others read, read the own blocks and send them. A rank whose read
 * failed sends all the same, so that nobody waits in vain, and says so. */
static enum err start_round(struct exchange *x, struct round *round)
{
    for (int i = 0; i < round->count; i++) {
        struct slot *slot = &round->slots[i];
        if (slot->parent >= 0)
            TRY(comm_start_recv(x->comm, slot->data, (size_t)slot->bytes,
                                slot->parent, slot->tag, &slot->receive));
    }
    for (int i = 0; i < round->count; i++) {
        struct slot *slot = &round->slots[i];
        if (slot->parent >= 0)
            continue;
        read_elements(x, slot->shard, slot->extent, slot->first, slot->end,
                      slot->data);
        TRY(pass_on(x, slot));
        keep(x, slot);
    }
    round->status = x->failed.code;
    return comm_start_all_reduce_i64(x->comm, &round->status, 1, COMM_MAX,
                                     &round->agreement);
}

static enum err finish_round(struct exchange *x, struct round *round)
{
    for (int i = 0; i < round->count; i++) {
        struct slot *slot = &round->slots[i];
        if (slot->parent < 0)
            continue;
        TRY(comm_wait(slot->receive, 0.0));
        TRY(pass_on(x, slot));
        keep(x, slot);
        x->stats->received_bytes += slot->bytes;
    }
    for (int i = 0; i < round->count; i++)
        for (int c = 0; c < round->slots[i].child_count; c++)
            TRY(comm_wait(round->slots[i].sends[c], 0.0));
    return comm_wait(round->agreement, 0.0);
}

/* Exchanges all rounds, two in flight; all ranks stop after the same one. */
static enum err share(struct exchange *x)
{
    bool good = true;
    struct round *now = &x->rounds[0], *next = &x->rounds[1];
    advance(x);
    make_round(x, now);
    if (now->blocks > 0)
        TRY(start_round(x, now));
    while (now->blocks > 0) {
        next->blocks = 0;
        if (good)
            make_round(x, next);
        if (next->blocks > 0)
            TRY(start_round(x, next));
        TRY(finish_round(x, now));
        good = good && now->status == ERR_OK;
        struct round *done = now;
        now = next;
        next = done;
    }
    return ERR_OK;
}

/* --- all --- */

static void read_private(struct exchange *x)
{
    for (size_t i = 0; i < x->own_count && x->failed.code == ERR_OK; i++)
        read_elements(x, x->own[i].shard, x->own[i].extent, x->own[i].first,
                      x->own[i].end, NULL);
}

static enum err allocate(struct exchange *x, const char *dir)
{
    TRY(new_zeroed(&x->bytes, (size_t)x->ranks));
    TRY(new_zeroed(&x->counts, (size_t)x->ranks));
    for (int i = 0; i < ROUNDS; i++)
        TRY(new_zeroed(&x->rounds[i].window, (size_t)CKPT_EXCHANGE_BYTES));
    TRY(ckpt_read_create(dir, x->manifest, &x->reader));
    x->stats->buffer_bytes =
        (int64_t)ROUNDS * CKPT_EXCHANGE_BYTES + CKPT_BLOCK_BYTES;
    return ERR_OK;
}

enum err ckpt_exchange(struct comm *comm, const struct ckpt_source *source,
                       const struct ckpt_manifest *manifest,
                       const struct ckpt_item *items, const int *item_of_tensor,
                       const struct ckpt_memory *memory,
                       struct ckpt_load_stats *stats)
{
    enum err rc = ERR_OK;
    struct exchange x = { .comm = comm,
                          .rank = comm_rank(comm),
                          .ranks = comm_size(comm),
                          .manifest = manifest,
                          .items = items,
                          .item_of_tensor = item_of_tensor,
                          .memory = memory,
                          .stats = stats };
    *stats = (struct ckpt_load_stats){ 0 };
    TRY_OUT(comm_agree(comm, allocate(&x, source->dir)));
    TRY_OUT(ckpt_plan_create(comm, source, manifest, items, item_of_tensor,
                             &x.plan));
    TRY_OUT(share(&x));
    read_private(&x);
    TRY_OUT(comm_agree(comm, err_again(&x.failed)));
out:
    /* A late peer may still write into the windows of a broken comm. */
    for (int i = 0; i < ROUNDS && rc != ERR_COMM; i++)
        free(x.rounds[i].window);
    free(x.bytes);
    free(x.counts);
    free(x.own);
    ckpt_read_destroy(x.reader);
    ckpt_plan_destroy(x.plan);
    return rc;
}
