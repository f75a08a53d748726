/* Decides for each block of a checkpoint who reads it and who gets it. Nothing
 * is read here: ckpt_exchange.c carries the plan out.
 *
 * No rank is told what to do. All know what all want, which is small as
 * intervals, and all walk the blocks in the same order with the same rule, so
 * that they come to the same plan; it is never stored, for a large checkpoint
 * has millions of blocks, but walked again when it is needed again. */
#include "checkpoint/ckpt_load_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt_place.h"
#include "src/base/new.h"

#define NO_TENSOR (-1)

/* What a rank wants: an interval of the tensors laid end to end, or a box of
 * one tensor, of which [begin, end) is the whole tensor. */
struct want {
    int64_t begin, end;
    int64_t tensor; /* NO_TENSOR: an interval */
    struct ckpt_part box;
};

/* A rank that wants something of the extent. */
struct candidate {
    int rank;
    struct ckpt_part part;
};

struct ckpt_plan {
    const struct ckpt_manifest *manifest;
    int ranks;
    int64_t *bases;     /* [tensors + 1]: where each begins, end to end */
    size_t *want_bytes; /* [ranks] */
    size_t *want_at;    /* [ranks], in bytes */
    struct want *wants; /* of all ranks */
    bool *holds;        /* [ranks][shards] */
    int64_t *duty;      /* [ranks]: bytes to read so far */
    int *takers;        /* [ranks] */
    struct candidate *candidates; /* [ranks], of the current extent */
    int candidate_count;
    /* the next block */
    int shard, extent;
    int64_t block;
};

/* --- what all want --- */

/* Append to wants[*count]; adjacent intervals become one. */
static void add_want(struct want *wants, size_t *count, int64_t base,
                     int64_t elements, int tensor, const struct ckpt_item *item)
{
    struct ckpt_part part = item->part;
    ckpt_part_normalise(&part, item->dims, item->shape);
    if (part.boxed) {
        wants[(*count)++] = (struct want){
            .begin = base, .end = base + elements, .tensor = tensor, .box = part
        };
        return;
    }
    if (part.begin == part.end)
        return;
    struct want *last = *count > 0 ? &wants[*count - 1] : NULL;
    if (last != NULL && last->tensor == NO_TENSOR &&
        last->end == base + part.begin)
        last->end = base + part.end;
    else
        wants[(*count)++] = (struct want){ .begin = base + part.begin,
                                           .end = base + part.end,
                                           .tensor = NO_TENSOR };
}

/* Own wants in front of a temporary array, *bytes of them. */
static enum err own_wants(const struct ckpt_plan *plan,
                          const struct ckpt_item *items,
                          const int *item_of_tensor, struct want **wants,
                          size_t *bytes)
{
    const struct ckpt_manifest *manifest = plan->manifest;
    size_t count = 0;
    TRY(new_zeroed(wants, (size_t)manifest->tensor_count + 1));
    for (int t = 0; t < manifest->tensor_count; t++)
        if (item_of_tensor[t] >= 0)
            add_want(*wants, &count, plan->bases[t],
                     manifest->tensors[t].elements, t,
                     &items[item_of_tensor[t]]);
    *bytes = count * sizeof **wants;
    return ERR_OK;
}

static enum err gather_wants(struct ckpt_plan *plan, struct comm *comm,
                             const struct ckpt_item *items,
                             const int *item_of_tensor)
{
    enum err rc = ERR_OK;
    struct want *own = NULL;
    int rank = comm_rank(comm);
    size_t total = 0;
    rc = own_wants(plan, items, item_of_tensor, &own, &plan->want_bytes[rank]);
    TRY_OUT(comm_agree(comm, rc));
    TRY_OUT(
        comm_gather_rows(comm, plan->want_bytes, sizeof plan->want_bytes[0]));
    for (int r = 0; r < plan->ranks; r++) {
        plan->want_at[r] = total;
        total += plan->want_bytes[r];
    }
    char *all = NULL;
    rc = new_room(&all, total + 1);
    plan->wants = (struct want *)(void *)all;
    TRY_OUT(comm_agree(comm, rc));
    memcpy(all + plan->want_at[rank], own, plan->want_bytes[rank]);
    TRY_OUT(comm_all_gather(comm, all, plan->want_bytes, plan->want_at));
out:
    free(own);
    return rc;
}

static enum err gather_holds(struct ckpt_plan *plan, struct comm *comm,
                             const bool *holds)
{
    size_t shards = (size_t)plan->manifest->shard_count;
    bool *own = plan->holds + (size_t)comm_rank(comm) * shards;
    for (size_t s = 0; s < shards; s++)
        own[s] = holds == NULL || holds[s];
    return comm_gather_rows(comm, plan->holds, shards * sizeof *own);
}

