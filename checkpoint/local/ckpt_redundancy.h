/* What keeps a node-local checkpoint when a node is lost: every rank's shard is
 * protected by what other nodes hold. One row of functions for each way to do
 * so: copies on the next node (ckpt_partner.c), parity over groups of nodes
 * (ckpt_xor.c). Another way is another row in ckpt_redundancy.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/err.h"
#include "src/comm/comm.h"

struct ckpt_rebuild; /* ckpt_rebuild.h */

struct ckpt_redundancy {
    const struct ckpt_redundancy_ops *ops;
    struct comm *comm; /* borrowed */
    /* Nodes in the smallest and in the largest group; 1: there is only one
     * node, and nothing is protected. */
    int smallest, largest;
    char what[64]; /* for people: "copies on the next node" */
};

/* One save, after every rank has written its shard. */
struct ckpt_redundancy_save {
    const char *dir; /* here; the own shard is in it */
    const struct ckpt_manifest *manifest;
    uint32_t manifest_crc; /* CRC32C of its text */
    const int *shards;     /* [ranks]: number in the manifest; -1: none */
};

/* In this order, and release after a failure on any rank. */
struct ckpt_redundancy_ops {
    /* Groups of group_max nodes at most, where there are groups. An error is
     * the same on all ranks but for ERR_MEMORY. */
    enum err (*create)(struct comm *comm, int group_max,
                       struct ckpt_redundancy **out);
    /* Only when nothing is on its way. */
    void (*destroy)(struct ckpt_redundancy *self);
    /* Map the own shard; make, reserve and map what this rank will hold. */
    enum err (*prepare)(struct ckpt_redundancy *self,
                        const struct ckpt_redundancy_save *save);
    /* All ranks are prepared: send and receive. Each message may take
     * timeout_s: ERR_COMM names who is missing, and leaves a communicator that
     * is of no use. */
    enum err (*exchange)(struct ckpt_redundancy *self, double timeout_s);
    /* Complete what this rank holds for others, read it again and check it. */
    enum err (*verify)(struct ckpt_redundancy *self,
                       const struct ckpt_redundancy_save *save);
    /* Let go of what prepare made. */
    void (*release)(struct ckpt_redundancy *self);
    /* Make lost shards again (ckpt_rebuild.h); NULL: a load reads what the
     * others hold as it is. */
    enum err (*rebuild)(struct comm *comm, const struct ckpt_rebuild *lost,
                        bool *rebuilt);
};

/* Parity over groups of group_max nodes at most; 0: copies. Rank 0 logs how
 * much room that needs in local_dir. */
enum err ckpt_redundancy_create(struct comm *comm, int group_max,
                                const char *local_dir,
                                struct ckpt_redundancy **out);
/* NULL is fine. */
void ckpt_redundancy_destroy(struct ckpt_redundancy *redundancy);

/* By whatever way the step was protected, which need not be that of its next
 * save; contract: ckpt_rebuild.h. Collective. */
enum err ckpt_redundancy_rebuild(struct comm *comm,
                                 const struct ckpt_rebuild *lost,
                                 bool *rebuilt);
