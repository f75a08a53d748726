/* Algorithms that decide bits and speed (kernels->measure): chosen once per
 * run, before its first step, by what rank 0 measures. RUN/choices and every
 * checkpoint have them as text, and all ranks and attempts take them from
 * there: first from the checkpoint that was loaded, else from RUN/choices. */
#pragma once

#include "src/base/err.h"
#include "src/train/loop/trainer.h"

/* After the load, before the first step. Without a text the first microbatch is
 * computed and given up, so that ops know what they will be asked for. Nothing
 * happens where the table has nothing to choose. Sets trainer->choices.
 * Collective. */
enum err trainer_choices_settle(struct trainer *trainer);
