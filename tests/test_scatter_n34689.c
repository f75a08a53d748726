/* Sums of gradients on the owners of each block have the bits of one rank, however the
 * ranks are spread over nodes, which are only described; and what leaves a node is
 * what must, as the messages themselves say. */
#include <mpi.h>

#include "src/comm/comm_impl.h"
#include "src/parallel/scatter.h"
#include "tests/reduce_fixture.h"
#include "tests/replica_world.h"

static const struct topology *nodes; /* of what is counted */
static int64_t between; /* bytes that this rank sent to other nodes */
static int64_t sent;    /* messages, to any rank */

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag,
              MPI_Comm comm, MPI_Request *request)
{
    int rank = 0;
    PMPI_Comm_rank(comm, &rank);
    if (nodes != NULL && nodes->node[rank] != nodes->node[to])
        between += count;
    sent += nodes != NULL;
    return PMPI_Isend(data, count, type, to, tag, comm, request);
}

struct layout {
    int ranks, counts[8]; /* of each node; NODE_RANKS of them */
    int radix;
    const char *what;
};

static const struct layout layouts[] = {
    { 3, { 2, 1 }, 0, "nodes of 2 and 1" },
    { 4, { 2, 2 }, 0, "2 nodes of 2" },
    { 4, { 4 }, 0, "one node" },
    { 4, { 1, 1, 1, 1 }, 0, "nodes of one" },
    { 6, { 2, 2, 2 }, 0, "3 nodes of 2" },
    { 6, { 3, 3 }, 0, "2 nodes of 3" },
    { 6, { 4, 2 }, 0, "nodes of 4 and 2" },
    { 8, { 2, 2, 2, 2 }, 0, "4 nodes of 2" },
    { 8, { 2, 2, 2, 2 }, 2, "4 nodes of 2, by pairs of nodes" },
    { 8, { 4, 4 }, 0, "2 nodes of 4" },
    /* each of 8 would bring together what 7 others send of two pieces */
    { 9, { 5, 4 }, 8, "9 ranks that nodes do not join, 8 and 1" },
};

static const struct batch {
    int slots, leaves, own;
    bool saves; /* the tree lets nodes of 2 or 4 add their leaves */
} batches[] = {
    { 16, 1, 1, true }, { 5, 2, 1, true },   { 23, 1, 2, true },
    { 1, 9, 1, false }, { 13, 1, 3, false }, { 1, 1, 1, false },
};

/* Every leaf of a step, block by block from the last to the first; of experts that are
 * apart the leaves of their group. Sums are *total, packed. without: not the experts. */
static enum err run_blocks(const struct world *world, const struct owner *owner,
                           struct scatter *scatter, const struct batch *batch,
                           bool without, const float **total)
{
    const struct params *params = world->params;
    int range = batch->slots * batch->leaves;
    if (scatter_ranges(scatter))
        range = range / owner->ranks * owner->degree;
    scatter_begin(scatter);
    for (int m = 0; m < scatter_microsteps(scatter); m++) {
        scatter_microstep(scatter, m);
        for (int b = params->block_count - 1; b >= 0; b--) {
            const struct owner_block *block = &owner->blocks[b];
            int parts = block->apart ? block->degree : batch->own;
            int leaf = block->apart
                           ? m * owner->ranks + owner->rank / parts * parts
                           : scatter_leaf(scatter, owner->rank, m);
            int64_t begin = block->apart ? block->shard_begin : block->offset;
            int64_t end = block->apart ? block->shard_end
                                       : block->offset + block->elements;
            float *gradient;
            if (block->apart && without)
                continue;
            TRY(scatter_gradient(scatter, b, false, &gradient));
            for (int i = 0; i < parts; i++)
                for (int64_t e = (begin + 60) / 61 * 61; e < end; e += 61)
                    gradient[i * (end - begin) + e - begin] =
                        leaf >= 0 && leaf % range + i < range &&
                                leaf + i < batch->slots * batch->leaves
                            ? fixture_value(1, leaf + i, e)
                            : 1e30f;
            TRY(scatter_done(scatter, b));
        }
        TRY(scatter_microstep_end(scatter));
    }
    *total = scatter_total(scatter);
    return ERR_OK;
}

