/* Which item of the caller is which tensor of a checkpoint. */
#pragma once

#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_manifest.h"

/* *item_of_tensor (malloc'ed): the item of every tensor, -1 where options
 * ignore it. All differences of names, dtypes and shapes, and parts outside
 * their tensors, make one ERR_CHECKPOINT with a list; they are logged unless
 * `quiet`. `where` is for the error text; options may be NULL. */
enum err ckpt_match(const struct ckpt_manifest *manifest, const char *where,
                    const struct ckpt_load_options *options,
                    const struct ckpt_item *items, int item_count, bool quiet,
                    int **item_of_tensor);
