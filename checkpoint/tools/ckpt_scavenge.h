/* What is only on the nodes goes into the run directory, before a job ends and
 * it is lost: needs neither the model nor as many ranks as have saved. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"
#include "src/comm/comm.h"

struct ckpt_scavenged {
    int64_t step;  /* -1: the nodes have nothing newer than the run directory */
    int64_t bytes; /* of the shards' files */
    double seconds;
};

/* Copy the newest step of this run (ckpt_identify()) that the nodes hold
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