static enum err run_step(const struct world *world, const struct owner *owner,
                         struct scatter *scatter, const struct batch *batch,
                         const float **total)
{
    return run_blocks(world, owner, scatter, batch, false, total);
}

static bool same_sums(const struct world *world, const struct owner *owner,
                      const float *own, const float *all)
{
    bool same = true;
    for (int b = 0; b < owner->block_count; b++) {
        const struct owner_block *block = &owner->blocks[b];
        same = same &&
               memcmp(own + block->at, all + block->begin,
                      (size_t)(block->end - block->begin) * sizeof *own) == 0;
    }
    return same && world->params->elements == owner->elements;
}

/* What is made for a case: alone on one rank, and of all on nodes. */
struct both {
    struct topology *topology;
    struct owner *whole, *owner;
    struct comm_tensors *self, *tensors;
    struct scatter *one, *scatter;
    struct reduce_bytes flat, bytes;
    bool ranges;
};

static enum err both_open(struct world *world, const struct layout *layout,
                          const struct batch *batch, int degree, int experts,
                          int group, struct both *both)
{
    const struct kernel_memory *memory = world->kernels->memory;
    const struct params *params = world->params;
    struct scatter_options options = { .slots = batch->slots,
                                       .leaves = batch->leaves,
                                       .own_leaves = batch->own,
                                       .radix = layout->radix };
    int count = 0;
    while (count < 8 && layout->counts[count] > 0)
        count++;
    TRY(topology_describe(layout->counts, count, &both->topology));
    TRY(owner_create(params, OWNER_CUT_BLOCKS, 0, 1, 1, 1, &both->whole));
    TRY(owner_create_rows(params, OWNER_CUT_BLOCKS, world->rank, world->ranks,
                          degree, experts, topology_row(both->topology),
                          &both->owner));
    TRY(comm_tensors_create(world->self, memory, NULL, EXCHANGE_AUTO,
                            &both->self));
    TRY(comm_tensors_create(world->comm, memory, NULL, EXCHANGE_AUTO,
                            &both->tensors));
    TRY(scatter_create(both->self, world->kernels, &world->ctx, params,
                       both->whole, &options, &both->one));
    TRY(scatter_plan(params, both->owner, &options, &both->flat, NULL));
    options.topology = both->topology;
    options.group = group;
    TRY(scatter_plan(params, both->owner, &options, &both->bytes,
                     &both->ranges));
    return scatter_create(both->tensors, world->kernels, &world->ctx, params,
                          both->owner, &options, &both->scatter);
}

static void both_close(struct both *both)
{
    scatter_destroy(both->scatter);
    scatter_destroy(both->one);
    comm_tensors_destroy(both->tensors);
    comm_tensors_destroy(both->self);
    owner_destroy(both->owner);
    owner_destroy(both->whole);
    topology_destroy(both->topology);
}

/* What has all of the block: a node, or a group that is on several. */
static int unit_of(const struct both *both, int block)
{
    int row = topology_row(both->topology);
    const struct owner_block *b = &both->owner->blocks[block];
    return b->apart && b->degree > row ? b->degree : row;
}

/* Each node sends what is not its own in each microstep in which it has leaves. */
static double least_between(const struct both *both, const struct batch *batch)
{
    const struct owner *owner = both->owner;
    int microsteps = scatter_microsteps(both->scatter);
    int turn = owner->ranks * batch->own;
    int last = batch->slots * batch->leaves - (microsteps - 1) * turn;
    double least = 0.0;
    for (int b = 0; b < owner->block_count; b++) {
        int unit = unit_of(both, b);
        for (int rank = 0; rank < owner->ranks; rank += unit)
            least += 4.0 * (double)owner->blocks[b].elements *
                     (1.0 - (double)unit / owner->ranks) *
                     (microsteps - (last <= rank * batch->own));
    }
    return least;
}

/* Experts' groups and nodes lie in each other. */
static bool even(const struct both *both)
{
    int row = topology_row(both->topology), of = both->owner->expert_degree;
    return row > 1 && (row % of == 0 || of % row == 0);
}

