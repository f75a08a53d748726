/* How often to save when checkpoint.interval is "auto": the interval that loses
 * the least time (checkpoint/ckpt_interval.h) by what the attempt's own saves
 * cost and by how often the ledger's nodes have failed. Lives on rank 0 alone;
 * the others hear that a save is due in the exchange of the step.
 *
 * The ledger is read once, when an attempt starts. The first save is due after
 * ON_CHECKPOINT_INTERVAL_FIRST_STEPS: late enough that the time of a step is
 * known, early enough that the cost of a save is known almost from the start
 * (and a place that cannot be written to, too). With each commit the interval
 * is made anew from the medians of the newest saves and steps. It is at
 * least 1.1 times what a save takes from its start to its end, and long enough
 * that training waits for saves a tenth of the time at most: where the formula
 * asks for more, too few failures were seen to believe it. Times decide when
 * saves are made, never what is computed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/ckpt.h"
#include "src/base/err.h"

#define ON_CHECKPOINT_INTERVAL_FIRST_STEPS 5

struct on_checkpoint_interval;

/* A ledger that cannot be read costs a warning, and counts as one without
 * failures. */
enum err on_checkpoint_interval_create(const char *run_dir,
                                       struct on_checkpoint_interval **out);

/* Without an interval (NULL) these do nothing, and no save is due. */
void on_checkpoint_interval_destroy(struct on_checkpoint_interval *interval);

/* Training begins after so many steps. */
void on_checkpoint_interval_begin(struct on_checkpoint_interval *interval,
                                  int64_t step);

/* A step took so long. */
void on_checkpoint_interval_step(struct on_checkpoint_interval *interval,
                                 double step_s);

/* Never while a save is in flight: so none has to wait for another. */
bool on_checkpoint_interval_due(const struct on_checkpoint_interval *interval,
                                int64_t step);

void on_checkpoint_interval_started(struct on_checkpoint_interval *interval);

/* A save has ended, for which training waited `stall_s` at its start, and if it
 * was not staged to its end. A commit chooses the interval anew, which is
 * logged when it is another by more than a tenth. */
void on_checkpoint_interval_ended(struct on_checkpoint_interval *interval,
                                  const struct ckpt_progress *progress,
                                  double stall_s);
