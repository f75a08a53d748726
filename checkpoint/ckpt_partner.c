/* Sends each rank's node-local shard to a rank on the next node, which keeps a
 * copy. The alternative that takes less space is parity (ckpt_xor.c). */
#include "checkpoint/ckpt_partner.h"

#include <assert.h>
#include <stdlib.h>

#include "checkpoint/ckpt_map.h"
#include "checkpoint/ckpt_nodes.h"

#define TAG 1

struct mapping {
    int rank; /* the peer */
    struct ckpt_map map;
    struct comm_request *request; /* NULL: not started, or waited for */
};

struct ckpt_partner {
    struct comm *comm;
    int *keepers; /* [size] */
    struct mapping own;
    struct mapping *kept; /* [size], kept_count of them in use */
    int kept_count;
};

static enum err find_keepers(struct ckpt_partner *partner)
{
    struct ckpt_nodes nodes;
    TRY(ckpt_nodes_create(partner->comm, &nodes));
    for (int r = 0; r < comm_size(partner->comm); r++)
        partner->keepers[r] =
            nodes.count < 2
                ? -1
                : ckpt_nodes_rank_at(&nodes, (nodes.node[r] + 1) % nodes.count,
                                     nodes.place[r]);
    ckpt_nodes_free(&nodes);
    return ERR_OK;
}

enum err ckpt_partner_create(struct comm *comm, struct ckpt_partner **out)
{
    enum err rc = ERR_OK;
    size_t size = (size_t)comm_size(comm);
    struct ckpt_partner *partner = calloc(1, sizeof *partner);
    *out = NULL;
    if (partner != NULL) {
        partner->comm = comm;
        partner->keepers = calloc(size, sizeof *partner->keepers);
        partner->kept = calloc(size, sizeof *partner->kept);
    }
    if (partner == NULL || partner->keepers == NULL || partner->kept == NULL) {
        rc = err_set(ERR_MEMORY, "node-local copies: out of memory");
        goto out;
    }
    TRY_OUT(find_keepers(partner));
    *out = partner;
    partner = NULL;
out:
    ckpt_partner_destroy(partner);
    return rc;
}

void ckpt_partner_destroy(struct ckpt_partner *partner)
{
    if (partner == NULL)
        return;
    assert(partner->own.request == NULL && partner->own.map.data == NULL);
    assert(partner->kept_count == 0);
    free(partner->kept);
    free(partner->keepers);
    free(partner);
}

int ckpt_partner_keeper(const struct ckpt_partner *partner, int rank)
{
    assert(rank >= 0 && rank < comm_size(partner->comm));
    return partner->keepers[rank];
}

/* --- transfers --- */

static enum err map_file(const struct ckpt_partner_file *file, bool make,
                         struct mapping *mapping)
{
    TRY(ckpt_map_file(file->path, file->bytes, make, &mapping->map));
    mapping->rank = file->rank;
    return ERR_OK;
}

enum err ckpt_partner_prepare(struct ckpt_partner *partner,
                              const struct ckpt_partner_file *own,
                              const struct ckpt_partner_file *kept,
                              int kept_count)
{
    int rank = comm_rank(partner->comm);
    assert(partner->own.map.data == NULL && partner->kept_count == 0);
    if (own != NULL && partner->keepers[rank] >= 0)
        TRY(map_file(own, false, &partner->own));
    for (int i = 0; i < kept_count; i++) {
        assert(partner->keepers[kept[i].rank] == rank);
        TRY(map_file(&kept[i], true, &partner->kept[i]));
        partner->kept_count++;
    }
    return ERR_OK;
}

static enum err start(struct ckpt_partner *partner)
{
    int rank = comm_rank(partner->comm);
    for (int i = 0; i < partner->kept_count; i++) {
        struct mapping *kept = &partner->kept[i];
        TRY(comm_start_recv(partner->comm, kept->map.data, kept->map.bytes,
                            kept->rank, TAG, &kept->request));
    }
    if (partner->own.map.data != NULL)
        TRY(comm_start_send(partner->comm, partner->own.map.data,
                            partner->own.map.bytes, partner->keepers[rank], TAG,
                            &partner->own.request));
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

/* A late peer may still write to the memory of a transfer that met its
 * deadline: such mappings stay until the process ends. */
enum err ckpt_partner_exchange(struct ckpt_partner *partner, double timeout_s)
{
    TRY(start(partner));
    TRY(mapping_wait(&partner->own, timeout_s));
    for (int i = 0; i < partner->kept_count; i++)
        TRY(mapping_wait(&partner->kept[i], timeout_s));
    ckpt_partner_release(partner);
    return ERR_OK;
}

static void mapping_release(struct mapping *mapping)
{
    assert(mapping->request == NULL);
    ckpt_map_release(&mapping->map);
    *mapping = (struct mapping){ 0 };
}

void ckpt_partner_release(struct ckpt_partner *partner)
{
    mapping_release(&partner->own);
    for (int i = 0; i < partner->kept_count; i++)
        mapping_release(&partner->kept[i]);
    partner->kept_count = 0;
}