static enum err run_gather(const struct both *both, int block,
                           enum owner_group group, float *data)
{
    struct comm_tensors_request *request = NULL;
    TRY(owner_start_gather(both->owner, both->tensors, block, group, DTYPE_F32,
                           data, both->owner->blocks[block].offset, &request));
    return comm_tensors_wait(request, 0.0);
}

/* Every block's partitions, to all ranks that have them: those of one shard, or of none,
 * or of some experts. */
static enum err gather_blocks(const struct both *both, enum owner_group group,
                              int64_t *least, bool *same)
{
    enum err rc = ERR_OK;
    for (int b = 0; b < both->owner->block_count && rc == ERR_OK; b++) {
        const struct owner_block *block = &both->owner->blocks[b];
        float *data = calloc((size_t)block->elements, sizeof *data);
        enum owner_group begin = owner_gather_begin(both->owner, b, group);
        int64_t from = block->apart ? block->shard_begin : block->offset;
        int64_t end =
            block->apart ? block->shard_end : block->offset + block->elements;
        *least +=
            4 * block->elements * (both->owner->ranks / unit_of(both, b) - 1);
        for (int64_t e = block->begin; e < block->end; e++)
            data[e - block->offset] = (float)(1 + e % 4194304);
        rc = run_gather(both, b, begin, data);
        if (begin == OWNER_FAR && rc == ERR_OK)
            rc = run_gather(both, b, OWNER_NODE, data);
        for (int64_t e = from; e < end; e++)
            *same =
                *same && data[e - block->offset] == (float)(1 + e % 4194304);
        free(data);
    }
    return rc;
}

static void test_gather(struct world *world, const struct layout *layout,
                        int degree, int experts)
{
    enum err rc = ERR_OK;
    struct both both = { 0 };
    int64_t least = 0;
    bool same = true;
    TRY_OUT(both_open(world, layout, &batches[0], degree, experts, 0, &both));
    nodes = both.topology;
    between = 0;
    rc = gather_blocks(&both,
                       degree == 1 ? OWNER_REPLICA_GROUP : OWNER_SHARD_GROUP,
                       &least, &same);
    nodes = NULL;
    TRY_OUT(comm_all_reduce_i64(world->comm, &between, 1, COMM_SUM));
out:
    everywhere(world, rc == ERR_OK && same, "blocks gathered", layout->what);
    if (rc == ERR_OK && even(&both))
        tap_ok(between == least, "a node gets each partition once");
    both_close(&both);
}

/* With as many as are sent between nodes by all. */
static enum err count_step(const struct world *world, const struct both *both,
                           const struct batch *batch, bool *same)
{
    const float *all = NULL, *own = NULL;
    TRY(run_step(world, both->whole, both->one, batch, &all));
    nodes = both->topology;
    between = 0;
    TRY(run_step(world, both->owner, both->scatter, batch, &own));
    nodes = NULL;
    *same = same_sums(world, both->owner, own, all);
    return comm_all_reduce_i64(world->comm, &between, 1, COMM_SUM);
}

/* --- shard groups that exchange once a step --- */

static uint64_t state = 21;

static int below(int bound)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)bound);
}

/* Sums of a shard that wait: as many as microsteps have bits, or slots where one of them
 * ends within a subtree. */
static bool in_bounds(const struct both *both, const struct batch *batch)
{
    int each = both->owner->degree * batch->own, deep = 0;
    bool round = batch->leaves == 1 && (each & (each - 1)) == 0;
    int n = round ? scatter_microsteps(both->scatter) : 4 * batch->slots;
    for (; n > 1; n = (n + 1) / 2)
        deep++;
    size_t most = (size_t)both->owner->shard * (size_t)deep;
    return both->bytes.partial_sums <=
           (most + (size_t)both->owner->own) * sizeof(float) +
               64 * (size_t)deep;
}

/* Whether a group has a whole subtree, of more than a microstep. */
static bool whole(const struct world *world, const struct batch *batch,
                  int degree)
{
    int groups = world->ranks / degree, leaves = batch->slots * batch->leaves;
    int range = leaves / groups, slots = range / batch->leaves;
    return leaves % groups == 0 && range % batch->leaves == 0 &&
           (slots & (slots - 1)) == 0 && range > degree * batch->own;
}

