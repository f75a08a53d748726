/* Verified streaming reads: no byte reaches the caller whose block CRC was not
 * checked, and no shard is trusted before its size and frame CRC were. Two
 * buffers of 8 MiB, one open shard and one thread, however large the checkpoint
 * is: past the page cache where the file system takes that, and ahead of a
 * caller who goes through a shard in the order of the file, also where he reads
 * short extents elsewhere on the way. */
#pragma once

#include "checkpoint/files/ckpt_manifest.h"

struct ckpt_read;

/* Gets verified bytes in ascending order; `arg` is the caller's. */
typedef enum err (*ckpt_read_sink)(void *arg, const void *data, size_t bytes);

/* The manifest is lent and must outlive the reader. */
enum err ckpt_read_create(const char *checkpoint_dir,
                          const struct ckpt_manifest *manifest,
                          struct ckpt_read **out);
void ckpt_read_destroy(struct ckpt_read *reader);

/* Stream elements [begin, end) of this extent of the shard, counted from 0 in stored order, to
 * the sink; every block touched is read whole and checked. sink NULL: only
 * check. Damage is ERR_CHECKPOINT. */
enum err ckpt_read_extent(struct ckpt_read *reader, int shard,
                          const struct ckpt_extent *extent, int64_t begin,
                          int64_t end, ckpt_read_sink sink, void *arg);

/* Gets one line of text per damaged block or frame. */
typedef enum err (*ckpt_read_damage)(void *arg, const char *text);

/* Check the frame of a shard and all its payload, to the first damage; or, with
 * `damage`, to the end: then it is no error, but what the file system can't read
 * now is. */
enum err ckpt_read_all(struct ckpt_read *reader, int shard,
                       ckpt_read_damage damage, void *arg);
