/* The parts of loading: which item is which tensor (ckpt_match.c), who reads
 * which block (ckpt_plan.c), and reading and passing on (ckpt_exchange.c).
 *
 * Who reads what: every rank knows what all want and which shards each can
 * open, and comes to the same plan without asking.
 *
 * The unit is a CRC block of an extent. A block that one rank alone wants, and
 * can open, is private: it reads the block itself. Any other wanted block has
 * one reader, which passes it on: of those that want it and hold its shard the
 * one with the fewest bytes to read so far, or any holder if there is none.
 *
 * Wants are kept as intervals of all tensors laid end to end (a flat shard is
 * one or a few, however many tensors it spans) and boxes. */
#pragma once

#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_manifest.h"

struct ckpt_plan;

/* Where the shards are. */
struct ckpt_source {
    const char *dir;
    const bool *holds; /* [shards]: this rank can open it; NULL: all */
};

/* A block, or several private ones in a row. */
struct ckpt_stretch {
    int shard;
    const struct ckpt_extent *extent;
    int64_t first, end; /* elements of the extent, in stored order, from 0 */
    int64_t bytes;
    int reader;
    bool private;
    const int *takers; /* ranks that want it, ascending; lent until the next */
    int taker_count;
};

/* An interval of the tensors laid end to end, or the stretch in which a box lies.
 */
struct ckpt_want {
    int64_t begin, end;
    int32_t rank;
    int32_t box; /* its number; -1: an interval */
};

/* What one rank wants: intervals by where they begin, and boxes. */
struct ckpt_wants {
    struct ckpt_want *list;
    size_t count;
    struct ckpt_part *boxes;
    size_t box_count;
};

/* item_of_tensor as in ckpt_plan_create(), where this is asked of every rank. To
 * be freed after an error too. */
enum err ckpt_plan_wants(const struct ckpt_manifest *manifest,
                         const struct ckpt_item *items,
                         const int *item_of_tensor, int rank,
                         struct ckpt_wants *out);
void ckpt_plan_wants_free(struct ckpt_wants *wants);

/* item_of_tensor[t]: the item of tensor t, -1 where it is ignored. A wanted
 * block that no rank can open is ERR_CHECKPOINT. Manifest is lent. Collective.
 */
enum err ckpt_plan_create(struct comm *comm, const struct ckpt_source *source,
                          const struct ckpt_manifest *manifest,
                          const struct ckpt_item *items,
                          const int *item_of_tensor, struct ckpt_plan **out);
void ckpt_plan_destroy(struct ckpt_plan *plan);

/* The next stretch in file order, on all ranks the same; false: no more. */
bool ckpt_plan_next(struct ckpt_plan *plan, struct ckpt_stretch *out);

/* Reading the payload, each block once, and giving it to all ranks that want it.
 *
 * Shared blocks first, in rounds: each rank takes part in at most
 * CKPT_EXCHANGE_BYTES of them per round. A block travels from its reader down a
 * binary tree of its takers, so that no rank sends one more than twice however
 * many want it. While a round travels the next is read: two rounds are in
 * flight. A round ends with the agreed status of its reads. Then every rank
 * reads what it alone wants, without communication. */
#define CKPT_EXCHANGE_BYTES ((int64_t)4 * CKPT_BLOCK_BYTES)

/* Fill the items' parts. item_of_tensor as in ckpt_plan_create(), memory
 * as in ckpt_load_options. Of *stats all but the time is set. The same code on
 * all ranks; on error the items' data is undefined. Collective. */
enum err ckpt_exchange(struct comm *comm, const struct ckpt_source *source,
                       const struct ckpt_manifest *manifest,
                       const struct ckpt_item *items, const int *item_of_tensor,
                       const struct ckpt_memory *memory,
                       struct ckpt_load_stats *stats);

/* *item_of_tensor (malloc'ed): the item of every tensor, -1 where options
 * ignore it. All differences of names, dtypes and shapes, and parts outside
 * their tensors, make one ERR_CHECKPOINT with a list; they are logged unless
 * `quiet`. `where` is for the error text; options may be NULL. */
enum err ckpt_match(const struct ckpt_manifest *manifest, const char *where,
                    const struct ckpt_load_options *options,
                    const struct ckpt_item *items, int item_count, bool quiet,
                    int **item_of_tensor);
