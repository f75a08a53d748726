/* The promise: the sum of gradients has the bits of the serial tree, whatever
 * the number of ranks. Every rank computes the tree for its interval itself, so
 * runs with 1, 2, 3, 4, ... ranks that all pass prove equality; so do runs on
 * one node and on several (node_fixture.h). */

#include "src/base/log.h"
#include "src/model/params.h"
#include "src/parallel/shared_weights.h"
#include "tests/node_fixture.h"
#include "tests/reduce_fixture.h"
#include "tests/tap.h"

static const int sizes[] = { 1, 3, 7 };

static void everywhere(struct comm *comm, bool pass, const char *what, int a,
                       int b)
{
    int64_t good = pass;
    enum err rc = comm_all_reduce_i64(comm, &good, 1, COMM_MIN);
    tap_ok(rc == ERR_OK && good == 1, "%d slots, %d chunks: %s", a, b, what);
    if (rc != ERR_OK)
        tap_note("%s", err_text());
}

/* Wrong elements of one batch; every second time all ranks get the total. */
static enum err reduce_batch(struct reduce *reduce, const struct owner *owner,
                             int rank, int ranks, int slots, int64_t elements,
                             int batch, int64_t stride, int64_t *wrong)
{
    float *sum;
    *wrong = 0;
    TRY(fixture_slots(reduce, owner, rank, ranks, slots, elements, batch,
                      stride));
    TRY(reduce_finish(reduce, &sum));
    if (batch % 2 != 0)
        *wrong = fixture_wrong(sum, 0, elements, slots, batch, stride);
    else if (owner == NULL)
        *wrong = fixture_wrong(sum, shard_begin(elements, rank, ranks),
                               shard_begin(elements, rank + 1, ranks), slots,
                               batch, stride);
    for (int b = 0; owner != NULL && b < owner->block_count; b++)
        *wrong += fixture_wrong(sum, owner->blocks[b].begin,
                                owner->blocks[b].end, slots, batch, stride);
    return ERR_OK;
}

static void test_tree(struct comm *comm, struct comm_tensors *tensors,
                      const struct kernels *kernels, const struct owner *owner,
                      int slots, int chunks, int batches, int64_t stride)
{
    int64_t elements =
        owner != NULL ? owner->elements : (int64_t)chunks * KERNEL_CHUNK;
    int rank = comm_rank(comm);
    int ranks = comm_size(comm);
    struct kernel_ctx ctx = { .threads = 1 };
    struct reduce *reduce = NULL;
    bool pass = reduce_create(comm, tensors, kernels, &ctx, elements, owner,
                              slots, &reduce) == ERR_OK;
    if (ranks > slots) {
        everywhere(comm, !pass, "refused: more ranks than slots", slots,
                   chunks);
        return;
    }
    for (int batch = 0; pass && batch < batches; batch++) {
        int64_t wrong;
        enum err rc = reduce_batch(reduce, owner, rank, ranks, slots, elements,
                                   batch, stride, &wrong);
        if (rc != ERR_OK)
            tap_note("%s", err_text());
        pass = rc == ERR_OK && wrong == 0;
    }
    everywhere(comm, pass,
               owner != NULL ? "piece by piece" : "the bits of the serial tree",
               slots, chunks);
    reduce_destroy(reduce);
}

/* The blocks of a model, one of which does not train. */
static void test_pieces(struct comm *comm, struct comm_tensors *tensors,
                        const struct kernels *kernels)
{
    const struct params_tuning tuning = { .freeze = "*blocks.1.*",
                                          .targets = "" };
    struct model_config config;
    struct params *params = NULL;
    struct owner *owner = NULL;
    bool made = model_config_preset("mpt-tiny", &config) == ERR_OK;
    config.n_layers = 3;
    made = made && params_create_tuned(&config, &tuning, &params) == ERR_OK &&
           owner_create(params, OWNER_CUT_BLOCKS, comm_rank(comm),
                        comm_size(comm), 1, 1, &owner) == ERR_OK;
    everywhere(comm, made && owner->blocks[2].elements == 0, "pieces", 0, 0);
    for (int slots = 1; slots <= 9 && made; slots++)
        test_tree(comm, tensors, kernels, owner, slots, 0, 6, 13);
    owner_destroy(owner);
    params_destroy(params);
}

