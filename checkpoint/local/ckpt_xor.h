/* What keeps a node-local checkpoint when a node is lost: parity of its shards
 * over groups of nodes. The loss of any one node of a group of N loses no shard,
 * for N/(N-1) times the space of the shards: twice for pairs, whose parity is a
 * copy of the other's shard (ckpt_parity.h says what is XORed with what).
 *
 * Groups are as equal as possible and take every so-manieth node, so that
 * neighbours, which may share a switch or a power supply, are in different
 * ones. A set is the ranks at the same place of the nodes of a group, counted
 * round where a node has fewer: those take part in several sets, in all but one
 * of them without a shard of their own.
 *
 * Every member sends each other member its chunk, in rounds of one segment of
 * each chunk over the communicator of the caller. A segment is 1/32 of a chunk
 * or 1 MiB if that is more; two rounds are in memory: one is on its way while
 * the other is XORed into the parity file. So a save takes at most some 33
 * rounds, and 1/16 of a shard of memory (or a few MiB). Every shard travels once. */
#pragma once

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/err.h"
#include "src/comm/comm.h"

struct ckpt_xor;

/* One save, after every rank has written its shard. */
struct ckpt_xor_save {
    const char *dir; /* here; the own shard is in it */
    const struct ckpt_manifest *manifest;
    uint32_t manifest_crc; /* CRC32C of its text */
    const int *shards;     /* [ranks]: number in the manifest; -1: none */
    bool memory; /* dir is: nothing is read again that was just written */
};

/* Groups of group_max nodes at most (2 to CKPT_PARITY_MEMBERS_MAX; one more only
 * where a node would be left alone, with group_max 2). Rank 0 logs how much room
 * that needs in local_dir. ERR_UNSUPPORTED: nodes have so unequal numbers of
 * ranks that one of them would have too much to do at once. An error is the same
 * on all ranks but for ERR_MEMORY. */
enum err ckpt_xor_create(struct comm *comm, int group_max,
                         const char *local_dir, struct ckpt_xor **out);
/* Only when nothing is on its way; NULL is fine. */
void ckpt_xor_destroy(struct ckpt_xor *x);

/* Memory that a save takes on a rank, whose shard has so many bytes, of so many
 * nodes: 0 where there is one. */
size_t ckpt_xor_bytes(size_t shard, int nodes, int group_max);
/* What then lies in the node's folder for it: the shard, and parity of others. */
size_t ckpt_xor_folder_bytes(size_t shard, int nodes, int group_max);

/* A save calls these in this order, and release after a failure on any rank. */
/* Check the own shard against the manifest and map it; make, reserve and map
 * the parity files. */
enum err ckpt_xor_prepare(struct ckpt_xor *x, const struct ckpt_xor_save *save);
/* All ranks are prepared: send and receive. Each message may take timeout_s:
 * ERR_COMM names who is missing, and leaves a communicator that is of no use. */
enum err ckpt_xor_exchange(struct ckpt_xor *x, double timeout_s);
/* Complete the parity files, tell damage on the way, read them again. */
enum err ckpt_xor_verify(struct ckpt_xor *x, const struct ckpt_xor_save *save);
/* Let go of what prepare made. */
void ckpt_xor_release(struct ckpt_xor *x);
