/* A checkpoint's way between a device and the host: copies on a stream of their
 * own, beside the training. They begin when the step's work is done, and the
 * next update waits for them (trainer->copied), both on the device. */
#pragma once

#include "checkpoint/ckpt.h"
#include "src/base/err.h"
#include "src/train/loop/trainer.h"

struct on_checkpoint_copies;

/* *out is NULL where the host reaches tensors: the functions below take that.
 * The trainer is borrowed. */
enum err on_checkpoint_copies_create(struct trainer *trainer,
                                     struct on_checkpoint_copies **out);
/* After the saver. */
void on_checkpoint_copies_destroy(struct on_checkpoint_copies *copies);

/* For the options of ckpt.h; lent; NULL: the program's memory. */
const struct ckpt_memory *
on_checkpoint_copies_memory(const struct on_checkpoint_copies *copies);

/* Before and after the start of a save. */
enum err on_checkpoint_copies_begin(struct on_checkpoint_copies *copies);
enum err on_checkpoint_copies_end(struct on_checkpoint_copies *copies);