static void test_gather(struct comm *comm, struct comm_tensors *tensors,
                        int chunks)
{
    int64_t elements = (int64_t)chunks * KERNEL_CHUNK;
    int rank = comm_rank(comm);
    int ranks = comm_size(comm);
    float *arena = calloc((size_t)elements, sizeof *arena);
    int64_t end = shard_begin(elements, rank + 1, ranks);
    for (int64_t i = shard_begin(elements, rank, ranks); i < end; i++)
        arena[i] = fixture_value(0, 0, i);
    bool pass =
        reduce_gather(tensors, elements, NULL, DTYPE_F32, arena) == ERR_OK;
    for (int64_t i = 0; i < elements; i++)
        pass = pass && arena[i] == fixture_value(0, 0, i);
    everywhere(comm, pass, "every rank gets the whole arena", 0, chunks);
    free(arena);
}

/* Twice, so that what was there before is no help; and ranks that write early
 * must not disturb those that still read. */
static void test_weights(struct comm *comm, int chunks)
{
    int64_t elements = (int64_t)chunks * KERNEL_CHUNK;
    int rank = comm_rank(comm);
    int ranks = comm_size(comm);
    struct shared_weights *weights = NULL;
    bool pass = shared_weights_create(comm, elements, NULL, DTYPE_F32,
                                      &weights) == ERR_OK;
    for (int round = 0; pass && round < 3; round++) {
        float *data = shared_weights_data(weights);
        int64_t end = shard_begin(elements, rank + 1, ranks);
        for (int64_t i = shard_begin(elements, rank, ranks); i < end; i++)
            data[i] = fixture_value(round, 0, i);
        pass = shared_weights_exchange(weights) == ERR_OK;
        for (int64_t i = 0; i < elements; i++)
            pass = pass && data[i] == fixture_value(round, 0, i);
        pass = comm_barrier(comm) == ERR_OK && pass;
    }
    everywhere(comm, pass, "every rank sees all weights", 0, chunks);
    shared_weights_destroy(weights);
}

static void test_trees(struct comm *comm, struct comm_tensors *tensors,
                       const struct kernels *kernels)
{
    for (int slots = 1; slots <= 9; slots++)
        for (unsigned c = 0; c < sizeof sizes / sizeof sizes[0]; c++)
            test_tree(comm, tensors, kernels, NULL, slots, sizes[c], 3, 1);
    test_tree(comm, tensors, kernels, NULL, 16, 2, 2, 1);
    test_tree(comm, tensors, kernels, NULL, 31, 5, 2, 1);
    /* Three rounds of the exchange with four ranks, the last one short. */
    test_tree(comm, tensors, kernels, NULL, 125, 401, 2, 61);
    test_pieces(comm, tensors, kernels);
}

int main(int argc, char **argv)
{
    /* memory as that of a device is: of each rank alone */
    struct kernel_memory memory = kernel_memory_cpu;
    struct kernels apart = fixture_kernels;
    memory.device = true;
    apart.memory = &memory;
    struct comm *comm;
    struct comm_tensors *tensors;
    if (!node_become()) {
        tap_skip("no nodes can be made up here");
        return tap_done();
    }
    if (comm_create("auto", &argc, &argv, 120.0, &comm) != ERR_OK ||
        comm_tensors_create(comm, &kernel_memory_cpu, NULL, EXCHANGE_AUTO,
                            &tensors) != ERR_OK) {
        tap_ok(false, "create: %s", err_text());
        return tap_done();
    }
    if (comm_rank(comm) > 0)
        tap_silence();
    log_init("test", comm_rank(comm),
             comm_rank(comm) > 0 ? LOG_WARN : LOG_INFO);
    everywhere(comm, node_hide(comm_rank(comm)), "/proc as it is to be", 0, 0);
    test_trees(comm, tensors, &fixture_kernels);
    test_trees(comm, tensors, &apart);
    for (unsigned c = 0; c < sizeof sizes / sizeof sizes[0]; c++) {
        test_gather(comm, tensors, sizes[c]);
        test_weights(comm, sizes[c]);
    }
    comm_tensors_destroy(tensors);
    comm_destroy(comm);
    return tap_done();
}
