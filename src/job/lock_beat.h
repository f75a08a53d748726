/* The heartbeat of a run lock: a file with a count that a thread of the owner
 * writes again and again, for hosts that see nothing else of it than a shared
 * file system. Whoever watches compares what it reads, with its own clock alone
 * measuring how long nothing has changed. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"

struct lock_beat;

/* One beat. That it fails is not told: the next one may do. */
void lock_beat_once(const char *path, long count);

/* A beat every `beat_s` seconds from now on, as long as `may_beat` says so
 * (called in the thread): the first false ends it for good. */
enum err lock_beat_start(const char *path, double beat_s,
                         bool (*may_beat)(void *), void *arg,
                         struct lock_beat **out);
/* NULL is fine. Waits for a beat that is being written. */
void lock_beat_stop(struct lock_beat *beat);

/* Has the heartbeat of `path` stopped? `clock_fd` is a file of the same file
 * system that this process may change: its time says how old the last beat is.
 * Takes up to five periods. Without a file there is no beat; one that cannot be
 * read has not stopped. *age_s: of the
 * last beat; negative: there is none. */
bool lock_beat_stopped(const char *path, double beat_s, int clock_fd,
                       double *age_s);
