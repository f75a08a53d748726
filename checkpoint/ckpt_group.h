/* Ranks of a node that write one shard together. Each writes what it has where
 * it belongs, at the same time as the others, so that no tensor travels: the
 * lowest makes the file, tells where things are, gets the sums and ends it. On
 * one node because its ranks share a page cache, and a parallel file system's
 * locks are its nodes'. */
#pragma once

#include "checkpoint/files/ckpt_shard.h"
#include "src/comm/comm.h"

/* What a member hears: where its segments are, behind the length of the file,
 * which is 0 where that can't be made. What the maker hears are their sums. */
struct ckpt_group_place {
    int64_t at, offset;
};

struct ckpt_group {
    struct comm *comm; /* whose messages these are; borrowed */
    int maker, rank, members;
    int *ranks;                    /* maker: [members], itself the first */
    int *counts;                   /* maker: [members], segments of each */
    struct ckpt_segment *segments; /* maker: of all, by members; others: own */
    int count;
    struct ckpt_group_place *places; /* of one member's segments */
    uint32_t *sums;                  /* likewise */
};

/* bytes_of[r]: what rank r has to save. Up to `together` ranks of a node that
 * have something are a group; shard_of[r] becomes the number of
 * rank r's shard, -1: none, *shards how many there are. To be freed after an
 * error too. Collective. */
enum err ckpt_group_create(struct comm *comm, const struct ckpt_item *items,
                           int item_count, const int64_t *bytes_of,
                           int together, int *shard_of, int *shards,
                           struct ckpt_group *out);
void ckpt_group_free(struct ckpt_group *group);

/* A message within a group; timeout_s <= 0: the communicator's. */
enum err ckpt_group_send(struct comm *comm, const void *data, size_t bytes,
                         int to, double timeout_s);
enum err ckpt_group_receive(struct comm *comm, void *data, size_t bytes,
                            int from, double timeout_s);
