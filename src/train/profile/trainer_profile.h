/* The profile of a run: for the steps of train.profile the timeline is on, and
 * when a range of them has ended rank 0 logs what a step consists of, and every
 * rank writes its trace.
 *
 *   RUN/profile/steps-FIRST-LAST/table.txt     rank 0: the table
 *   RUN/profile/steps-FIRST-LAST/rank-N.json   profile_file.h
 *
 * FIRST and LAST are the steps that were profiled: fewer than asked for where
 * the run was resumed within the range, or has ended there. A step goes from the
 * event epoch_start or batch_start to the end of batch_checkpoint or
 * epoch_checkpoint, so that evaluation and the wait for a save are in it. Steps
 * that are done again after a resume are written again.
 *
 * The bits of the run are the same. The trace is written by a thread, and what
 * fails there is a warning; a range that begins while the one before is still
 * being written is left out, with a warning. Nothing happens, and nothing is
 * taken, without train.profile. */
#pragma once

#include "kernels/kernel_profile.h"
#include "src/base/err.h"
#include "src/train/run/run.h"

/* Spans that a rank keeps of a range: 88 bytes each, touched as they come. */
#define TRAINER_PROFILE_SPANS 262144

/* If there is train.profile: sets run->profile and timeline, has the ranks
 * compare their clocks, and puts a table in place of run->engine.kernels whose ops
 * tell. Before whatever computes or communicates is made. Collective. */
enum err trainer_profile_create(struct run *run);
/* Waits a while for what is being written. */
void trainer_profile_destroy(struct run *run);

/* For the ops of a model; NULL: nobody is told. */
struct kernel_profile *trainer_profile_ops(const struct run *run);

/* Warns of ranges that this attempt will not come to, when training begins. */
void trainer_profile_tell(const struct run *run);

/* Around all that a step does. The second one is collective where a range
 * ends. */
enum err trainer_profile_before_step(struct run *run);
enum err trainer_profile_after_step(struct run *run);
