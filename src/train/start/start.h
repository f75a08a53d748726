/* What a start finds out and settles before anything is computed, each in a file of
 * its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernel_memory.h"
#include "src/base/err.h"
#include "src/comm/comm.h"
#include "src/train/run/run.h"

/* How many threads a rank computes with: the processors of its affinity mask
 * divided by the ranks of this node that have the same mask. So a launcher that
 * binds each rank to its own cores and one that binds nothing both end up with
 * about one thread per processor.
 *
 * requested > 0 is taken as it is: with a warning where it is more than there
 * are processors, ERR_USAGE for more than eight times as many. Collective. */
enum err start_threads(struct comm *comm, int requested, int *threads);

/* Work that rank 0 does for all, which may take longer than any deadline of a
 * wait. While a thread of rank 0 is at it, the others hear several times per
 * deadline that rank 0 lives: so they wait as long as it does, and name it when
 * it has stopped.
 *
 * All ranks return the code of rank 0's work(arg). It must not use comm, and
 * what belongs to a thread, as the use of a device, it has to do itself.
 * Collective. */
enum err start_alone(struct comm *comm, enum err (*work)(void *arg), void *arg);

/* Which GPUs the ranks of a run have: one each, and none is left idle.
 *
 * Every rank uses its device already. Where two ranks of a host have the same
 * one, or a host's ranks see more GPUs than they are, that is ERR_USAGE with
 * the host, the ranks and what to do; if it is `allowed` the log says it
 * instead. text becomes "16 GPUs for 16 ranks", or empty where there are no
 * devices. Collective; the same on all ranks. */
enum err start_devices(struct comm *comm, const struct kernel_memory *memory,
                       bool allowed, char *text, size_t bytes);

/* Are all ranks about to compute the same thing? Ranks on several nodes read
 * their own copies of the configuration, of the data sets and of the libraries;
 * where these differ, bits would depend on where a slot lands.
 *
 * Arithmetic, the content of the data sets, and every setting that is not
 * SETTING_LOCAL (the paths of the data sets, hardware.*, log.level) must be
 * those of rank 0; the error names what differs and where. Processors and their
 * kernel sets may differ. Collective, after the data sets are open. */
enum err start_same(struct run *run);

/* Are the files of a run's data sets right? The ranks share this: where all of
 * them read one index.json (the same path, inode and times), each shard is
 * looked at once; where nodes have copies of their own, once on each node; and
 * where the ranks of a node have not one copy either, by every rank that has
 * one of its own. So every copy is looked at.
 *
 * With data.verify = "auto" the files are read and checked where no rank has to
 * read more than this: a second or so. */
#define START_FILES_BYTES ((int64_t)256 << 20)

/* All shards are there and as long as they should be, and as data.verify says
 * they have their checksums. Collective, with data sets and settings that are
 * the same on all ranks. The ranks meet every second meanwhile; a signal to any
 * of them ends it with ERR_OK, and the flag of src/job/stop.h then ends the run
 * before its first step. Every few seconds it touches metrics.jsonl, which the
 * launch script watches. */
enum err start_files(struct run *run);

/* What has changed in the settings since the attempt before.
 *
 * Compares with the run directory's config.cfg, which is to be overwritten
 * next: each setting that differs is logged with both values, as a warning if
 * it decides the result, and all of them are the ledger's event "settings". A
 * learning rate that goes on at another value than it would have is a warning
 * with the settings that keep it, as is another evaluation set than the
 * checkpoint's, under whatever name. Rank 0 alone, after the state is restored.
 * A config.cfg that can't be read is a warning; only the ledger can fail. */
enum err start_changes_tell(const struct run *run);

/* Who may see a run: run.mode and run.group. Everything below the run directory
 * is made with the process's umask, and belongs to the group of its folder.
 *
 * ERR_USAGE where run.mode or run.group cannot be meant. */
enum err train_access_check(const struct train_settings *settings);
/* On every rank, before anything of the run is made, but after the folders
 * above it: the umask that leaves run.mode; without one it stays as it is. */
void train_access_mask(const struct train_settings *settings);
/* Gives the run directory, which must be there, run.mode and run.group and has
 * all that is made in it take the group over. ERR_USAGE if that is refused. So
 * it does with the folders that an earlier start has made in it; what is
 * refused there is a warning. */
enum err train_access_give(const struct train_settings *settings);