/* The part of tensor t that the rank wants; false: nothing. */
static bool want_of(const struct ckpt_plan *plan, int rank, int t,
                    struct ckpt_part *part)
{
    assert(t >= 0 && t < plan->manifest->tensor_count);
    const struct want *wants =
        (const struct want *)((const char *)plan->wants + plan->want_at[rank]);
    size_t count = plan->want_bytes[rank] / sizeof *wants;
    int64_t base = plan->bases[t], end = plan->bases[t + 1];
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (wants[middle].end > base)
            high = middle;
        else
            low = middle + 1;
    }
    if (low == count || wants[low].begin >= end)
        return false;
    const struct want *want = &wants[low];
    if (want->tensor != NO_TENSOR) {
        *part = want->box;
        return true;
    }
    *part = (struct ckpt_part){ 0 };
    part->begin = want->begin > base ? want->begin - base : 0;
    part->end = (want->end < end ? want->end : end) - base;
    return true;
}

/* --- who reads --- */

static bool holds(const struct ckpt_plan *plan, int rank, int shard)
{
    assert(rank >= 0 && rank < plan->ranks && shard >= 0);
    assert(shard < plan->manifest->shard_count);
    size_t shards = (size_t)plan->manifest->shard_count;
    return plan->holds[(size_t)rank * shards + (size_t)shard];
}

static const struct ckpt_extent *current_extent(const struct ckpt_plan *plan)
{
    return &plan->manifest->shards[plan->shard].extents[plan->extent];
}

/* Enter the current extent: which ranks want anything of it? */
static void find_candidates(struct ckpt_plan *plan)
{
    const struct ckpt_extent *extent = current_extent(plan);
    const struct ckpt_tensor *tensor = &plan->manifest->tensors[extent->tensor];
    int64_t elements = ckpt_part_elements(&extent->part, tensor->dims);
    plan->candidate_count = 0;
    for (int r = 0; r < plan->ranks; r++) {
        struct candidate candidate = { .rank = r };
        if (want_of(plan, r, extent->tensor, &candidate.part) &&
            ckpt_place_touches(tensor->dims, tensor->shape, &extent->part, 0,
                               elements, &candidate.part))
            plan->candidates[plan->candidate_count++] = candidate;
    }
}

/* Block number `block` of the current extent, its reader still unknown; false:
 * nobody wants it. */
static bool look_at(struct ckpt_plan *plan, int64_t block,
                    struct ckpt_stretch *out)
{
    const struct ckpt_extent *extent = current_extent(plan);
    const struct ckpt_tensor *tensor = &plan->manifest->tensors[extent->tensor];
    int64_t size = (int64_t)dtype_bytes(tensor->dtype);
    int64_t bytes = extent->bytes - block * CKPT_BLOCK_BYTES;
    if (bytes > CKPT_BLOCK_BYTES)
        bytes = CKPT_BLOCK_BYTES;
    int64_t first = block * CKPT_BLOCK_BYTES / size;
    *out = (struct ckpt_stretch){ .shard = plan->shard,
                                  .extent = extent,
                                  .first = first,
                                  .end = first + bytes / size,
                                  .bytes = bytes,
                                  .reader = -1,
                                  .takers = plan->takers };
    for (int c = 0; c < plan->candidate_count; c++)
        if (ckpt_place_touches(tensor->dims, tensor->shape, &extent->part,
                               out->first, out->end, &plan->candidates[c].part))
            plan->takers[out->taker_count++] = plan->candidates[c].rank;
    if (out->taker_count == 0)
        return false;
    out->private =
        out->taker_count == 1 && holds(plan, plan->takers[0], plan->shard);
    return true;
}

/* The one with the least duty of `count` ranks (NULL: all) that hold the shard;
 * -1: none does. */
static int least_busy(const struct ckpt_plan *plan, int shard, const int *ranks,
                      int count)
{
    int best = -1;
    for (int i = 0; i < count; i++) {
        int r = ranks != NULL ? ranks[i] : i;
        if (holds(plan, r, shard) &&
            (best < 0 || plan->duty[r] < plan->duty[best]))
            best = r;
    }
    return best;
}

/* The blocks after it that the same rank reads for itself. */
static void extend(struct ckpt_plan *plan, int64_t blocks,
                   struct ckpt_stretch *stretch)
{
    assert(stretch->private && stretch->taker_count == 1);
    int taker = stretch->takers[0];
    struct ckpt_stretch more;
    while (plan->block < blocks && look_at(plan, plan->block, &more) &&
           more.private && more.takers[0] == taker) {
        stretch->end = more.end;
        stretch->bytes += more.bytes;
        plan->block++;
    }
    plan->takers[0] = taker;
}

