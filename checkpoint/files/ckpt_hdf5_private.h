/* What the files that use the HDF5 library share: ckpt_hdf5.c makes shards,
 * ckpt_hdf5_index.c the index in them. */
#pragma once

#include <hdf5.h>

#include "checkpoint/files/ckpt_hdf5.h"

/* Run an HDF5 call; negative is failure. Wants `rc`, `path` and `out:`, which
 * closes each handle that is not negative: a handle is a number, and each kind
 * of it has a function of its own to close it. */
#define HDF5_TRY(call)                                                         \
    do {                                                                       \
        if ((call) < 0) {                                                      \
            rc = ckpt_hdf5_failed(path, #call);                                \
            goto out;                                                          \
        }                                                                      \
    } while (0)

/* The library's own error as ours; it reports failed system calls as text. */
enum err ckpt_hdf5_failed(const char *path, const char *call);

/* The dataset _index, one row per extent. */
#define CKPT_HDF5_INDEX_NAME "_index"
enum err ckpt_hdf5_index_put(hid_t file, const char *path,
                             const struct ckpt_item *items,
                             const struct ckpt_shard *shard);
