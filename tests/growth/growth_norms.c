/* Rows of what a step adds up over all ranks. */
#include "src/parallel/owner.h"
#include "tests/growth/growth.h"

/* Chunks of the flat space have values that a sum in another order shows. */
static double value_of(int64_t chunk)
{
    return 1.0 / (double)(1 + chunk * 7919 % 104729);
}

/* Fill what rank after rank brings, by who owns which chunk. */
static double fill(const struct owner *owner, double *packed)
{
    double sum = 0.0;
    size_t *next = calloc((size_t)owner->ranks, sizeof *next);
    /* each rank's partitions lie block after block; ranks follow each other */
    size_t at = 0;
    for (int r = 0; r < owner->ranks; r++) {
        next[r] = at;
        for (int b = 0; b < owner->block_count; b++) {
            int p = owner_place(owner, b, r);
            at += (size_t)(owner_begin(owner, b, p + 1) -
                           owner_begin(owner, b, p)) /
                  KERNEL_CHUNK;
        }
    }
    int64_t chunk = 0;
    for (int b = 0; b < owner->block_count; b++)
        for (int p = 0; p < owner->ranks; p++) {
            int r = owner_rank_at(owner, b, p);
            int64_t end = owner_begin(owner, b, p + 1);
            for (int64_t i = owner_begin(owner, b, p); i < end;
                 i += KERNEL_CHUNK) {
                packed[next[r]++] = value_of(chunk);
                sum += value_of(chunk++);
            }
        }
    free(next);
    return sum;
}

static bool gradient_norm(const char *preset, enum owner_cut cut, int degree,
                          int ranks, struct growth_cost *cost)
{
    const struct params *params = growth_params(preset);
    struct owner *owner = NULL;
    struct comm *comm = stub_comm_create(ranks / 2, ranks, 8);
    size_t chunks = (size_t)(params->elements / KERNEL_CHUNK);
    double *packed = malloc(chunks * sizeof *packed);
    double sum = 0.0, want = 0.0;
    bool good = owner_create(params, cut, ranks / 2, ranks, degree, 1,
                             &owner) == ERR_OK;
    if (good)
        want = fill(owner, packed);
    double begin_s = growth_clock();
    good = good && owner_chunk_sum(owner, comm, packed, &sum) == ERR_OK;
    cost->seconds = growth_clock() - begin_s;
    cost->counts = stub_comm_counts(comm);
    cost->memory = (int64_t)(chunks * sizeof *packed);
    owner_destroy(owner);
    comm_destroy(comm);
    free(packed);
    return good && sum == want;
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
    cost->memory = (ranks + 1) * (int64_t)sizeof(size_t);
    owner_destroy(owner);
    return good;
}

#define WHOLE_SPACE "finding 1, sums of subtrees"

const struct growth_row growth_norms[] = {
    { "who owns what, 70b zero3", GROWTH_START, 0, NULL, 0, owner_made },
    { "gradient norm, 70b zero3", GROWTH_STEP, 0.15, WHOLE_SPACE, 0,
      norm_blocks },
    { "gradient norm, 70b of 8", GROWTH_STEP, 0.15, WHOLE_SPACE, 0,
      norm_groups },
    { "gradient norm, 7b zero1", GROWTH_STEP, 0, NULL, 0, norm_flat },
    { 0 }
};
