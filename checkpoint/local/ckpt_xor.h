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
#pragma once

#include "checkpoint/local/ckpt_redundancy.h"

/* Groups of group_max nodes at most (2 to CKPT_PARITY_MEMBERS_MAX; one more
 * only where a node would be left alone, with group_max 2). create is
 * ERR_UNSUPPORTED for nodes with so unequal numbers of ranks that one of them
 * would have too much to do at once; prepare checks the own shard against the
 * manifest; verify tells damage on the way. */
extern const struct ckpt_redundancy_ops ckpt_xor_ops;
