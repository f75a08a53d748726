/* Every byte of a shard against its checksums, going on after damage: all of it
 * is named, not the first alone. */
#pragma once

#include "checkpoint/files/ckpt_read.h"

/* Gets one line of text per damaged block or frame. */
typedef enum err (*ckpt_check_fn)(void *arg, const char *text);

/* The manifest is the one of the reader. Damage is no error; what the file
 * system can't read now, is. */
enum err ckpt_check_shard(struct ckpt_read *reader,
                          const struct ckpt_manifest *manifest, int shard,
                          ckpt_check_fn damaged, void *arg);

/* Gets a line of text for each file in the folder that the manifest does not
 * tell of. */
enum err ckpt_check_others(const char *checkpoint_dir,
                           const struct ckpt_manifest *manifest,
                           ckpt_check_fn other, void *arg);
