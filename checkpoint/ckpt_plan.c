/* Decides for each block of a checkpoint who reads it and who gets it. Nothing
 * is read here: ckpt_exchange.c carries the plan out.
 *
 * No rank is told what to do. All know what all want, which is small as
 * intervals, and all walk the blocks once, in the same order and with the same
 * rule, so that they come to the same plan; it is never stored, for a large
 * checkpoint has millions of blocks. Of each extent one asks who wants it, so
 * the wants of all ranks lie sorted by where they begin, boxes as the stretch
 * from their first element to their last, and those of an extent are found by
 * bisection: an extent costs its takers, whatever the ranks. */
#include "checkpoint/ckpt_load_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt_place.h"
#include "checkpoint/files/ckpt_holders.h"
#include "src/base/array.h"
#include "src/base/new.h"

#define NO_BOX (-1)

struct ckpt_plan {
    const struct ckpt_manifest *manifest;
    int ranks;
    int64_t *bases;          /* [tensors + 1]: where each begins, end to end */
    struct ckpt_want *wants; /* of all ranks, by where they begin */
    int64_t *reach;          /* [wants]: the largest end up to this one */
    size_t want_count;
    struct ckpt_part *boxes;
    struct ckpt_holders holders;
    int64_t *duty; /* [ranks]: bytes to read so far */
    int *takers;   /* [ranks] */
    /* the next block */
    int shard, extent;
    int64_t block;
};

/* --- what all want --- */

/* Adjacent intervals become one. */
static void add_want(struct ckpt_wants *wants, int rank, int64_t base,
                     const struct ckpt_tensor *tensor,
                     const struct ckpt_item *item)
{
    struct ckpt_part part = item->part;
    struct ckpt_want want = { .rank = rank, .box = NO_BOX };
    ckpt_part_normalise(&part, tensor->dims, tensor->shape);
    struct ckpt_part_runs runs =
        ckpt_part_runs(&part, tensor->dims, tensor->shape);
    if (runs.count == 0)
        return;
    want.begin = base + ckpt_part_run_begin(&runs, 0);
    want.end =
        base + ckpt_part_run_begin(&runs, runs.count - 1) + runs.elements;
    struct ckpt_want *last =
        wants->count > 0 ? &wants->list[wants->count - 1] : NULL;
    if (part.boxed) {
        want.box = (int)wants->box_count;
        wants->boxes[wants->box_count++] = part;
    } else if (last != NULL && last->box == NO_BOX && last->end == want.begin) {
        last->end = want.end;
        return;
    }
    wants->list[wants->count++] = want;
}

enum err ckpt_plan_wants(const struct ckpt_manifest *manifest,
                         const struct ckpt_item *items,
                         const int *item_of_tensor, int rank,
                         struct ckpt_wants *out)
{
    size_t room = (size_t)manifest->tensor_count + 1;
    int64_t base = 0;
    *out = (struct ckpt_wants){ 0 };
    TRY(new_room(&out->list, room));
    TRY(new_room(&out->boxes, room));
    for (int t = 0; t < manifest->tensor_count; t++) {
        const struct ckpt_tensor *tensor = &manifest->tensors[t];
        if (item_of_tensor[t] >= 0)
            add_want(out, rank, base, tensor, &items[item_of_tensor[t]]);
        base += tensor->elements;
    }
    return ERR_OK;
}

void ckpt_plan_wants_free(struct ckpt_wants *wants)
{
    free(wants->list);
    free(wants->boxes);
    *wants = (struct ckpt_wants){ 0 };
}

static int by_begin(const void *a, const void *b)
{
    const struct ckpt_want *x = a, *y = b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1)
                                : x->rank - y->rank;
}

