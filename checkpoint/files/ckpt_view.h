/* checkpoint.h5: the whole checkpoint as one HDF5 file that says what it is.
 *
 * It holds one virtual dataset per tensor, with its whole shape ({1} for a
 * tensor of no dimensions), whose elements HDF5 fetches from the shards beside
 * it: h5py and h5dump read a sharded checkpoint as if it were one file, from
 * any working directory and wherever the folder is moved. What a shard that is
 * not there would hold reads as NaN (integers: the least number). A tensor
 * without elements is an ordinary dataset. Tensors whose names have no slash
 * are in the group weights, others in the groups that their names say.
 * Attributes: see ckpt_view_about.h; the root's format_version is 2 (1 had no
 * weights group, no other attributes, and read as 0 where a shard was missing).
 *
 * Loading never reads it; `tessera-ckpt verify` checks it against the manifest. */
#pragma once

#include "checkpoint/files/ckpt_manifest.h"

/* Its groups besides those of the tensors' names. */
#define CKPT_VIEW_WEIGHTS "weights"
#define CKPT_VIEW_CONFIG "config"

/* With more extents than these (4 MB of a view) a checkpoint has none until
 * somebody asks for it. */
#define CKPT_VIEW_EXTENTS 16384

/* Complete a checkpoint's folder, whose shards are there: its view, and its
 * manifest of this head (in which `view` is set) and these shards. What could not be loaded is no checkpoint: ERR_CHECKPOINT when elements were
 * written by no rank or by two. Files are not looked at: who writes a shard has
 * seen that it is there (ckpt_shard.h). */
enum err ckpt_view_seal(const char *checkpoint_dir,
                        struct ckpt_manifest_head *head,
                        const struct ckpt_shard *shards, int shard_count);

/* Write a view that is lost, damaged or was not made: the same bytes. ERR_UNSUPPORTED
 * when these would be others than the manifest tells of. */
enum err ckpt_view_mend(const char *checkpoint_dir,
                        const struct ckpt_manifest *manifest,
                        struct ckpt_view *view);

/* Size and CRC are those of the manifest, or of what would be made;
 * ERR_CHECKPOINT if not. */
enum err ckpt_view_check(const char *checkpoint_dir,
                         const struct ckpt_manifest *manifest);

/* The view without the HDF5 library (ckpt_h5.h), which takes some 20 times as
 * long (checkpoint/DESIGN.md has the figures). A group's links are in its header,
 * the mappings of the virtual datasets in global heaps.
 *
 * The whole file, the same bytes for the same tensors and extents; *image is
 * malloc'ed. ERR_MEMORY alone. */
enum err ckpt_view_image(const struct ckpt_manifest *manifest, void **image,
                         size_t *bytes);
