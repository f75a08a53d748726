/* Sends each rank's node-local shard to a rank on the next node, which keeps a
 * copy. The alternative that takes less space is parity (ckpt_xor.c). */
#include "checkpoint/local/ckpt_partner.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/files/ckpt_read.h"
#include "checkpoint/local/ckpt_map.h"
#include "checkpoint/local/ckpt_nodes.h"
#include "src/base/fsio.h"
#include "src/base/new.h"

#define TAG 1

struct mapping {
    int rank; /* the peer */
    struct ckpt_map map;
    struct comm_request *request; /* NULL: not started, or waited for */
};

struct ckpt_partner {
    struct ckpt_redundancy base; /* first */
    int *keepers; /* [size]: of each rank's shard; -1: there is one node */
    struct mapping own;
    struct mapping *kept; /* [size], kept_count of them in use */
    int kept_count;
};

static struct ckpt_partner *partner_of(struct ckpt_redundancy *self)
{
    return (struct ckpt_partner *)self;
}

static enum err find_keepers(struct ckpt_partner *partner)
{
    struct ckpt_nodes nodes;
    TRY(ckpt_nodes_create(partner->base.comm, &nodes));
    for (int r = 0; r < comm_size(partner->base.comm); r++)
        partner->keepers[r] =
            nodes.count < 2
                ? -1
                : ckpt_nodes_rank_at(&nodes, (nodes.node[r] + 1) % nodes.count,
                                     nodes.place[r]);
    partner->base.smallest = partner->base.largest = nodes.count < 2 ? 1 : 2;
    ckpt_nodes_free(&nodes);
    return ERR_OK;
}

static void destroy(struct ckpt_redundancy *self)
{
    struct ckpt_partner *partner = partner_of(self);
    assert(partner->own.request == NULL && partner->own.map.data == NULL);
    assert(partner->kept_count == 0);
    free(partner->kept);
    free(partner->keepers);
    free(partner);
}

static enum err create(struct comm *comm, int group_max,
                       struct ckpt_redundancy **out)
{
    enum err rc = ERR_OK;
    size_t size = (size_t)comm_size(comm);
    struct ckpt_partner *partner = NULL;
    (void)group_max;
    *out = NULL;
    TRY(new_zeroed(&partner, 1));
    partner->base = (struct ckpt_redundancy){ .ops = &ckpt_partner_ops,
                                              .comm = comm,
                                              .what = "copies on the next "
                                                      "node" };
    TRY_OUT(new_zeroed(&partner->keepers, size));
    TRY_OUT(new_zeroed(&partner->kept, size));
    TRY_OUT(find_keepers(partner));
    *out = &partner->base;
    partner = NULL;
out:
    if (partner != NULL)
        destroy(&partner->base);
    return rc;
}

/* Whether this rank keeps the shard of `rank`, which may have none. */
static bool keeps(const struct ckpt_partner *partner,
                  const struct ckpt_redundancy_save *save, int rank)
{
    return partner->keepers[rank] == comm_rank(partner->base.comm) &&
           save->shards[rank] >= 0;
}

/* --- transfers --- */

static enum err map_shard(const struct ckpt_redundancy_save *save, int rank,
                          bool make, struct mapping *mapping)
{
    char path[FSIO_PATH_MAX];
    const struct ckpt_shard *shard =
        &save->manifest->shards[save->shards[rank]];
    TRY(fsio_path(path, "%s/%s", save->dir, shard->file));
    return ckpt_map_file(path, shard->bytes, make, &mapping->map);
}

static enum err prepare(struct ckpt_redundancy *self,
                        const struct ckpt_redundancy_save *save)
{
    struct ckpt_partner *partner = partner_of(self);
    int rank = comm_rank(self->comm);
    assert(partner->own.map.data == NULL && partner->kept_count == 0);
    partner->own.rank = partner->keepers[rank];
    if (save->shards[rank] >= 0 && partner->keepers[rank] >= 0)
        TRY(map_shard(save, rank, false, &partner->own));
    for (int r = 0; r < comm_size(self->comm); r++) {
        struct mapping *kept = &partner->kept[partner->kept_count];
        if (!keeps(partner, save, r))
            continue;
        TRY(map_shard(save, r, true, kept));
        kept->rank = r;
        partner->kept_count++;
    }
    return ERR_OK;
}

static enum err start(struct ckpt_partner *partner)
{
    struct comm *comm = partner->base.comm;
    for (int i = 0; i < partner->kept_count; i++) {
        struct mapping *kept = &partner->kept[i];
        TRY(comm_start_recv(comm, kept->map.data, kept->map.bytes, kept->rank,
                            TAG, &kept->request));
    }
    struct mapping *own = &partner->own;
    if (own->map.data != NULL)
        TRY(comm_start_send(comm, own->map.data, own->map.bytes, own->rank, TAG,
                            &own->request));
    return ERR_OK;
}

static enum err mapping_wait(struct mapping *mapping, double timeout_s)
{
    enum err rc = ERR_OK;
    if (mapping->request != NULL)
        rc = comm_wait(mapping->request, timeout_s);
    mapping->request = NULL;
    return rc;
}

static void mapping_release(struct mapping *mapping)
{
    assert(mapping->request == NULL);
    ckpt_map_release(&mapping->map);
    *mapping = (struct mapping){ 0 };
}

static void release(struct ckpt_redundancy *self)
{
    struct ckpt_partner *partner = partner_of(self);
    mapping_release(&partner->own);
    for (int i = 0; i < partner->kept_count; i++)
        mapping_release(&partner->kept[i]);
    partner->kept_count = 0;
}

/* A late peer may still write to the memory of a transfer that met its
 * deadline: such mappings stay until the process ends. */
static enum err exchange(struct ckpt_redundancy *self, double timeout_s)
{
    struct ckpt_partner *partner = partner_of(self);
    TRY(start(partner));
    TRY(mapping_wait(&partner->own, timeout_s));
    for (int i = 0; i < partner->kept_count; i++)
        TRY(mapping_wait(&partner->kept[i], timeout_s));
    release(self);
    return ERR_OK;
}

static enum err verify(struct ckpt_redundancy *self,
                       const struct ckpt_redundancy_save *save)
{
    enum err rc = ERR_OK;
    struct ckpt_read *reader = NULL;
    TRY_OUT(ckpt_read_create(save->dir, save->manifest, &reader));
    for (int r = 0; r < comm_size(self->comm); r++)
        if (keeps(partner_of(self), save, r))
            TRY_OUT(ckpt_read_all(reader, save->shards[r]));
out:
    ckpt_read_destroy(reader);
    return rc;
}

const struct ckpt_redundancy_ops ckpt_partner_ops = {
    .create = create,
    .destroy = destroy,
    .prepare = prepare,
    .exchange = exchange,
    .verify = verify,
    .release = release,
};
