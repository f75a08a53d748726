/* A rank that stops or dies in the exchange of gradients or weights is named by
 * all survivors, and by its name alone, before anything else ends them; and
 * what is then killed leaves nothing in /dev/shm. The program starts itself as
 * ranks under mpirun. */
#include <dirent.h>

#include "src/model/params.h"
#include "src/parallel/shared_weights.h"
#include "tests/dead_ranks.h"
#include "tests/node_fixture.h"
#include "tests/reduce_fixture.h"

#define ELEMENTS ((int64_t)64 * KERNEL_CHUNK)

enum place { BEFORE, INSIDE, WEIGHTS, NOWHERE };

static const struct {
    const char *what;
    int node_ranks; /* 0: one node */
    int victim;
    enum place place;
    int signal;
    int piece; /* of blocks, at which it ends; 0: there is one piece */
} cases[] = {
    { "stopped before the exchange", 0, 3, BEFORE, SIGSTOP, 0 },
    { "stopped while it adds", 0, 3, INSIDE, SIGSTOP, 0 },
    { "killed while it adds", 0, 0, INSIDE, SIGKILL, 0 },
    { "stopped before the weights", 0, 1, WEIGHTS, SIGSTOP, 0 },
    { "two nodes: stopped before the exchange", 2, 3, BEFORE, SIGSTOP, 0 },
    { "two nodes: stopped while it adds", 2, 3, INSIDE, SIGSTOP, 0 },
    { "two nodes: killed while it adds", 2, 2, INSIDE, SIGKILL, 0 },
    { "two nodes: killed before the weights", 2, 1, WEIGHTS, SIGKILL, 0 },
    { "two nodes: stopped before a block", 2, 3, BEFORE, SIGSTOP, 2 },
    { "two nodes: killed before a block", 2, 0, BEFORE, SIGKILL, 1 },
    { "two nodes: stopped while it adds a block", 2, 2, INSIDE, SIGSTOP, 2 },
};
#define CASES (int)(sizeof cases / sizeof cases[0])

/* --- a rank --- */

static int adding_signal; /* what ends this rank as it adds; 0: nothing */

static enum err add_or_end KERNEL_LIKE(add_tree)
{
    if (adding_signal != 0)
        raise(adding_signal);
    return fixture_add_tree(ctx, n, tree, out);
}

/* Blocks, as backward has them. */
static enum err exchange_blocks(struct comm *comm, struct comm_tensors *tensors,
                                const struct kernels *kernels, int number,
                                enum place place)
{
    const struct kernel_ctx ctx = { .threads = 1 };
    struct model_config config;
    struct params *params;
    struct owner *owner;
    struct reduce *reduce;
    float *total;
    TRY(model_config_preset("mpt-tiny", &config));
    TRY(params_create(&config, &params));
    TRY(owner_create(params, OWNER_CUT_BLOCKS, comm_rank(comm), RANKS, 1, 1,
                     &owner));
    TRY(reduce_create(comm, tensors, kernels, &ctx, params->elements, owner,
                      RANKS, &reduce));
    TRY(comm_barrier(comm));
    reduce_begin(reduce, false);
    (void)reduce_slot(reduce);
    for (int b = params->block_count - 1; b >= 0; b--) {
        bool here = b == cases[number].piece;
        if (place == BEFORE && here)
            raise(cases[number].signal);
        adding_signal = place == INSIDE && here ? cases[number].signal : 0;
        TRY(reduce_piece_done(reduce, b));
    }
    TRY(reduce_slot_done(reduce));
    return reduce_finish(reduce, &total);
}

static enum err exchange(struct comm *comm, int number)
{
    struct kernel_ctx ctx = { .threads = 1 };
    struct kernels kernels = fixture_kernels;
    struct reduce *reduce = NULL;
    struct shared_weights *weights = NULL;
    struct comm_tensors *tensors = NULL;
    int rank = comm_rank(comm);
    bool victim = rank == cases[number].victim;
    enum place place = victim ? cases[number].place : NOWHERE;
    float *own;
    kernels.add_tree = add_or_end;
    TRY(comm_tensors_create(comm, kernels.memory, NULL, EXCHANGE_AUTO,
                            &tensors));
    if (cases[number].piece > 0)
        return exchange_blocks(comm, tensors, &kernels, number, place);
    TRY(reduce_create(comm, tensors, &kernels, &ctx, ELEMENTS, NULL, RANKS,
                      &reduce));
    TRY(shared_weights_create(comm, ELEMENTS, NULL, DTYPE_F32, &weights));
    TRY(fixture_slots(reduce, NULL, rank, RANKS, RANKS, ELEMENTS, 0, 1));
    TRY(comm_barrier(comm));
    if (place == BEFORE)
        raise(cases[number].signal);
    adding_signal = place == INSIDE ? cases[number].signal : 0;
    TRY(reduce_finish(reduce, &own));
    if (place == WEIGHTS)
        raise(cases[number].signal);
    return shared_weights_exchange(weights);
}

/* Names in /dev/shm that end processes of ours may have left. */
static int shm_names(void)
{
    int count = 0;
    DIR *folder = opendir("/dev/shm");
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL)
        count += entry->d_name[0] != '.';
    if (folder != NULL)
        closedir(folder);
    return count;
}

int main(int argc, char **argv)
{
    char nodes[16];
    if (argc == 3 && !node_become())
        return 1;
    if (!ranks_prepare(argc, argv, exchange))
        return tap_done();
    bool root = unshare(CLONE_NEWNS) == 0 &&
                mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                mount("none", "/dev/shm", "tmpfs", 0, NULL) == 0;
    if (!root)
        tap_skip("no namespaces here: /dev/shm is not looked at");
    for (int i = 0; i < CASES; i++) {
        if (cases[i].node_ranks > 0 && !root) {
            tap_skip("%s: no nodes can be made up here", cases[i].what);
            continue;
        }
        snprintf(nodes, sizeof nodes, "%d", cases[i].node_ranks);
        setenv("TESSERA_TEST_NODE_RANKS", nodes, 1);
        ranks_test(i, cases[i].what, cases[i].victim);
        if (root)
            tap_is_int(shm_names(), 0, "nothing is left in /dev/shm");
    }
    return tap_done();
}
