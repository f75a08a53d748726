/* A checkpoint that no run has saved: made of tensors that are given piece by
 * piece, by one process. */
#pragma once

#include <jansson.h>

#include "checkpoint/files/ckpt_shard.h"

/* Write the items, each whole, into the new folder `dir` as a checkpoint of one
 * shard. What is in the folder when it fails is of no use. Memory is that of a
 * few blocks. */
enum err ckpt_write(const char *dir, int64_t step, const char *attempt,
                    const json_t *state, const struct ckpt_item *items,
                    int item_count, ckpt_shard_feed feed, void *feed_arg);
