/* The run lock: RUN/.lock holds {"cluster", "host", "pid", "pid_namespace",
 * "start_time", "boot_id", "job", "attempt", "beat_s"} of the process that owns
 * the run directory (rank 0). "cluster" is Slurm's name of it, "" where there is
 * none; "attempt" grows with every start inside a job: SLURM_RESTART_COUNT *
 * 1000000 + SLURM_STEP_ID. It is made by link(2) of a complete temporary file,
 * so that a half-written lock cannot exist. While it is held, a thread writes
 * RUN/.lock.beat every beat_s seconds (lock_beat.h).
 *
 * Who may take a lock over? Where the owner's process can be seen (same host,
 * boot and PID namespace), the kernel says whether it is there, and that is
 * all. Of any other owner two independent signs are needed:
 *
 * 1. its job cannot run any more: it is this very job with an older attempt, or
 *    Slurm of the same cluster says that it has ended, or does not know a job of
 *    this user (that of another may only be hidden), or its host has been booted
 *    since;
 * 2. its heartbeat has stopped, as seen from here: no change during five
 *    periods, or during one and a half if the file is as old as five by the
 *    clock of the file system.
 *
 * All else is ERR_BUSY, with host, pid, job, cluster and heartbeat in the text
 * and what to do. A lock file that does not hold such a record was damaged by
 * something else and tells nothing about its owner: ERR_BUSY too. Takeovers are
 * serialized by a lock on RUN/.lock.gate, which stays behind. It was made for
 * those alone who may write to the run (0600, or 0660 where the folder is the
 * group's): a reader can open no descriptor that a lock could be held with. Where
 * it is held for half a minute all the same, ERR_IO. Threads and forks do not
 * inherit the lock. (Until 2026-11 it was .lock.guard, readable and locked by
 * flock(2), which any reader could hold for good.) */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"

struct lock;

/* The period of the heartbeat outside tests, in seconds. */
#define LOCK_BEAT_S 2.0

/* Where the owner cannot be seen, this takes up to five of its periods. */
enum err lock_acquire(const char *run_dir, double beat_s, struct lock **out);

/* Has the heartbeat found that the lock is another's, or gone? Reads no file; for
 * any thread. */
bool lock_lost(const struct lock *lock);

/* Before something is written that a second writer must not meet. ERR_BUSY:
 * another process has taken the run over, after this one had stood still for
 * long, or the lock was removed; stays so. Reads the file; where it cannot be
 * read, what the heartbeat saw last counts. For any thread. */
enum err lock_check(struct lock *lock);

/* Ends the heartbeat and removes the lock if it is still ours; NULL is fine. */
void lock_release(struct lock *lock);