/* Step by step and once, what is sent in a step of as many microsteps. */
static void test_once(struct world *world, const struct layout *layout,
                      const struct batch *batch, int degree)
{
    enum err rc = ERR_OK;
    struct both both = { 0 };
    bool same[2] = { false, false }, as_planned = false;
    int64_t bytes[2] = { 0, 0 };
    int microsteps[2] = { 0, 0 };
    for (int once = 0; once < 2; once++) {
        both = (struct both){ 0 };
        TRY_OUT(
            both_open(world, layout, batch, degree, 1, once * degree, &both));
        TRY_OUT(count_step(world, &both, batch, &same[once]));
        microsteps[once] = scatter_microsteps(both.scatter);
        bytes[once] = between;
        as_planned = both.ranges == scatter_ranges(both.scatter);
        if (once == 0)
            both_close(&both);
    }
out:
    everywhere(world, rc == ERR_OK && same[0] && same[1] && as_planned,
               "the bits of one rank, ranges or not", layout->what);
    if (rc == ERR_OK) {
        int row = both.topology->most;
        tap_note("%d x %d leaves, %d a rank, shards of %d: %d microsteps, %s, "
                 "%.3f of the bytes between nodes, sums %zu",
                 batch->slots, batch->leaves, batch->own, degree, microsteps[1],
                 both.ranges ? "once" : "each",
                 (double)bytes[1] / (double)bytes[0], both.bytes.partial_sums);
        tap_ok(microsteps[0] == microsteps[1] && (both.ranges || degree > row ||
                                                  !whole(world, batch, degree)),
               "ranges where they are whole subtrees");
        if (both.ranges)
            tap_ok(in_bounds(&both, batch), "sums that wait are bounded");
        if (both.ranges && degree == row && row % 2 == 0 && microsteps[1] == 8)
            tap_ok(6 * bytes[1] <= bytes[0], "a sixth between nodes");
        if (both.ranges && degree == row)
            tap_ok(bytes[1] ==
                       4 * world->params->elements * (both.topology->nodes - 1),
                   "each node gets one sum of what is its own");
    }
    both_close(&both);
}

/* 8 microsteps of groups that are nodes, and layouts at random. */
static void test_ranges(struct world *world, const struct layout *layout)
{
    int row = layout->counts[0], ranks = world->ranks;
    for (int i = 0; i < 8 && layout->counts[i] > 0; i++)
        if (layout->counts[i] != row || row == ranks)
            return;
    for (int degree = row; degree < ranks; degree += row) {
        if (degree == 1 || ranks % degree > 0)
            continue;
        int groups = ranks / degree;
        struct batch eight = { 8 * ranks, 1, 1, true };
        test_once(world, layout, &eight, degree);
        for (int i = 0; i < 4; i++) {
            struct batch batch = { groups << below(4), 1 + below(3),
                                   1 + below(3), true };
            if (i == 3) /* mostly no subtrees */
                batch.slots += 1 + below(ranks);
            test_once(world, layout, &batch, degree);
        }
    }
}

static void test_layout(struct world *world, const struct layout *layout,
                        const struct batch *batch, int degree, int experts)
{
    enum err rc = ERR_OK;
    struct both both = { 0 };
    bool same = false;
    TRY_OUT(both_open(world, layout, batch, degree, experts, 0, &both));
    TRY_OUT(count_step(world, &both, batch, &same));
out:
    everywhere(world, rc == ERR_OK && same, "the bits of one rank",
               layout->what);
    if (rc == ERR_OK) {
        int row = topology_row(both.topology);
        /* of nodes of one rank those with several leaves */
        bool adds = row % 2 == 0 ||
                    (batch->own == 2 && both.topology->nodes == world->ranks);
        double least = least_between(&both, batch);
        tap_note("%d x %d leaves, %d a rank, shards of %d, experts by %d: %.2f "
                 "of the least between nodes, exchange %.2f of the flat one's",
                 batch->slots, batch->leaves, batch->own, degree, experts,
                 least > 0.0 ? (double)between / least : 0.0,
                 (double)both.bytes.exchange / (double)both.flat.exchange);
        if (adds && batch->saves && layout->radix == 0)
            tap_ok((double)between <= 1.1 * least,
                   "no more between nodes than must");
        if (row == 1)
            tap_ok(both.bytes.total == both.flat.total, "as on one node");
    }
    both_close(&both);
}