void ckpt_plan_rewind(struct ckpt_plan *plan)
{
    memset(plan->duty, 0, (size_t)plan->ranks * sizeof *plan->duty);
    plan->shard = 0;
    plan->extent = 0;
    plan->block = 0;
}

bool ckpt_plan_next(struct ckpt_plan *plan, struct ckpt_stretch *out)
{
    for (; plan->shard < plan->manifest->shard_count; plan->shard++) {
        const struct ckpt_shard *shard = &plan->manifest->shards[plan->shard];
        for (; plan->extent < shard->extent_count; plan->extent++) {
            int64_t blocks =
                ckpt_manifest_block_count(shard->extents[plan->extent].bytes);
            if (plan->block == 0)
                find_candidates(plan);
            if (plan->candidate_count == 0)
                continue;
            while (plan->block < blocks) {
                if (!look_at(plan, plan->block++, out))
                    continue;
                out->reader = least_busy(plan, plan->shard, plan->takers,
                                         out->taker_count);
                if (out->reader < 0)
                    out->reader =
                        least_busy(plan, plan->shard, NULL, plan->ranks);
                assert(out->reader >= 0); /* check_holders() */
                if (out->private)
                    extend(plan, blocks, out);
                plan->duty[out->reader] += out->bytes;
                return true;
            }
            plan->block = 0;
        }
        plan->extent = 0;
    }
    return false;
}

/* Everything wanted can be opened by some rank. */
static enum err check_holders(struct ckpt_plan *plan,
                              const struct ckpt_source *source)
{
    const struct ckpt_manifest *manifest = plan->manifest;
    ckpt_plan_rewind(plan);
    for (int s = 0; s < manifest->shard_count; s++) {
        const struct ckpt_shard *shard = &manifest->shards[s];
        if (least_busy(plan, s, NULL, plan->ranks) >= 0)
            continue;
        plan->shard = s;
        for (plan->extent = 0; plan->extent < shard->extent_count;
             plan->extent++) {
            find_candidates(plan);
            if (plan->candidate_count > 0)
                return err_set(ERR_CHECKPOINT,
                               "%.300s/%s: shard is missing on every node",
                               source->dir, shard->file);
        }
    }
    ckpt_plan_rewind(plan);
    return ERR_OK;
}

static enum err allocate(struct ckpt_plan *plan)
{
    size_t ranks = (size_t)plan->ranks;
    size_t tensors = (size_t)plan->manifest->tensor_count;
    size_t shards = (size_t)plan->manifest->shard_count;
    TRY(new_zeroed(&plan->bases, tensors + 1));
    TRY(new_zeroed(&plan->want_bytes, ranks));
    TRY(new_zeroed(&plan->want_at, ranks));
    TRY(new_zeroed(&plan->holds, ranks * shards + 1));
    TRY(new_zeroed(&plan->duty, ranks));
    TRY(new_zeroed(&plan->takers, ranks));
    TRY(new_zeroed(&plan->candidates, ranks));
    for (size_t t = 0; t < tensors; t++)
        plan->bases[t + 1] =
            plan->bases[t] + plan->manifest->tensors[t].elements;
    return ERR_OK;
}

enum err ckpt_plan_create(struct comm *comm, const struct ckpt_source *source,
                          const struct ckpt_manifest *manifest,
                          const struct ckpt_item *items,
                          const int *item_of_tensor, struct ckpt_plan **out)
{
    struct ckpt_plan *plan = NULL;
    *out = NULL;
    enum err rc = new_zeroed(&plan, 1);
    if (rc == ERR_OK) {
        plan->manifest = manifest;
        plan->ranks = comm_size(comm);
        rc = allocate(plan);
    }
    TRY_OUT(comm_agree(comm, rc));
    TRY_OUT(gather_wants(plan, comm, items, item_of_tensor));
    TRY_OUT(gather_holds(plan, comm, source->holds));
    TRY_OUT(check_holders(plan, source));
out:
    return new_or_none(rc, plan, out, ckpt_plan_destroy);
}

void ckpt_plan_destroy(struct ckpt_plan *plan)
{
    if (plan == NULL)
        return;
    free(plan->bases);
    free(plan->want_bytes);
    free(plan->want_at);
    free(plan->wants);
    free(plan->holds);
    free(plan->duty);
    free(plan->takers);
    free(plan->candidates);
    free(plan);
}
