/* The run lock: RUN/.lock holds {"host", "pid", "start_time", "boot_id", "job",
 * "attempt"} of the process that owns the run directory (rank 0). "attempt"
 * grows with every start inside a job: SLURM_RESTART_COUNT * 1000000 +
 * SLURM_STEP_ID.
 *
 * It is made by link(2) of a complete temporary file, so that a half-written
 * lock cannot exist. An owner on this host that is dead (no such pid, or
 * another start time in /proc/PID/stat, or another boot id) loses the lock at
 * once. An owner on another host is dead if its Slurm job is not running any
 * more (squeue) or is this very job with an older attempt; else ERR_BUSY, with
 * host, pid and job in the text and what to do. A lock file that does not hold
 * such a record was damaged by something else and tells nothing about its
 * owner: ERR_BUSY too. Takeovers are serialized by flock(2) on RUN/.lock.guard,
 * which stays behind. Threads and forks do not inherit the lock. */
#ifndef TESSERA_JOB_LOCK_H
#define TESSERA_JOB_LOCK_H

#include "src/base/err.h"

struct lock;

enum err lock_acquire(const char *run_dir, struct lock **out);
/* Removes the lock if it is still ours; NULL is fine. */
void lock_release(struct lock *lock);

#endif
