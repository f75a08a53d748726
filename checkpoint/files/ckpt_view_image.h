/* The bytes of checkpoint.h5, without the HDF5 library (ckpt_h5.h), which takes
 * some 20 times as long (checkpoint/DESIGN.md has the figures). A group's links
 * are in its header, the mappings of the virtual datasets in global heaps. */
#pragma once

#include "checkpoint/files/ckpt_manifest.h"

/* The whole file, the same bytes for the same tensors and pieces; *image is
 * malloc'ed. ERR_MEMORY alone. */
enum err ckpt_view_image(const struct ckpt_manifest *manifest, void **image,
                         size_t *bytes);
