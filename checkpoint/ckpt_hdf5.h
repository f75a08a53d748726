/* The form of a shard: an HDF5 file of 1-D datasets, whose payload is written
 * by others. The only file that knows the HDF5 library; it is used for writing
 * alone, on one thread, because the stock library is not thread-safe and can
 * crash on damaged files.
 *
 * Besides the tensors a shard has a dataset `_index` {name, dtype, dims, shape,
 * begin, end}, one row per dataset, and on its root the attributes
 * format_version, step, rank, ranks and attempt: nobody needs the manifest to
 * make sense of a shard, and no two shards have the same frame. */
#ifndef TESSERA_CHECKPOINT_CKPT_HDF5_H
#define TESSERA_CHECKPOINT_CKPT_HDF5_H

#include "checkpoint/ckpt.h"
#include "checkpoint/ckpt_manifest.h"

struct ckpt_hdf5_identity {
    int64_t step;
    int rank, ranks;
    const char *attempt;
};

/* ERR_INTERNAL unless `name` can be a dataset: printable ASCII without blanks,
 * no empty and no "." component, not `_index`. */
enum err ckpt_hdf5_check_name(const char *name);

/* Create the file with one dataset for every item of which begin < end, and
 * close it. pieces (room for item_count) gets one entry per dataset, in file
 * order, `block` not yet set. */
enum err ckpt_hdf5_create(const char *path,
                          const struct ckpt_hdf5_identity *identity,
                          const struct ckpt_item *items, int item_count,
                          struct ckpt_piece *pieces, int *piece_count);

#endif
