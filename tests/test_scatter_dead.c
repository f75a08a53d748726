/* A rank that stops or dies while gradients travel in levels, within its node or between
 * nodes, is named by all others and alone: by those that wait for it, and by those of
 * the other level. The program starts itself as ranks under mpirun, whose nodes are
 * only described. */
#include "src/parallel/scatter.h"
#include "tests/dead_ranks.h"

#include "src/model/model_config.h"

static const struct {
    const char *what;
    int victim, signal;
    int blocks; /* whose gradients it has sent within its node */
} cases[] = {
    { "within the node, killed", 3, SIGKILL, 0 },
    { "between nodes, killed", 2, SIGKILL, 1 },
    { "between nodes, stopped", 1, SIGSTOP, 1 },
    { "at both levels, killed", 0, SIGKILL, 2 },
};
#define CASES (int)(sizeof cases / sizeof cases[0])

static enum err step(struct scatter *scatter, const struct params *params,
                     int number, bool victim)
{
    scatter_begin(scatter);
    for (int m = 0; m < scatter_microsteps(scatter); m++) {
        scatter_microstep(scatter, m);
        for (int b = params->block_count - 1; b >= 0; b--) {
            float *gradient;
            if (victim && m == 1 &&
                b == params->block_count - 1 - cases[number].blocks)
                raise(cases[number].signal);
            TRY(scatter_gradient(scatter, b, false, &gradient));
            TRY(scatter_done(scatter, b));
        }
        TRY(scatter_microstep_end(scatter));
    }
    return ERR_OK;
}

static enum err act(struct comm *comm, int number)
{
    enum err rc = ERR_OK;
    const int counts[] = { 2, 2 };
    const struct kernels *kernels;
    const struct kernel_ctx ctx = { .threads = 1 };
    struct model_config config;
    struct params *params;
    struct topology *topology;
    struct owner *owner;
    struct comm_tensors *tensors;
    struct scatter *scatter;
    struct scatter_options options = { .slots = 8,
                                       .leaves = 1,
                                       .own_leaves = 1 };
    TRY_OUT(kernels_find("cpu", "generic", &kernels));
    TRY_OUT(model_config_preset("mpt-tiny", &config));
    TRY_OUT(params_create(&config, &params));
    TRY_OUT(topology_describe(counts, 2, &topology));
    TRY_OUT(owner_create_rows(params, OWNER_CUT_BLOCKS, comm_rank(comm), RANKS,
                              1, 1, 2, &owner));
    options.topology = topology;
    TRY_OUT(comm_tensors_create(comm, kernels->memory, NULL, EXCHANGE_AUTO,
                                &tensors));
    TRY_OUT(scatter_create(tensors, kernels, &ctx, params, owner, &options,
                           &scatter));
    TRY_OUT(comm_barrier(comm));
    TRY_OUT(
        step(scatter, params, number, comm_rank(comm) == cases[number].victim));
out:
    return rc;
}

int main(int argc, char **argv)
{
    if (!ranks_prepare(argc, argv, act))
        return tap_done();
    for (int i = 0; i < CASES; i++)
        ranks_test(i, cases[i].what, cases[i].victim);
    return tap_done();
}
