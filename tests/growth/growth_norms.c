/* Rows of what a step adds up over all ranks. */

#include "src/parallel/owner.h"
#include "tests/growth/growth.h"

static bool gradient_norm(const char *preset, enum owner_cut cut, int degree,
                          int ranks, struct growth_cost *cost)
{
    struct owner *owner = NULL;
    struct comm *comm = stub_comm_create(ranks / 2, ranks, 8);
    double sum = 0.0, want = 0.0, *own = NULL;
    bool good = owner_create(growth_params(preset), cut, ranks / 2, ranks,
                             degree, 1, &owner) == ERR_OK;
    int64_t chunks = good ? owner->own / KERNEL_CHUNK : 0;
    own = calloc((size_t)chunks + 1, sizeof *own);
    for (int64_t i = 0; i < chunks; i++)
        want += own[i] = 1.0 / (double)(1 + i * 7919 % 104729);
    double begin_s = growth_clock();
    good = good && owner_chunk_sum(owner, comm, own, &sum) == ERR_OK;
    cost->seconds = growth_clock() - begin_s;
    cost->counts = stub_comm_counts(comm);
    cost->memory = chunks * (int64_t)sizeof *own;
    owner_destroy(owner);
    comm_destroy(comm);
    free(own);
    return good && fabs(sum - want) <= 1e-12 * want;
}

static bool norm_blocks(int ranks, struct growth_cost *cost)
{
    return gradient_norm("mpt-70b", OWNER_CUT_BLOCKS, ranks, ranks, cost);
}

static bool norm_groups(int ranks, struct growth_cost *cost)
{
    return gradient_norm("mpt-70b", OWNER_CUT_BLOCKS, 8, ranks, cost);
}

static bool norm_flat(int ranks, struct growth_cost *cost)
{
    return gradient_norm("mpt-7b", OWNER_CUT_FLAT, 1, ranks, cost);
}

static bool owner_made(int ranks, struct growth_cost *cost)
{
    struct owner *owner = NULL;
    const struct params *params = growth_params("mpt-70b");
    double begin_s = growth_clock();
    bool good = owner_create(params, OWNER_CUT_BLOCKS, ranks / 2, ranks, ranks,
                             1, &owner) == ERR_OK;
    cost->seconds = growth_clock() - begin_s;
    owner_destroy(owner);
    return good;
}

const struct growth_row growth_norms[] = {
    { "who owns what, 70b zero3", GROWTH_START, 0, NULL, 0, owner_made },
    { "gradient norm, 70b zero3", GROWTH_STEP, 0, NULL, 0, norm_blocks },
    { "gradient norm, 70b of 8", GROWTH_STEP, 0, NULL, 0, norm_groups },
    { "gradient norm, 7b zero1", GROWTH_STEP, 0, NULL, 0, norm_flat },
    { 0 }
};
