/* What tessera-ckpt streams through ckpt_tensor.h: checkpoints compared (by
 * ckpt_diff.c), checked, copied into other shards, described; and one written
 * that no run has saved. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "checkpoint/files/ckpt_read.h"
#include "checkpoint/files/ckpt_shard.h"
#include "checkpoint/tools/ckpt_tensor.h"
#include "src/comm/comm.h"

enum ckpt_diff_kind {
    CKPT_DIFF_EQUAL,  /* bit for bit */
    CKPT_DIFF_VALUES, /* same type and shape */
    CKPT_DIFF_FORM,   /* another type or shape; values are not compared */
    CKPT_DIFF_ONLY_A,
    CKPT_DIFF_ONLY_B,
};

/* `differing` elements have other bits, the first at `first`. `non_finite` of
 * them are NaN or Inf on a side and do not count in the maxima. max_relative is
 * |a - b| / max(|a|, |b|). */
struct ckpt_diff {
    enum ckpt_diff_kind kind;
    const struct ckpt_tensor *a, *b; /* NULL: not there */
    int64_t differing, first, non_finite;
    double max_absolute, max_relative;
};

/* Called for every tensor, those of a in its order, then those only b has. */
typedef enum err (*ckpt_diff_fn)(void *arg, const struct ckpt_diff *diff);

/* Streams both; damage of either is ERR_CHECKPOINT. */
enum err ckpt_diff_tensors(const char *dir_a, const struct ckpt_manifest *a,
                           const char *dir_b, const struct ckpt_manifest *b,
                           ckpt_diff_fn each, void *arg);

/* The entries in which two states differ: a new array of {"entry": "a.b",
 * "a": ..., "b": ...}, where a missing side is null; NULL: out of memory. */
json_t *ckpt_diff_states(const json_t *a, const json_t *b);

/* Gets a line of text for each file in the folder that the manifest does not
 * tell of. */
enum err ckpt_check_others(const char *checkpoint_dir,
                           const struct ckpt_manifest *manifest,
                           ckpt_read_damage other, void *arg);

#define CKPT_RESHARD_RANKS_MAX 99999

/* Copy the checkpoint into the new folder `out`, as `ranks` ranks would have
 * written it: the payload, tensor after tensor, is cut into so many extents of
 * equal bytes. Step, state and digest stay. Every byte read is checked. Memory
 * is that of a few blocks. `out` appears only when it is complete and
 * durable; a failure leaves nothing. ERR_USAGE when it exists or is named like
 * another step. *bytes: payload. */
enum err ckpt_reshard(const char *checkpoint_dir, const char *out, int ranks,
                      int64_t *bytes);

/* Everything from min on is over the finite values; NaN when there are none.
 * std is that of the whole population, l2 the square root of the sum of
 * squares. */
struct ckpt_stats {
    int64_t elements;
    int64_t nan, inf, zero;
    double min, max, mean, std, l2;
};

/* Streams the tensor; every byte is checked. */
enum err ckpt_stats_tensor(struct ckpt_tensor_reader *reader,
                           const struct ckpt_manifest *manifest, int tensor,
                           struct ckpt_stats *out);

/* Write the items, each whole, into the new folder `dir` as a checkpoint of one
 * shard. What is in the folder when it fails is of no use. Memory is that of a
 * few blocks. */
enum err ckpt_write(const char *dir, int64_t step, const char *attempt,
                    const json_t *state, const struct ckpt_item *items,
                    int item_count, ckpt_shard_feed feed, void *feed_arg);

struct ckpt_scavenged {
    int64_t step;  /* -1: the nodes have nothing newer than the run directory */
    int64_t bytes; /* of the shards' files */
    double seconds;
};

/* What is only on the nodes goes into the run directory, before a job ends and it
 * is lost: copy the newest step of this run (ckpt_index_uuid_write()) that the nodes hold
 * together (ckpt_local.h), signed by local_key, if it is newer than every good one of run_dir, and
 * commit it there like any other. Every byte is verified on its way; a shard
 * that is damaged on one node is taken from another that keeps it, and a step
 * that can't be put together gives way to the next older one. Shards are
 * copied as they are, so a load gives the same bits as from the nodes. A
 * failure leaves nothing in run_dir. For at least one rank on each node, while
 * nobody saves and rank 0 holds the run lock; one rank's copies must not take
 * longer than the communicator's deadline. Collective. */
enum err ckpt_scavenge(struct comm *comm, const char *run_dir,
                       const char *local_dir, const char *local_key,
                       const char *attempt, struct ckpt_scavenged *out);
