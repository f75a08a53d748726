/* Copies of node-local shards on other nodes: every rank's shard is kept by a
 * partner on the next node, so that the loss of any one node (or of several
 * that are not neighbours) loses no shard.
 *
 * Nodes are taken in the order of their lowest ranks, in a ring; the keeper of
 * a rank is the rank at the same place on the next node, counted round where
 * that has fewer ranks. Files travel by mapped memory, whole, over the
 * communicator of the caller. */
#ifndef TESSERA_CHECKPOINT_CKPT_PARTNER_H
#define TESSERA_CHECKPOINT_CKPT_PARTNER_H

#include <stdint.h>

#include "src/base/err.h"
#include "src/comm/comm.h"

struct ckpt_partner;

/* One file on its way. */
struct ckpt_partner_file {
    int rank;         /* whose shard it is */
    const char *path; /* here */
    int64_t bytes;
};

/* comm is borrowed. */
enum err ckpt_partner_create(struct comm *comm, struct ckpt_partner **out);
void ckpt_partner_destroy(struct ckpt_partner *partner);

/* The rank that keeps the shard of `rank`; -1 when there is only one node. */
int ckpt_partner_keeper(const struct ckpt_partner *partner, int rank);

/* Map the own file (NULL: none) and make, reserve and map the files that this
 * rank will keep, `kept` of them in ascending order of rank. */
enum err ckpt_partner_prepare(struct ckpt_partner *partner,
                              const struct ckpt_partner_file *own,
                              const struct ckpt_partner_file *kept,
                              int kept_count);
/* All ranks are prepared: send and receive, and unmap. Each transfer may take
 * timeout_s; ERR_COMM names who is missing, and leaves a communicator that is
 * of no use. */
enum err ckpt_partner_exchange(struct ckpt_partner *partner, double timeout_s);
/* A rank is not prepared: unmap. */
void ckpt_partner_release(struct ckpt_partner *partner);

#endif
