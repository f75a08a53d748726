/* Whether the pieces of a checkpoint hold every element of every tensor exactly
 * once, and intervals as boxes. */
#pragma once

#include "checkpoint/files/ckpt_manifest.h"

#define CKPT_COVER_BOXES_MAX (2 * CKPT_DIMS_MAX - 1)

/* The part as boxes that follow each other in the flattened tensor; returns how
 * many, at most 2 dims - 1, none when empty. dims >= 1. */
int ckpt_cover_boxes(const struct ckpt_part *part, int dims,
                     const int64_t *shape,
                     struct ckpt_part boxes[CKPT_COVER_BOXES_MAX]);

/* ERR_CHECKPOINT with the first tensor of which an element is stored twice or
 * not at all. Every piece lies inside its tensor. */
enum err ckpt_cover_check(const struct ckpt_manifest *manifest);
