/* The form of a shard: an HDF5 file whose payload is written by others. The
 * only user of the HDF5 library, which serves for writing alone, on one thread
 * at a time, because the stock library is not thread-safe and can crash on
 * damaged files.
 *
 * A dataset has the name of its tensor (the second of the same tensor in a shard
 * "NAME 2", and so on, in the order of the file). It is N-D where its part is: a box has
 * the shape of its extent, an interval of whole rows (indices of the first
 * dimension) that of these rows; any other interval is 1-D, as is a tensor of
 * no dimensions. Small datasets (below 256 KiB) come first, one directly after
 * the other; then the larger ones at multiples of 4 KiB; then, in files with
 * 128 MiB of such, those of 8 MiB and more at multiples of 1 MiB where that
 * wastes less than 1/128 of their size. Within each kind they have the order of
 * the items.
 *
 * Besides the tensors a shard has
 *   _index   {name, dtype, dims, shape, boxed, begin, end, origin, extent,
 *            first_block, blocks}, one row per dataset in file order
 *   _crc32c  u32, one per CKPT_BLOCK_BYTES of each dataset, to which
 *            first_block and blocks of the row point; behind all payload
 * and on its root the attributes format_version, step, rank, ranks, attempt and
 * block_bytes: nobody needs the manifest to make sense of a shard or to verify
 * its payload, and no two shards have the same frame.
 *
 * A file is longer than its payload by at most 16 KiB and, per dataset, 1 KiB
 * and 1/64 of its size: less than 1.02 times its payload where datasets have
 * 256 KiB on average, and there are 16 MiB of them. */
#pragma once

#include "checkpoint/files/ckpt_segment.h"

struct ckpt_hdf5_identity {
    int64_t step;
    int rank, ranks;
    const char *attempt;
};

/* The two datasets that are no tensors. */
#define CKPT_HDF5_INDEX_NAME "_index"
#define CKPT_HDF5_CRC_NAME "_crc32c"

/* Make the file, which is open (`path` is for texts), with one dataset for every
 * extent that the segments, sorted and at least one, make together. Tells where each segment is, and
 * fills the shard's extents, in file order and normal form (allocated; the
 * caller frees them, also after a failure), its count of blocks, and where the
 * contents of _crc32c go. */
enum err ckpt_hdf5_create(int fd, const char *path,
                          const struct ckpt_hdf5_identity *identity,
                          const struct ckpt_item *items,
                          struct ckpt_segment *const *sorted, int count,
                          struct ckpt_shard *shard);
