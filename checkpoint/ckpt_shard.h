/* Writing one rank's shard: HDF5 frame, payload past the library, checksums,
 * and the order of syncs and renames that makes it durable. */
#ifndef TESSERA_CHECKPOINT_CKPT_SHARD_H
#define TESSERA_CHECKPOINT_CKPT_SHARD_H

#include "checkpoint/ckpt_hdf5.h"
#include "checkpoint/ckpt_manifest.h"

/* Write `file` (a name) into the folder and fill *shard, which the caller frees
 * with ckpt_manifest_free_shard(), also after a failure. */
enum err ckpt_shard_write(const char *dir, const char *file,
                          const struct ckpt_hdf5_identity *identity,
                          const struct ckpt_item *items, int item_count,
                          struct ckpt_shard *shard);

/* CRC32C over all bytes of the file that belong to no piece. */
enum err ckpt_shard_frame_crc(int fd, const char *path,
                              const struct ckpt_shard *shard, uint32_t *crc);

#endif
