/* Parity of node-local shards over groups of nodes: the loss of any one node of
 * a group loses no shard, for N/(N-1) of the space of the shards where partner
 * copies take twice (ckpt_parity.h says what is XORed with what).
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
 * rounds, and 1/16 of a shard of memory (or a few MiB). Traffic is that of a
 * partner copy. */
#ifndef TESSERA_CHECKPOINT_CKPT_XOR_H
#define TESSERA_CHECKPOINT_CKPT_XOR_H

#include <stdint.h>

#include "checkpoint/ckpt_manifest.h"
#include "src/base/err.h"
#include "src/comm/comm.h"

struct ckpt_xor;

/* Groups of group_max nodes at most (2 to CKPT_PARITY_MEMBERS_MAX; one more
 * only where a node would be left alone, with group_max 2). comm is borrowed.
 * ERR_UNSUPPORTED, the same on all ranks: nodes with so unequal numbers of
 * ranks that one of them would have too much to do at once. */
enum err ckpt_xor_create(struct comm *comm, int group_max,
                         struct ckpt_xor **out);
/* Only when nothing is on its way; NULL is fine. */
void ckpt_xor_destroy(struct ckpt_xor *x);

/* Nodes in the smallest and in the largest group; 1: there is only one node,
 * and nothing is protected. */
void ckpt_xor_groups(const struct ckpt_xor *x, int *smallest, int *largest);

/* One save: check the own shard in `dir` against the manifest, whose text has
 * that CRC32C, map it, make and reserve parity files there. Rank r has a shard
 * if lengths[r] > 0. */
enum err ckpt_xor_prepare(struct ckpt_xor *x, const char *dir,
                          const struct ckpt_manifest *manifest,
                          uint32_t manifest_crc, const int64_t *lengths);
/* All ranks are prepared: exchange, and XOR what arrives into the parity; seal
 * tells damage on the way. Each message may take timeout_s: ERR_COMM names who
 * is missing, and leaves a communicator that is of no use. */
enum err ckpt_xor_exchange(struct ckpt_xor *x, double timeout_s);
/* Then: complete the parity files, let go
 * of them, read them again and check them. */
enum err ckpt_xor_seal(struct ckpt_xor *x,
                       const struct ckpt_manifest *manifest);
/* Let go of what prepare made; after a failure before start. */
void ckpt_xor_release(struct ckpt_xor *x);

#endif