/* Sorted; boxes_of: bytes of boxes of each rank. */
static void order_wants(struct ckpt_plan *plan, size_t *boxes_of)
{
    size_t before = 0;
    int64_t reach = 0;
    for (int r = 0; r < plan->ranks; r++) {
        size_t count = boxes_of[r] / sizeof *plan->boxes;
        boxes_of[r] = before;
        before += count;
    }
    for (size_t i = 0; i < plan->want_count; i++)
        if (plan->wants[i].box != NO_BOX)
            plan->wants[i].box += (int32_t)boxes_of[plan->wants[i].rank];
    qsort(plan->wants, plan->want_count, sizeof *plan->wants, by_begin);
    for (size_t i = 0; i < plan->want_count; i++) {
        reach = plan->wants[i].end > reach ? plan->wants[i].end : reach;
        plan->reach[i] = reach;
    }
}

static enum err gather_wants(struct ckpt_plan *plan, struct comm *comm,
                             const struct ckpt_item *items,
                             const int *item_of_tensor)
{
    enum err rc = ERR_OK;
    struct ckpt_wants own;
    size_t *bytes_of = NULL;
    rc = ckpt_plan_wants(plan->manifest, items, item_of_tensor, comm_rank(comm),
                         &own);
    if (rc == ERR_OK)
        rc = new_zeroed(&bytes_of, (size_t)plan->ranks);
    TRY_OUT(comm_agree(comm, rc));
    TRY_OUT(comm_gather_parts(comm, own.list, own.count * sizeof *own.list,
                              &plan->wants, bytes_of));
    for (int r = 0; r < plan->ranks; r++)
        plan->want_count += bytes_of[r] / sizeof *plan->wants;
    TRY_OUT(comm_gather_parts(comm, own.boxes,
                              own.box_count * sizeof *own.boxes, &plan->boxes,
                              bytes_of));
    TRY_OUT(comm_agree(comm, new_room(&plan->reach, plan->want_count + 1)));
    order_wants(plan, bytes_of);
out:
    ckpt_plan_wants_free(&own);
    free(bytes_of);
    return rc;
}

