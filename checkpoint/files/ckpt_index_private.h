/* What the parts of the index share: ckpt_index.c names, lists, renames and
 * commits; ckpt_index_retain.c decides what may be deleted and pins;
 * ckpt_index_owner.c knows whose a temporary folder is, and sweeps;
 * ckpt_index_uuid.c says which run it all belongs to. */
#pragma once

#include "checkpoint/files/ckpt_index.h"

#define CKPT_INDEX_TMP_PREFIX ".tmp-"
#define CKPT_INDEX_TRASH_PREFIX ".trash-"
#define CKPT_INDEX_LATEST "LATEST"
#define CKPT_INDEX_OWNER "OWNER"

bool ckpt_index_has_prefix(const char *name, const char *prefix);

typedef enum err (*ckpt_index_entry_fn)(void *arg, const char *run_dir,
                                        const char *name);

/* Call `entry` for every name in RUN/checkpoints; a missing folder is empty. */
enum err ckpt_index_for_each(const char *run_dir, ckpt_index_entry_fn entry,
                             void *arg);

/* Write who is writing into a temporary folder: host, pid, start time of the
 * process, attempt. */
enum err ckpt_index_owner_write(const char *tmp_path, const char *attempt);
/* Before the commit: the folder belongs to the run from now on. */
enum err ckpt_index_owner_remove(const char *tmp_path);

/* A step that replaces a pinned one is pinned for the same reason. */
enum err ckpt_index_pin_inherit(const char *from_dir, const char *to_dir);
