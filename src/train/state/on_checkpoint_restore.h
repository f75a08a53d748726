/* How a start finds its state: the run's newest good checkpoint; at the first
 * start that of another run, where checkpoint.load names one; or nothing, and
 * the run begins. */
#pragma once

#include "checkpoint/ckpt.h"
#include "src/base/err.h"
#include "src/train/loop/trainer.h"

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
enum err on_checkpoint_restore(struct trainer *trainer,
                               const struct on_checkpoint_from *from,
                               struct on_checkpoint_restored *out);
