/* checkpoint.h5: the whole checkpoint as one HDF5 file.
 *
 * It holds one virtual dataset per tensor, under the tensor's name, with its
 * whole shape ({1} for a tensor of no dimensions), whose elements HDF5 fetches
 * from the shards beside it: h5py and h5dump read a sharded checkpoint as if it
 * were one file, from any working directory and wherever the folder is moved. A
 * tensor without elements is an ordinary dataset. The root has the attribute
 * format_version.
 *
 * Loading never reads it; ckpt_verify() checks it against the manifest. */
#ifndef TESSERA_CHECKPOINT_CKPT_VIEW_H
#define TESSERA_CHECKPOINT_CKPT_VIEW_H

#include "checkpoint/ckpt_manifest.h"

/* The bytes of a view: it is the same for every step of the same tensors in the
 * same shards. Zeroed at first; the caller frees `image`. */
struct ckpt_view_cache {
    void *image;
    struct ckpt_view view;
};

/* Write the view of these tensors and shards (the manifest's own view is not
 * looked at) into the folder, durably. cache may be NULL; once it is filled, it
 * is written instead, and must be of the same tensors and shards. */
enum err ckpt_view_write(const char *checkpoint_dir,
                         const struct ckpt_manifest *manifest,
                         struct ckpt_view_cache *cache, struct ckpt_view *view);

/* Size and CRC are those of the manifest; ERR_CHECKPOINT if not. */
enum err ckpt_view_check(const char *checkpoint_dir,
                         const struct ckpt_manifest *manifest);

#endif
