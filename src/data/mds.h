/* One MDS shard file, mapped into memory.
 *
 * Layout, little-endian: u32 samples, u32 offset[samples + 1] from the start of
 * the file, a JSON text that readers do not need, the samples back to back.
 * A sample is a u32 size for each column without a fixed one, then the
 * columns' bytes. An ndarray is [u8 type code] [u8 ndim << 2 | k, then ndim
 * dimensions of 2^k bytes] values; the parts in brackets are absent where the
 * column's encoding gives them. Values are not aligned.
 *
 * Opening checks the size and the whole offset table, so that no sample reaches
 * outside the map, whatever the file holds. A file that another process
 * shortens while it is mapped ends the process (SIGBUS). */
#ifndef TESSERA_DATA_MDS_H
#define TESSERA_DATA_MDS_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/mds_index.h"

struct mds_shard;

/* Map the file, which must agree with `info` (lent until the close). ERR_DATA
 * names the file and what is wrong with it. */
enum err mds_shard_open(const char *path, const struct mds_shard_info *info,
                        struct mds_shard **out);
void mds_shard_close(struct mds_shard *shard);

/* The bytes of sample `index`, 0 <= index < samples; lent until the close. */
void mds_shard_sample(const struct mds_shard *shard, int64_t index,
                      const uint8_t **data, size_t *bytes);

/* Its tokens: `count` int32 values at any address; copy them with memcpy.
 * ERR_DATA when the sample is malformed or no one-dimensional int32 array. */
enum err mds_shard_tokens(const struct mds_shard *shard, int64_t index,
                          const uint8_t **values, int64_t *count);

/* The file has the SHA-256 that the index records; true if it records none. */
enum err mds_shard_verify(const struct mds_shard *shard);

const char *mds_shard_path(const struct mds_shard *shard);

#endif