/* The first want that anything up to itself makes reach beyond `at`. */
static size_t first_want(const struct ckpt_plan *plan, int64_t at)
{
    size_t low = 0, high = plan->want_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (plan->reach[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* --- who reads --- */

static const struct ckpt_extent *current_extent(const struct ckpt_plan *plan)
{
    return &plan->manifest->shards[plan->shard].extents[plan->extent];
}

/* Whether the want has any of the extent's elements number [first, end). */
static bool touches(const struct ckpt_plan *plan,
                    const struct ckpt_extent *extent, int64_t first,
                    int64_t end, const struct ckpt_want *want)
{
    const struct ckpt_tensor *tensor = &plan->manifest->tensors[extent->tensor];
    int64_t base = plan->bases[extent->tensor];
    struct ckpt_part part = { .begin =
                                  want->begin > base ? want->begin - base : 0,
                              .end = want->end - base };
    if (part.end > tensor->elements)
        part.end = tensor->elements;
    return ckpt_place_touches(
        tensor->dims, tensor->shape, &extent->part, first, end,
        want->box == NO_BOX ? &part : &plan->boxes[want->box]);
}

/* Who wants elements [first, end) of the extent, ascending; returns how many. Of
 * a box all is looked at that wants something between its first and its last
 * element. */
static int find_takers(struct ckpt_plan *plan, const struct ckpt_extent *extent,
                       int64_t first, int64_t end)
{
    const struct ckpt_tensor *tensor = &plan->manifest->tensors[extent->tensor];
    struct ckpt_part_runs runs =
        ckpt_part_runs(&extent->part, tensor->dims, tensor->shape);
    int64_t base = plan->bases[extent->tensor];
    int64_t from = base + ckpt_part_run_begin(&runs, 0);
    int64_t to =
        base + ckpt_part_run_begin(&runs, runs.count - 1) + runs.elements;
    int count = 0;
    if (!extent->part.boxed) {
        to = from + end;
        from += first;
    }
    for (size_t i = first_want(plan, from);
         i < plan->want_count && plan->wants[i].begin < to; i++)
        if (plan->wants[i].end > from &&
            touches(plan, extent, first, end, &plan->wants[i]))
            plan->takers[count++] = plan->wants[i].rank;
    if (count > 1)
        qsort(plan->takers, (size_t)count, sizeof *plan->takers,
              array_order_i32);
    return count;
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
    int64_t end = first + bytes / size;
    *out = (struct ckpt_stretch){ .shard = plan->shard,
                                  .extent = extent,
                                  .first = first,
                                  .end = end,
                                  .bytes = bytes,
                                  .reader = -1,
                                  .takers = plan->takers,
                                  .taker_count =
                                      find_takers(plan, extent, first, end) };
    out->private =
        out->taker_count == 1 &&
        ckpt_holders_has(&plan->holders, plan->shard, plan->takers[0]);
    return out->taker_count > 0;
}

/* The one with the least duty of `count` ranks that hold the shard; -1: none
 * does. */
static int least_busy(const struct ckpt_plan *plan, int shard, const int *ranks,
                      int count)
{
    int best = -1;
    for (int i = 0; i < count; i++)
        if (ckpt_holders_has(&plan->holders, shard, ranks[i]) &&
            (best < 0 || plan->duty[ranks[i]] < plan->duty[best]))
            best = ranks[i];
    return best;
}

/* One of those that want the block, or of all where none of them has the shard. */
static int choose_reader(const struct ckpt_plan *plan, int shard,
                         const struct ckpt_stretch *block)
{
    const struct ckpt_holders *h = &plan->holders;
    int reader = least_busy(plan, shard, block->takers, block->taker_count);
    if (reader < 0)
        reader = least_busy(plan, shard, h->ranks + h->first[shard],
                            (int)(h->first[shard + 1] - h->first[shard]));
    assert(reader >= 0); /* check_holders() */
    return reader;
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

bool ckpt_plan_next(struct ckpt_plan *plan, struct ckpt_stretch *out)
{
    for (; plan->shard < plan->manifest->shard_count; plan->shard++) {
        const struct ckpt_shard *shard = &plan->manifest->shards[plan->shard];
        for (; plan->extent < shard->extent_count; plan->extent++) {
            int64_t blocks =
                ckpt_manifest_block_count(shard->extents[plan->extent].bytes);
            while (plan->block < blocks) {
                if (!look_at(plan, plan->block++, out))
                    continue;
                out->reader = choose_reader(plan, plan->shard, out);
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
    for (int s = 0; s < manifest->shard_count; s++) {
        const struct ckpt_shard *shard = &manifest->shards[s];
        bool lost = ckpt_holders_lowest(&plan->holders, s) < 0;
        for (int e = 0; e < shard->extent_count && lost; e++)
            if (find_takers(plan, &shard->extents[e], 0,
                            ckpt_part_elements(&shard->extents[e].part,
                                               shard->extents[e].dims)) > 0)
                return err_set(ERR_CHECKPOINT,
                               "%.300s/%s: shard is missing on every node",
                               source->dir, shard->file);
    }
    return ERR_OK;
}

static enum err allocate(struct ckpt_plan *plan)
{
    size_t ranks = (size_t)plan->ranks;
    size_t tensors = (size_t)plan->manifest->tensor_count;
    TRY(new_zeroed(&plan->bases, tensors + 1));
    TRY(new_zeroed(&plan->duty, ranks));
    TRY(new_zeroed(&plan->takers, ranks));
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
    TRY_OUT(ckpt_holders_gather(comm, source->holds, manifest->shard_count,
                                &plan->holders));
    TRY_OUT(check_holders(plan, source));
out:
    return new_or_none(rc, plan, out, ckpt_plan_destroy);
}

void ckpt_plan_destroy(struct ckpt_plan *plan)
{
    if (plan == NULL)
        return;
    free(plan->bases);
    free(plan->wants);
    free(plan->reach);
    free(plan->boxes);
    ckpt_holders_free(&plan->holders);
    free(plan->duty);
    free(plan->takers);
    free(plan);
}
