/* What ranks give to a shard that several of them write. Segments of a tensor
 * that follow each other make one extent, whoever has them. A block of 4 MiB of
 * it that several ranks have is summed in parts. */
#pragma once

#include "checkpoint/files/ckpt_manifest.h"

/* A part of an item that is not empty, in normal form. */
struct ckpt_segment {
    int item, rank;
    struct ckpt_part part;
    int64_t bytes;
    /* where it is, once the shard is laid out (ckpt_hdf5.h) */
    int64_t at;     /* in its extent */
    int64_t offset; /* in the file */
};

/* This rank's, in the order of the items; *out is malloc'ed. */
enum err ckpt_segments_create(const struct ckpt_item *items, int item_count,
                              int rank, struct ckpt_segment **out, int *count);

/* Pointers to them by item and place in it; *out is malloc'ed. */
enum err ckpt_segments_sort(struct ckpt_segment *segments, int count,
                            struct ckpt_segment ***out);

/* The extents that these, sorted, make: in the order of the items, without
 * offsets; *out is malloc'ed. Sets where each begins in its extent. */
enum err ckpt_segments_merge(struct ckpt_segment *const *sorted, int count,
                             const struct ckpt_item *items,
                             struct ckpt_extent **out, int *extent_count);

/* Blocks of its extent of which a segment has some, each with a CRC32C of what
 * it has: so many, one behind the other. */
int64_t ckpt_segment_sums(const struct ckpt_segment *segment);

/* Add its sums to those of its extent's blocks, segment after segment. */
void ckpt_segment_fold(const struct ckpt_segment *segment, const uint32_t *sums,
                       uint32_t *blocks);
