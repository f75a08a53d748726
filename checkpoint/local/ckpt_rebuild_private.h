/* What the parts of a rebuild share: ckpt_rebuild.c finds out what is to do,
 * ckpt_rebuild_chain.c does it for one shard. */
#pragma once

#include "checkpoint/local/ckpt_parity.h"
#include "checkpoint/local/ckpt_rebuild.h"

/* The segments of a chain, and how many of them are in memory. */
#define CKPT_REBUILD_SEGMENT_BYTES ((int64_t)CKPT_BLOCK_BYTES)
#define CKPT_REBUILD_BUFFERS 2

/* A member that a rank can stand for: it has its parity and its shard. */
struct ckpt_rebuild_offer {
    int rank;
    struct ckpt_parity parity;
};

/* One lost shard. */
struct ckpt_rebuild_job {
    int shard, member;
    struct ckpt_parity parity;          /* of the set; any member's */
    int chain[CKPT_PARITY_MEMBERS_MAX]; /* members that are left */
    int ranks[CKPT_PARITY_MEMBERS_MAX]; /* who stands for chain[i] */
    int length;
    int64_t code; /* enum err, of this rank */
};

struct ckpt_rebuild_run {
    struct comm *comm;
    int rank;
    const struct ckpt_rebuild *lost;
    char tmp[FSIO_PATH_MAX];           /* where shards grow */
    struct ckpt_rebuild_offer *offers; /* of all ranks, by rank */
    int offer_count;
    struct ckpt_rebuild_job *jobs;
    int job_count;
    char *buffers[CKPT_REBUILD_BUFFERS], *scratch; /* a segment each */
};

/* This rank's part of the job is good, and who ends the chain has room. */
enum err ckpt_rebuild_chain_check(const struct ckpt_rebuild_run *run,
                                  const struct ckpt_rebuild_job *job);
/* Do it; job->code is how it went here. ERR_COMM is the only failure that is
 * returned. */
enum err ckpt_rebuild_chain_run(struct ckpt_rebuild_run *run,
                                struct ckpt_rebuild_job *job);
