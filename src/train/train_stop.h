/* Listener: when to stop. At the end of every step all ranks agree on whether a
 * signal has asked one of them to stop, whether max_duration is reached,
 * which intervals in seconds have passed on rank 0's clock, whether a save is
 * due by rank 0's choice (train_interval.h), whether too many saves have
 * failed, which the ranks see at different steps, and whether another process
 * has taken the run over, which ends all of them with ERR_BUSY. One exchange of
 * seven integers.
 *
 * In a job with a time limit rank 0 asks to stop by itself, as by SIGUSR1, when
 * what is left is less than 1.5 of the longest of the last 64 steps (with
 * evaluation and what a step waits for a save) and 2 of the longest save, and at
 * least half a minute. So a run whose steps or saves take longer than the signal
 * of its job's script leads loses nothing either. */
#ifndef TESSERA_TRAIN_TRAIN_STOP_H
#define TESSERA_TRAIN_TRAIN_STOP_H

#include "src/base/err.h"
#include "src/job/lock.h"
#include "src/train/train_interval.h"
#include "src/train/trainer.h"

struct train_stop;

/* Lends `interval` and `lock`, which may be NULL and are asked on rank 0 alone.
 */
enum err train_stop_create(struct train_interval *interval, struct lock *lock,
                           struct train_stop **out);
void train_stop_destroy(struct train_stop *stop);
/* Must be the first listener, so that the others see its decision. */
struct listener train_stop_listener(struct train_stop *stop);

#endif
