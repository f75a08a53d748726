/* ddp and zero1 on nodes that are only described, as one of their ranks: in how many
 * exchanges the sums of a step travel, and that they have the tree's bits. */
#include "src/parallel/replica_impl.h"
#include "tests/growth/stub_comm.h"
#include "tests/reduce_fixture.h"
#include "tests/replica_world.h"

/* Of 2 chunks at the front, 4 a layer and 1 at the end, on nodes of a rank each. */
static const struct {
    int nodes, layers, exchanges;
} cases[] = { { 2, 3, 4 },
              { 4, 3, 3 },
              { 6, 3, 2 },
              { 8, 3, 1 },
              { BLOCK_NODES_MAX, 40, 2 },
              { BLOCK_NODES_MAX + 1, 40, 1 } };

static const struct owner *pieces;
static const void *total; /* comes back there under ddp */
static int exchanges;

/* Each sends its slot's gradient, the last piece first. */
static void send(void *arg, int number, char *data, const size_t *bytes,
                 const size_t *offsets)
{
    (void)arg, (void)number;
    if (data == total)
        return;
    int piece = pieces->block_count - ++exchanges;
    int64_t begin = pieces->blocks[piece > 0 ? piece : 0].begin;
    for (int r = 0; r < pieces->ranks; r++) {
        float *to = (float *)(void *)(data + offsets[r]);
        for (size_t i = 0; i < bytes[r] / sizeof *to; i++)
            to[i] = fixture_value(0, r, begin + (int64_t)i);
    }
}

static enum err play(struct replica *replica)
{
    const struct param_access *access = replica_access(replica);
    int64_t wrong = 0;
    pieces = replica->pieces;
    stub_comm_others(comm_tensors_comm(replica->tensors), send, NULL);
    replica_begin_batch(replica);
    TRY(replica_begin_leaf(replica, 0));
    total = replica->slot_gradient;
    fixture_fill(replica->slot_gradient, 0, pieces->elements, 0, pieces->rank,
                 1);
    for (int b = replica->params->block_count - 1; b >= 0; b--)
        TRY(access->gradient_done(access->arg, b));
    TRY(replica_end_leaf(replica));
    TRY(replica_finish_batch(replica));
    for (int b = 0; b < pieces->block_count; b++)
        wrong += fixture_wrong(replica->gradient, pieces->blocks[b].begin,
                               pieces->blocks[b].end, pieces->ranks, 0, 1);
    return wrong == 0 ? ERR_OK : err_set(ERR_INTERNAL, "other bits");
}

int main(void)
{
    for (int i = 0; i < 2 * (int)(sizeof cases / sizeof cases[0]); i++) {
        int nodes = cases[i / 2].nodes;
        struct world world = { .ctx = { .threads = 1 } };
        struct replica_options options = { .slots = nodes, .leaves = 1 };
        struct replica *replica = NULL;
        options.strategy = i % 2 == 0 ? REPLICA_DDP : REPLICA_ZERO1;
        options.exact = true;
        exchanges = 0;
        world.comm = stub_comm_create(nodes / 2, nodes, 1);
        make_model(&world, "mpt-tiny", cases[i / 2].layers, 300);
        tap_ok(kernels_find("cpu", "generic", &world.kernels) == ERR_OK &&
                   replica_create(world.comm, world.kernels, &world.ctx,
                                  world.params, &options, &replica) == ERR_OK &&
                   play(replica) == ERR_OK,
               "%s on %d nodes: the tree's bits",
               replica_strategy_names[options.strategy], nodes);
        tap_is_int(exchanges, cases[i / 2].exchanges, "exchanges");
        replica_destroy(replica);
        params_destroy(world.params);
        comm_destroy(world.comm);
    }
    return tap_done();
}
