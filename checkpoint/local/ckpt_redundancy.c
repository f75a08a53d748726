/* Chooses how node-local shards are protected, and tells what that costs. */
#include "checkpoint/local/ckpt_redundancy.h"

#include "checkpoint/local/ckpt_partner.h"
#include "checkpoint/local/ckpt_xor.h"
#include "src/base/log.h"

enum { COPIES, PARITY, WAYS };

static const struct ckpt_redundancy_ops *const ways[WAYS] = {
    [COPIES] = &ckpt_partner_ops,
    [PARITY] = &ckpt_xor_ops,
};

static void tell_space(const struct ckpt_redundancy *redundancy,
                       const char *local_dir)
{
    int smallest = redundancy->smallest;
    if (smallest < 2) {
        log_warn("node-local checkpoints in %s: all ranks are on one node, and "
                 "nothing is kept elsewhere: they are lost with it",
                 local_dir);
        return;
    }
    double factor = (double)smallest / (smallest - 1);
    log_info("node-local checkpoints in %s: %s, %.2f times the state, %.2f "
             "while saving",
             local_dir, redundancy->what, factor, 2 * factor);
}

enum err ckpt_redundancy_create(struct comm *comm, int group_max,
                                const char *local_dir,
                                struct ckpt_redundancy **out)
{
    TRY(ways[group_max > 0 ? PARITY : COPIES]->create(comm, group_max, out));
    if (comm_rank(comm) == 0)
        tell_space(*out, local_dir);
    return ERR_OK;
}

void ckpt_redundancy_destroy(struct ckpt_redundancy *redundancy)
{
    if (redundancy != NULL)
        redundancy->ops->destroy(redundancy);
}

enum err ckpt_redundancy_rebuild(struct comm *comm,
                                 const struct ckpt_rebuild *lost, bool *rebuilt)
{
    *rebuilt = false;
    for (int w = 0; w < WAYS && !*rebuilt; w++)
        if (ways[w]->rebuild != NULL)
            TRY(ways[w]->rebuild(comm, lost, rebuilt));
    return ERR_OK;
}
