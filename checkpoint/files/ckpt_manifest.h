/* MANIFEST.json: what a checkpoint consists of, and the proof that it is whole.
 *
 * The file is JSON with one tensor and one shard a line. Its last member is the
 * CRC32C of every byte before the eight hex digits; the bytes after them are
 * fixed, so that no byte of the file can change unseen:
 *
 *   {
 *   "format": "tessera-checkpoint",
 *   "version": 2,
 *   "run_uuid": "...",            copied from the state's "run_uuid", or ""
 *   "step": 60, "ranks": 2, "attempt": "12.1", "created": 1763690000.123,
 *   "state": {...},               the caller's, untouched
 *   "view": {"file":"checkpoint.h5","bytes":9000,"crc32c":123},   or null
 *   "tensors": [
 *   {"name":"wte","dtype":"f32","shape":[50368,768]},
 *   ...],
 *   "shards": [
 *   {"file":"shard-00000-of-00002.h5","bytes":4096,
 *    "frame_crc32c":123,          over all bytes outside the extents
 *    "pieces":[[0,0,1024,2048],    tensor, begin, end (elements), file offset
 *              [1,[0,8],[4,8],6144],   or tensor, origin, extent, file offset
 *              [0,1,-64]],        or a run, of extents that go on with those of
 *                                 the shard before: first, how many, and by how
 *                                 many elements each is longer
 *    "crc32c_offset":9000},       in the file, of a CRC32C (u32) per 4 MiB of each
 *                                 extent, extent after extent: in its frame,
 *                                 behind all extents
 *   ...],
 *   "crc32c": "0123abcd"
 *   }
 *
 * An extent goes on with another if it is of the same tensor, begins at the
 * element where that one ends, and lies as far behind the extent before it in its
 * file (the first: behind the file's first byte) as that one in its own. Ranks cut
 * all layers of a model alike, so that a shard is a few runs.
 *
 * Version 1 had no runs, and "block_crc32c":[456], the CRCs themselves, in the
 * place of their offset.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/files/ckpt_part.h"
#include "src/base/err.h"
#include "src/comm/comm.h"

#define CKPT_MANIFEST_FILE "MANIFEST.json"
#define CKPT_MANIFEST_FORMAT "tessera-checkpoint"
#define CKPT_MANIFEST_VERSION 2
#define CKPT_VIEW_FILE "checkpoint.h5"
/* Room for a shard's name in the checkpoint's folder. */
#define CKPT_FILE_BYTES 64
/* Room for the name of an extent's dataset in its shard. */
#define CKPT_DATASET_BYTES (CKPT_NAME_BYTES + 12)
/* What stands before and after the eight digits of the manifest's CRC. */
#define CKPT_MANIFEST_CRC_BEFORE "\"crc32c\": \""
#define CKPT_MANIFEST_CRC_AFTER "\"\n}\n"

struct ckpt_tensor {
    char name[CKPT_NAME_BYTES];
    enum dtype dtype;
    int dims;
    int64_t shape[CKPT_DIMS_MAX];
    int64_t elements; /* product of shape */
};

/* A part of a tensor in normal form, stored at `offset` of the shard's file. */
struct ckpt_extent {
    int tensor;
    int dims; /* of the tensor */
    struct ckpt_part part;
    int64_t offset;
    int64_t bytes;
    int64_t block; /* number in the shard of the extent's first CRC */
};

struct ckpt_shard {
    char file[CKPT_FILE_BYTES];  /* may have a folder: shards/000/... */
    int64_t bytes;               /* size of the file */
    uint32_t frame_crc;          /* over all bytes outside the extents */
    struct ckpt_extent *extents; /* by ascending offset, never overlapping */
    int extent_count;
    int64_t block_count; /* CKPT_BLOCK_BYTES of each extent */
    int64_t crc_offset;  /* where their CRC32Cs are in the file; 0: */
    uint32_t *blocks;    /* they are here (ckpt_passage_sums()) */
};

/* The file CKPT_VIEW_FILE beside the shards, see ckpt_view.h. */
struct ckpt_view {
    int64_t bytes; /* 0: there is none */
    uint32_t crc;  /* of the whole file */
};

struct ckpt_manifest {
    int64_t step;
    int ranks;
    bool files_alone; /* no tensors, no extents; bytes is that of the shards */
    int64_t bytes;    /* payload */
    int64_t extents;  /* of all shards */
    struct ckpt_view view;
    struct ckpt_tensor *tensors;
    int tensor_count;
    struct ckpt_shard *shards;
    int shard_count;
    json_t *state;
};

/* What a manifest is made of, besides the shards. */
struct ckpt_manifest_head {
    int64_t step;
    int ranks;
    const char *attempt;
    const json_t *state;
    struct ckpt_view view;
    const struct ckpt_item *items; /* for the tensor catalogue */
    int item_count;
};

/* The number in PREFIXnnnnnnnnn, written as we write it and nothing after it;
 * -1: another name. */
