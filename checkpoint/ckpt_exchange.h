/* Reading the payload of a checkpoint, each block once, and giving it to all
 * ranks that want it (ckpt_plan.h says who does what).
 *
 * Shared blocks first, in rounds: each rank takes part in at most
 * CKPT_EXCHANGE_BYTES of them per round. A block travels from its reader down a
 * binary tree of its takers, so that no rank sends one more than twice however
 * many want it. While a round travels the next is read: two rounds are in
 * flight. A round ends with the agreed status of its reads. Then every rank
 * reads what it alone wants, without communication. */
#pragma once

#include "checkpoint/ckpt.h"
#include "checkpoint/ckpt_plan.h"

#define CKPT_EXCHANGE_BYTES ((int64_t)4 * CKPT_BLOCK_BYTES)

/* Fill the items' parts. item_of_tensor as in ckpt_plan_create(), memory
 * as in ckpt_load_options. Of *stats all
 * but the time is set. The same code on all ranks; on error the items' data is
 * undefined. Collective. */
enum err ckpt_exchange(struct comm *comm, const struct ckpt_source *source,
                       const struct ckpt_manifest *manifest,
                       const struct ckpt_item *items, const int *item_of_tensor,
                       const struct ckpt_memory *memory,
                       struct ckpt_load_stats *stats);
