/* Copies of node-local shards on other nodes: every rank's shard is kept by a
 * partner on the next node, so that the loss of any one node (or of several
 * that are not neighbours) loses no shard.
 *
 * Nodes are taken in the order of their lowest ranks, in a ring; the keeper of
 * a rank is the rank at the same place on the next node, counted round where
 * that has fewer ranks. Files travel by mapped memory, whole, over the
 * communicator of the caller. */
#pragma once

#include "checkpoint/local/ckpt_redundancy.h"

extern const struct ckpt_redundancy_ops ckpt_partner_ops;
