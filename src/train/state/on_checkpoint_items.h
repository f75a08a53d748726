/* What a run's checkpoints hold: the replica's tensors, and the tokenizer of
 * its data, byte for byte, as the tensor "data/tokenizer" (u8), so that whoever
 * has a checkpoint can read and write its tokens. Rank 0 gives the tokenizer; a
 * load leaves it alone, since the data set has it, too. */
#pragma once

#include "checkpoint/ckpt.h"
#include "src/base/err.h"
#include "src/train/loop/trainer.h"
#include "src/formats/weights_ckpt_config.h"

#define ON_CHECKPOINT_TOKENIZER WEIGHTS_CKPT_TOKENIZER

struct on_checkpoint_items;

/* Borrows the trainer, whose replica and data are there. Collective. */
enum err on_checkpoint_items_create(struct trainer *trainer,
                                    struct on_checkpoint_items **out);
/* After the saver. NULL is fine. */
void on_checkpoint_items_destroy(struct on_checkpoint_items *items);

/* Lent. */
const struct ckpt_item *
on_checkpoint_items_list(const struct on_checkpoint_items *items, int *count);
