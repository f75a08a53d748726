/* Are the files of a run's data sets right? The ranks share this: where all of
 * them read one index.json (the same path, inode and times), each shard is
 * looked at once; where nodes have copies of their own, once on each node; and
 * where the ranks of a node have not one copy either, by every rank that has
 * one of its own. So every copy is looked at. */
#pragma once

#include "src/base/err.h"
#include "src/train/loop/trainer.h"

/* With data.verify = "auto" the files are read and checked where no rank has to
 * read more than this: a second or so. */
#define START_FILES_BYTES ((int64_t)256 << 20)

/* All shards are there and as long as they should be, and as data.verify says
 * they have their checksums. Collective, with data sets and settings that are
 * the same on all ranks. The ranks meet every second meanwhile; a signal to any
 * of them ends it with ERR_OK, and the flag of src/job/stop.h then ends the run
 * before its first step. Every few seconds it touches metrics.jsonl, which the
 * launch script watches. */
enum err start_files(struct trainer *trainer);