#define CKPT_STEP_PREFIX "step-"
#define CKPT_STEP_DIGITS 9
int64_t ckpt_manifest_step_after(const char *name, size_t length,
                                 const char *prefix);
/* The step that a path ending in "step-000000060" (with or without slashes
 * after it) is named after; -1: another name. */
int64_t ckpt_manifest_step_of(const char *path);

/* The uuid of a run has printable characters without blanks, at least one and
 * fewer than CKPT_UUID_BYTES. */
#define CKPT_UUID_BYTES 64
bool ckpt_manifest_uuid_valid(const char *uuid);

/* Elements of a shape; ERR_CHECKPOINT when a dimension is negative or the
 * tensor would have 2^62 bytes or more. */
enum err ckpt_manifest_elements(enum dtype dtype, int dims,
                                const int64_t *shape, int64_t *elements);

/* How many block CRCs an extent of so many bytes has. */
int64_t ckpt_manifest_block_count(int64_t bytes);

/* Where the first `count` extents of the shard end in its file; none: 0. */
int64_t ckpt_manifest_end(const struct ckpt_shard *shard, int count);

/* The whole file; *text is malloc'ed. */
enum err ckpt_manifest_format(const struct ckpt_manifest_head *head,
                              const struct ckpt_shard *shards, int shard_count,
                              char **text, size_t *bytes);

/* Check and parse. `where` is for error texts. ERR_CHECKPOINT when the CRC or
 * the form is wrong, an extent lies outside its tensor or file, extents overlap,
 * or an element of a tensor is not covered exactly once. ERR_UNSUPPORTED when
 * a newer version wrote it. */
enum err ckpt_manifest_parse(const char *text, size_t bytes, const char *where,
                             struct ckpt_manifest **out);
/* With files_alone of its state and files, for who copies those: there may be millions
 * of extents. */
enum err ckpt_manifest_parse_as(const char *text, size_t bytes,
                                const char *where, bool files_alone,
                                struct ckpt_manifest **out);

/* Wholly, from a checkpoint folder; a folder named step-* must hold that very
 * step. The text is given too unless `text` is NULL. */
enum err ckpt_manifest_read(const char *checkpoint_dir, char **text,
                            size_t *bytes, struct ckpt_manifest **out);

/* All ranks get root's text; *text is malloc'ed, and to be freed after an error
 * too. Collective. */
enum err ckpt_manifest_share(struct comm *comm, int root, char **text,
                             size_t *bytes);

/* Every shard is there and has its size; reads no contents. The view is not
 * looked at: a step is not lost with it. */
enum err ckpt_manifest_check_sizes(const struct ckpt_manifest *manifest,
                                   const char *checkpoint_dir);

/* An extent, and the number of its shard. */
struct ckpt_placed {
    const struct ckpt_extent *extent;
    int shard;
};

/* The name of the dataset of a tensor's extent number `number` (from 0, in the order
 * of the file) in a shard: the tensor's; "NAME 2" and so on for more of them, for no
 * tensor's name has a blank. */
void ckpt_manifest_dataset(const char *tensor, int number,
                           char out[CKPT_DATASET_BYTES]);

/* All extents, those of tensor t in (*list)[(*first)[t] .. (*first)[t + 1]), in
 * the order of the shards. Both are malloc'ed, and to be freed after an error
 * too. */
enum err ckpt_manifest_extents(const struct ckpt_manifest *manifest,
                               struct ckpt_placed **list, size_t **first);

/* The tensors as items of no part and no data; malloc'ed. */
enum err ckpt_manifest_items(const struct ckpt_manifest *manifest,
                             struct ckpt_item **items);

/* NULL is fine. */
void ckpt_manifest_destroy(struct ckpt_manifest *manifest);
/* Frees what a shard points to, not the shard. */
void ckpt_manifest_free_shard(struct ckpt_shard *shard);

/* Names in the order of strcmp(), each with a number: how tensors, items and
 * files are found by name. */
struct ckpt_named {
    const char *name; /* lent */
    int index;
};

void ckpt_named_sort(struct ckpt_named *list, size_t count);
/* In a sorted list; -1: it is not there. */
int ckpt_named_find(const struct ckpt_named *list, size_t count,
                    const char *name);

/* The manifest's tensors, sorted; malloc'ed. */
enum err ckpt_named_tensors(const struct ckpt_manifest *manifest,
                            struct ckpt_named **list);

/* Whether the extents hold every element of every tensor exactly once, and
 * intervals as boxes (ckpt_cover.c). */
#define CKPT_COVER_BOXES_MAX (2 * CKPT_DIMS_MAX - 1)

/* The part as boxes that follow each other in the flattened tensor; returns how
 * many, at most 2 dims - 1, none when empty. dims >= 1. */
int ckpt_cover_boxes(const struct ckpt_part *part, int dims,
                     const int64_t *shape,
                     struct ckpt_part boxes[CKPT_COVER_BOXES_MAX]);

/* ERR_CHECKPOINT with the first tensor of which an element is stored twice or
 * not at all. Every extent lies inside its tensor. */
enum err ckpt_cover_check(const struct ckpt_manifest *manifest);
