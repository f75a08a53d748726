/* Writing one rank's shard: HDF5 frame, payload past the library, checksums,
 * and the order of syncs and renames that makes it durable. */
#pragma once

#include "checkpoint/files/ckpt_hdf5.h"
#include "checkpoint/files/ckpt_manifest.h"

/* Where there are more shards, each so many share a folder shards/NNN. */
#define CKPT_SHARD_FOLDER_FILES 1024

/* "shard-00001-of-00002.h5", or below shards/NNN/ when there are more than
 * folder_files of them. */
void ckpt_shard_name(int number, int count, int folder_files,
                     char name[CKPT_FILE_BYTES]);

/* For a new folder of shards: ERR_FULL unless there is room for so many bytes of
 * payload (`what` is for the text). Asks a Lustre file system to keep each file of
 * it on as many servers as there are ranks that write one. */
enum err ckpt_shard_folder(const char *dir, const char *what, int64_t bytes,
                           int writers);

/* Gives bytes [at, at + bytes) of an item's part, at most CKPT_SHARD_FEED_BYTES:
 * item after item in the order of the file, each from its first byte to its
 * last. */
#define CKPT_SHARD_FEED_BYTES ((int64_t)CKPT_BLOCK_BYTES)
typedef enum err (*ckpt_shard_feed)(void *arg, int item, int64_t at,
                                    int64_t bytes, void *out);

/* Write `file` (a name from ckpt_shard_name(), whose folder is made) into the
 * checkpoint's folder and fill *shard, which the caller frees with
 * ckpt_manifest_free_shard(), also after a failure. Its contents are durable then,
 * and it has its size: nobody need look again. Its name is when its folder has been synced, which
 * is left to whoever completes the checkpoint (ckpt_view.h).
 *
 * May be called from one background thread, while nobody else uses HDF5.
 * Items of 1 MiB and more whose data is aligned to 4 KiB are written from where
 * it lies, all else is copied to two buffers of 8 MiB; the order in the file is
 * that of ckpt_hdf5.h. With a `feed` the items' data is not looked at, but asked
 * for as it is written: it need be nowhere in memory whole. */
enum err ckpt_shard_write(const char *dir, const char *file,
                          const struct ckpt_hdf5_identity *identity,
                          const struct ckpt_item *items, int item_count,
                          ckpt_shard_feed feed, void *feed_arg,
                          struct ckpt_shard *shard);

/* The same by several ranks of one node. The one that makes the file has the
 * segments of all, each rank's in the order of the items, and fills the shard;
 * bytes of others pass through no memory of it. */
struct ckpt_share {
    struct ckpt_segment *segments;
    int count;
    void *arg;
    /* The file is there, `bytes` long, and segments know where they are: others
     * may write now. */
    enum err (*begun)(void *arg, int64_t bytes);
    /* Others have written: the sums of their segments go where those of all lie
     * in the order of segments, sums_of[i] is where those of number i begin. */
    enum err (*ended)(void *arg, uint32_t *sums, const int64_t *sums_of);
};
enum err ckpt_shard_write_shared(const char *dir, const char *file,
                                 const struct ckpt_hdf5_identity *identity,
                                 const struct ckpt_item *items,
                                 const struct ckpt_share *share,
                                 struct ckpt_shard *shard);

/* What another does: write these segments, all its own, into the file that was
 * begun. Gives their sums, room for which is there. */
enum err ckpt_shard_join(const char *dir, const char *file, int64_t bytes,
                         const struct ckpt_item *items,
                         struct ckpt_segment *segments, int count,
                         uint32_t *sums);

/* Copy this shard from one checkpoint's folder into another's, byte for byte,
 * durable as one that is written, and every byte verified while it passes. ERR_CHECKPOINT: the one in
 * from_dir is damaged or can't be read. A failure leaves no file. */
enum err ckpt_shard_copy(const char *from_dir, const char *to_dir,
                         const struct ckpt_shard *shard);
