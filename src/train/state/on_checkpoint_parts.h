/* The parts of the listener that saves and restores, each in a file of its own. */
#pragma once

#include "checkpoint/ckpt.h"
#include "src/base/err.h"
#include "src/formats/weights_ckpt_config.h"
#include "src/train/run/run.h"

/* What a run's checkpoints hold: the replica's tensors, and the tokenizer of
 * its data, byte for byte, as the tensor "data/tokenizer" (u8), so that whoever
 * has a checkpoint can read and write its tokens. Rank 0 gives the tokenizer; a
 * load leaves it alone, since the data set has it, too. */

#define ON_CHECKPOINT_TOKENIZER WEIGHTS_CKPT_TOKENIZER

struct on_checkpoint_items;

/* Borrows the trainer, whose replica and data are there. Collective. */
enum err on_checkpoint_items_create(struct run *run,
                                    struct on_checkpoint_items **out);
/* After the saver. NULL is fine. */
void on_checkpoint_items_destroy(struct on_checkpoint_items *items);

/* Lent. */
const struct ckpt_item *
on_checkpoint_items_list(const struct on_checkpoint_items *items, int *count);

/* A checkpoint's way between a device and the host: copies on a stream of their
 * own, beside the training. They begin when the step's work is done, and the
 * next update waits for them (run->engine.copied), both on the device. */

struct on_checkpoint_copies;

/* *out is NULL where the host reaches tensors: the functions below take that.
 * The trainer is borrowed. */
enum err on_checkpoint_copies_create(struct run *run,
                                     struct on_checkpoint_copies **out);
/* After the saver. */
void on_checkpoint_copies_destroy(struct on_checkpoint_copies *copies);

/* For the options of ckpt.h; lent; NULL: the program's memory. */
const struct ckpt_memory *
on_checkpoint_copies_memory(const struct on_checkpoint_copies *copies);

/* Before and after the start of a save. */
enum err on_checkpoint_copies_begin(struct on_checkpoint_copies *copies);
enum err on_checkpoint_copies_end(struct on_checkpoint_copies *copies);

/* How a start finds its state: the run's newest good checkpoint; at the first
 * start that of another run, where checkpoint.load names one; or nothing, and
 * the run begins. */

struct on_checkpoint_from {
    const struct ckpt_item *items;
    int count;
    const struct ckpt_memory *memory; /* as in ckpt_load_options */
    const char *local_dir;            /* likewise */
    const char *local_key;
};

struct on_checkpoint_restored {
    int64_t committed;   /* step that is in the run directory; -1: none */
    json_t *arithmetics; /* all that the run has computed with, in order */
};

/* Collective. */
enum err on_checkpoint_restore(struct run *run,
                               const struct on_checkpoint_from *from,
                               struct on_checkpoint_restored *out);
