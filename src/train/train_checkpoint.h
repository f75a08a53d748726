/* Listener: resume, and commit checkpoints.
 *
 * before_load restores the newest good checkpoint; batch_checkpoint saves every
 * checkpoint.interval ("auto": see train_interval.h), at an agreed stop, and at
 * the last step, and looks how the save in flight is doing. With
 * checkpoint.async training waits for the copy of the state only, and the save
 * is written and committed while the next step computes; a save that is due
 * while another is in flight waits for that one. A failed save is counted,
 * recorded and training goes on, until checkpoint.failures_max in a row end the
 * run with the last one's error. At a stop and at the last step the save is
 * awaited, and tried twice. The state in the manifest is the run's position and
 * what must not change in a run: a resume with another model, data set, batch,
 * seed or slot count is refused, naming the setting; one with other arithmetic
 * (backend, its version; a GPU's libraries) too, unless
 * parallel.allow_arithmetic_change is set or determinism is "fast". */
#ifndef TESSERA_TRAIN_TRAIN_CHECKPOINT_H
#define TESSERA_TRAIN_TRAIN_CHECKPOINT_H

#include "src/base/err.h"
#include "src/job/lock.h"
#include "src/train/train_interval.h"
#include "src/train/trainer.h"

struct train_checkpoint;

/* Lends both, which may be NULL: `interval` is told of steps and saves; with
 * `lock` (rank 0's) nothing is committed to a run that another has taken over. */
enum err train_checkpoint_create(struct train_interval *interval,
                                 struct lock *lock,
                                 struct train_checkpoint **out);
/* false: the saver's thread hangs in a write, and nothing of the run may be freed
 * (ckpt_saver_destroy()). */
bool train_checkpoint_destroy(struct train_checkpoint *checkpoint);
/* Instead, where the ranks are not together: the save in flight commits nothing
 * and does not look at the lock any more. NULL is fine. */
void train_checkpoint_leave(struct train_checkpoint *checkpoint);
/* Must come after evaluation in the table, so that a step is evaluated before
 * it is the last one. */
struct listener train_checkpoint_listener(struct train_checkpoint *checkpoint);

#endif
