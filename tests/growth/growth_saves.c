/* Rows of saves: what ranks agree on, and who protects whose shard. */

#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_holders.h"
#include "checkpoint/local/ckpt_nodes.h"
#include "checkpoint/local/ckpt_xor.h"
#include "tests/growth/growth.h"

#define NODE 8 /* ranks */

/* A save of one rank's, which has nothing of the tensor, as others have not: its
 * control and no file but the manifest. Each file's maker has two messages more
 * for rank 0. */
static bool save(int rank, int ranks, bool measured_start,
                 struct growth_cost *cost)
{
    struct comm *comm = stub_comm_create(rank, ranks, NODE);
    struct ckpt_item item = { .name = "w", .dtype = DTYPE_F32, .dims = 1 };
    struct ckpt_options options = { .attempt = "1.1", .keep = 1 };
    struct ckpt_progress progress = { 0 };
    struct ckpt_saver *saver = NULL;
    const char *run = tap_folder();
    double begin_s = growth_clock();
    bool good =
        ckpt_saver_create(comm, run, &options, &item, 1, &saver) == ERR_OK;
    cost->seconds = growth_clock() - begin_s;
    cost->counts = stub_comm_counts(comm);
    if (!measured_start) {
        begin_s = growth_clock();
        good = good && ckpt_saver_start(saver, 7, NULL) == ERR_OK &&
               ckpt_saver_wait(saver, &progress) == ERR_OK &&
               progress.phase == CKPT_COMMITTED;
        cost->seconds = growth_clock() - begin_s;
        cost->counts = stub_comm_counts(comm);
    }
    if (!good)
        tap_note("%s", progress.text[0] != 0 ? progress.text : err_text());
    ckpt_saver_destroy(saver);
    comm_destroy(comm);
    return good;
}

static bool saver_made(int ranks, struct growth_cost *cost)
{
    return save(ranks / 2, ranks, true, cost);
}

static bool save_other(int ranks, struct growth_cost *cost)
{
    return save(ranks / 2, ranks, false, cost) && cost->counts.rounds <= 8 &&
           cost->counts.messages <= 2;
}

static bool save_first(int ranks, struct growth_cost *cost)
{
    return save(0, ranks, false, cost) && cost->counts.rounds <= 8;
}

static bool nodes_and_sets(int ranks, struct growth_cost *cost)
{
    struct comm *comm = stub_comm_create(ranks / 2, ranks, NODE);
    struct ckpt_nodes nodes = { 0 };
    struct ckpt_xor *parity = NULL;
    double begin_s = growth_clock();
    bool good = ckpt_nodes_create(comm, &nodes) == ERR_OK &&
                ckpt_xor_create(comm, 4, "local", &parity) == ERR_OK;
    cost->seconds = growth_clock() - begin_s;
    cost->counts = stub_comm_counts(comm);
    good = good && nodes.count == ranks / NODE &&
           nodes.node[ranks - 1] == nodes.count - 1 &&
           ckpt_nodes_rank_at(&nodes, 1, 1) == NODE + 1;
    ckpt_xor_destroy(parity);
    ckpt_nodes_free(&nodes);
    comm_destroy(comm);
    return good;
}

/* Shards lie on the nodes of those who wrote them. */
static void others(void *arg, int number, char *data, const size_t *bytes,
                   const size_t *offsets)
{
    int ranks = *(const int *)arg;
    for (int r = 0; r < ranks; r++) {
        int list[NODE];
        size_t length = sizeof list;
        for (int i = 0; i < NODE; i++)
            list[i] = r / NODE * NODE + i;
        memcpy(data + offsets[r], number == 0 ? (const void *)&length : list,
               bytes[r]);
    }
}

static bool holders_gathered(int ranks, struct growth_cost *cost)
{
    struct comm *comm = stub_comm_create(0, ranks, NODE);
    bool *holds = calloc((size_t)ranks, sizeof *holds);
    struct ckpt_holders holders;
    for (int s = 0; s < NODE; s++)
        holds[s] = true;
    stub_comm_others(comm, others, &ranks);
    double begin_s = growth_clock();
    bool good = ckpt_holders_gather(comm, holds, ranks, &holders) == ERR_OK;
    cost->seconds = growth_clock() - begin_s;
    cost->counts = stub_comm_counts(comm);
    for (int s = 0; s < ranks && good; s++)
        good = ckpt_holders_lowest(&holders, s) == s / NODE * NODE &&
               ckpt_holders_has(&holders, s, s) &&
               !ckpt_holders_has(&holders, s, (s + NODE) % ranks);
    ckpt_holders_free(&holders);
    free(holds);
    comm_destroy(comm);
    return good;
}

const struct growth_row growth_saves[] = {
    { "saver made", GROWTH_START, 0, NULL, 0, saver_made },
    { "save's control, any rank", GROWTH_START, 0, NULL, 0, save_other },
    { "save's control, rank 0", GROWTH_START, 0, NULL, 0, save_first },
    { "nodes and XOR sets", GROWTH_START, 0, NULL, 0, nodes_and_sets },
    { "who holds which shard", GROWTH_START, 0, NULL, 0, holders_gathered },
    { 0 }
};
