/* What this process may still take, and has taken.
 *
 * Memory that is not there is not refused on Linux but ends in a kill without a
 * word, so it must be asked for before. A job is not given the machine's but
 * its cgroup's: Slurm limits by that of the job, of the step or of the task,
 * and each one around it may have a smaller limit. Address space is another
 * limit (ulimit -v and -d), at which calls do fail. */
#pragma once

#include <stddef.h>

/* Bytes that can be taken without swapping and without being killed: what the
 * kernel counts as available, and what every memory cgroup that this process is
 * in (v1 and v2) has left, page cache counting as free. `root` is before the
 * paths that are read, "" on this machine. SIZE_MAX: not known. */
size_t memory_available(const char *root);

/* Bytes that this process may still map; SIZE_MAX: no limit. */
size_t memory_address_space(void);

/* From here on all threads share the first one's heap: each other one would
 * have its own and reserve 64 MiB of address space for it, out of what is
 * needed elsewhere, wherever it can. For processes with such a limit. */
void memory_share_heap(void);

/* Its resident set, now and at its largest; 0: not known. */
size_t memory_resident(void);
size_t memory_peak(void);