/* Messages of a step of one microstep, each rank with `own` leaves. */
static enum err count_messages(struct world *world, const struct layout *layout,
                               int own, int64_t *messages, bool *same)
{
    enum err rc = ERR_OK;
    const struct batch batch = { world->ranks * own, 1, own, true };
    const float *all = NULL, *sums = NULL;
    struct both both = { 0 };
    TRY_OUT(both_open(world, layout, &batch, world->ranks, 1, 0, &both));
    TRY_OUT(run_step(world, both.whole, both.one, &batch, &all));
    nodes = both.topology;
    sent = 0;
    TRY_OUT(run_step(world, both.owner, both.scatter, &batch, &sums));
    nodes = NULL;
    *messages = sent;
    *same = *same && same_sums(world, both.owner, sums, all);
out:
    both_close(&both);
    return rc;
}

/* Leaves that are one value when it travels do so in as many messages as one leaf. */
static void test_rounds(struct world *world, const struct layout *layout)
{
    enum err rc = ERR_OK;
    int64_t one = 0, several = 0;
    bool same = true;
    TRY_OUT(count_messages(world, layout, 1, &one, &same));
    for (int own = 2; own <= 4; own *= 2) {
        TRY_OUT(count_messages(world, layout, own, &several, &same));
        same = same && several == one;
    }
out:
    everywhere(world, rc == ERR_OK && same, "chunks in one round",
               layout->what);
}

/* Collectives of a step, with the blocks of experts or without. */
static enum err count_collectives(struct world *world, struct both *both,
                                  bool without, int *collectives)
{
    const struct comm *comm = comm_tensors_comm(both->tensors);
    const float *sums;
    int before = comm->sequence;
    TRY(run_blocks(world, both->owner, both->scatter, &batches[0], without,
                   &sums));
    *collectives = comm->sequence - before;
    return ERR_OK;
}

/* Nobody else has the experts of a rank: their gradients start no exchange. */
static void test_alone(struct world *world, const struct layout *layout)
{
    enum err rc = ERR_OK;
    int with = 0, without = 0;
    struct both both = { 0 };
    TRY_OUT(both_open(world, layout, &batches[0], 1, world->ranks, 0, &both));
    TRY_OUT(count_collectives(world, &both, false, &with));
    TRY_OUT(count_collectives(world, &both, true, &without));
out:
    everywhere(world, rc == ERR_OK && with == without && with > 0,
               "no exchange of experts that one rank has", layout->what);
    both_close(&both);
}

int main(int argc, char **argv)
{
    struct world world;
    if (!open_world(&world, &argc, &argv))
        return tap_done();
    const int half = world.ranks % 2 == 0 ? world.ranks / 2 : 1;
    const int degrees[] = { world.ranks, 1, half };
    /* ends in several rounds, and chunks that do not go round */
    make_model(&world, "mpt-tiny", 3, 3000);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (layouts[i].ranks != world.ranks)
            continue;
        test_gather(&world, &layouts[i], world.ranks, 1);
        test_gather(&world, &layouts[i], 1, 1);
        /* a node of 3 is left with two values; by pairs 9 ranks stay flat */
        if (layouts[i].counts[0] != 3 && layouts[i].radix < 8)
            test_rounds(&world, &layouts[i]);
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
            test_layout(&world, &layouts[i], &batches[b], degrees[b % 3], 1);
    }
    params_destroy(world.params);
    make_model(&world, "mpt-tiny", 2, 1000);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].ranks == world.ranks)
            test_ranges(&world, &layouts[i]);
    params_destroy(world.params);
    make_model(&world, "moe-tiny", 2, 3000);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        for (int of = 2; of <= world.ranks; of *= 2) {
            if (layouts[i].ranks != world.ranks || world.ranks % of > 0)
                continue;
            test_gather(&world, &layouts[i], 1, of);
            if (of == world.ranks)
                test_alone(&world, &layouts[i]);
            for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
                if (batches[b].own == 1)
                    test_layout(&world, &layouts[i], &batches[b],
                                degrees[(b + i) % 3], of);
        }
    }
    params_destroy(world.params);
    return close_world(&world);
}
