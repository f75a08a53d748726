/* Weights of checkpoints that any strategy has written on any number of ranks
 * are read by one process, to the bit, from any interval. */
#include "src/base/log.h"
#include "src/formats/weights.h"
#include "tests/weights_fixture.h"

#define INTERVALS 40
#define IGNORED "*wte* *.blocks.1.*"
#define OTHER_SEED 5

struct world {
    struct comm *comm;
    int rank, ranks;
    char dir[FSIO_PATH_MAX];
};

static void everywhere(const struct world *world, enum err rc, bool pass,
                       const char *what, const char *name)
{
    int64_t good = rc == ERR_OK && pass;
    if (!good)
        fprintf(stderr, "# rank %d: %s: %s: %s\n", world->rank, name, what,
                err_text());
    rc = comm_all_reduce_i64(world->comm, &good, 1, COMM_MIN);
    tap_ok(rc == ERR_OK && good == 1, "%s: %s", name, what);
}

/* Random intervals of the flat space, and the whole. */
static enum err read_back(struct weights *weights, const struct params *params,
                          int rank, bool *same)
{
    enum err rc = ERR_OK;
    uint64_t stream = rng_stream("intervals");
    float *values = malloc((size_t)(params->elements + 1) * sizeof *values);
    if (values == NULL)
        return ERR_MEMORY;
    *same = true;
    for (int i = 0; i < INTERVALS && *same; i++) {
        uint64_t at = 2 * (uint64_t)i;
        uint64_t seed = (uint64_t)rank;
        int64_t begin =
            (int64_t)(rng_uniform(seed, stream, at) * (double)params->elements);
        int64_t end = begin + (int64_t)(rng_uniform(seed, stream, at + 1) *
                                        (double)(params->elements - begin));
        if (i == 0) {
            begin = 0;
            end = params->elements;
        }
        memset(values, 0xff, (size_t)(end - begin) * sizeof *values);
        TRY_OUT(weights_fill(weights, params, NULL, begin, end, values));
        *same = weights_fixture_same(params, begin, end, values);
    }
out:
    free(values);
    return rc;
}

static bool same_block(const struct params *params, int block,
                       const void *weights)
{
    const struct param_block *b = &params->blocks[block];
    size_t bytes = (size_t)b->elements * sizeof(float);
    float *want = malloc(bytes);
    if (want == NULL)
        return false;
    params_init(params, FIXTURE_SEED, b->offset, b->offset + b->elements, want);
    bool same = memcmp(want, weights, bytes) == 0;
    free(want);
    return same;
}

static enum err read_blocks(struct weights *weights,
                            const struct params *params, bool *same)
{
    enum err rc = ERR_OK;
    struct weights_readers *readers = NULL;
    TRY_OUT(weights_readers_create(weights, params, &kernel_memory_cpu, NULL, 3,
                                   &readers));
    const struct param_access *access = weights_readers_access(readers);
    *same = true;
    for (int b = 0; b < params->block_count && *same; b++) {
        const void *block = NULL;
        TRY_OUT(access->gather(access->arg, b, &block));
        *same = same_block(params, b, block);
        TRY_OUT(access->release(access->arg, b));
    }
out:
    weights_readers_destroy(readers);
    return rc;
}

/* --- into replicas --- */

static enum err fill(void *arg, const struct params *params, int64_t begin,
                     int64_t end, float *out)
{
    return weights_fill(arg, params, IGNORED, begin, end, out);
}

static enum err fill_fails(void *arg, const struct params *params,
                           int64_t begin, int64_t end, float *out)
{
    const struct world *world = arg;
    (void)params, (void)begin, (void)end, (void)out;
    return world->rank == world->ranks - 1 ? err_set(ERR_DATA, "no weights")
                                           : ERR_OK;
}

/* This rank's items: the fixture's values, fresh ones of another seed where they
 * are ignored, moments of zeros. */
static bool same_items(const struct replica *replica,
                       const struct params *params)
{
    int count = 0;
    bool same = true;
    const struct ckpt_item *items = replica_items(replica, &count);
    float *want = calloc((size_t)params->elements, sizeof *want);
    for (int i = 0; i < count && same && want != NULL; i++) {
        const struct param *param = &params->list[i % params->count];
        int64_t elements = items[i].part.end - items[i].part.begin;
        int64_t begin = param->offset + items[i].part.begin;
        if (elements == 0)
            continue;
        if (i < params->count)
            params_init(params,
                        weights_ignored(IGNORED, param->name) ? OTHER_SEED
                                                              : FIXTURE_SEED,
                        begin, begin + elements, want);
        else
            memset(want, 0, (size_t)elements * sizeof *want);
        same =
            memcmp(items[i].data, want, (size_t)elements * sizeof *want) == 0;
    }
    free(want);
    return same && want != NULL;
}

/* As every strategy keeps them, in both precisions, whatever has saved them. */
static enum err fill_replicas(const struct world *world,
                              struct weights *weights,
                              const struct params *params, bool *same)
{
    static const struct replica_options kinds[] = {
        { .strategy = REPLICA_DDP },
        { .strategy = REPLICA_ZERO1, .dtype = DTYPE_BF16 },
        { .strategy = REPLICA_ZERO2 },
        { .strategy = REPLICA_ZERO3, .prefetch = 1 },
        { .strategy = REPLICA_ZERO3, .dtype = DTYPE_BF16 },
    };
    const struct kernels *kernels = NULL;
    struct kernel_ctx ctx = { .threads = 1 };
    struct replica_source source = { fill, weights, false };
    struct replica_source broken = { fill_fails, (void *)(uintptr_t)world,
                                     true };
    *same = true;
    TRY(kernels_find("cpu", "generic", &kernels));
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct replica_options options = kinds[k];
        struct replica *replica = NULL;
        options.slots = 4;
        options.leaves = 1;
        TRY(replica_create(world->comm, kernels, &ctx, params, &options,
                           &replica));
        enum err rc = replica_init(replica, OTHER_SEED, &source);
        *same = *same && rc == ERR_OK && same_items(replica, params) &&
                replica_init(replica, OTHER_SEED, &broken) == ERR_DATA;
        replica_destroy(replica);
        TRY(rc);
    }
    return ERR_OK;
}

static bool same_about(const struct weights_about *about,
                       const struct model_config *config, const char *path)
{
    struct model_config now = about->config;
    now.preset = config->preset;
    return about->kind == WEIGHTS_CHECKPOINT &&
           memcmp(&now, config, sizeof now) == 0 &&
           strcmp(about->path, path) == 0 &&
           strcmp(about->dtype, "float32") == 0 &&
           about->step == FIXTURE_STEP && about->tokens == 12345 &&
           strlen(about->sha256) == 64 && about->vocab == 290 &&
           about->bos == -1 && about->eos == 7 &&
           strcmp(about->chat_template, "{{ messages }}") == 0 &&
           about->tokenizer_bytes == 11 &&
           memcmp(about->tokenizer, "{\"a\": \"tok\"", 11) == 0 &&
           about->builtin_tokenizer == NULL;
}

static const struct {
    const char *name, *preset;
    struct replica_options options;
} cases[] = {
    { "ddp", "mpt-tiny", { .strategy = REPLICA_DDP } },
    { "zero1", "llama-tiny", { .strategy = REPLICA_ZERO1 } },
    { "zero1, bf16",
      "mpt-tiny",
      { .strategy = REPLICA_ZERO1, .dtype = DTYPE_BF16 } },
    { "zero2", "moe-tiny", { .strategy = REPLICA_ZERO2 } },
    { "zero3", "mpt-tiny", { .strategy = REPLICA_ZERO3, .prefetch = 1 } },
    { "zero3, bf16",
      "llama-tiny",
      { .strategy = REPLICA_ZERO3, .dtype = DTYPE_BF16 } },
};

static void test_case(const struct world *world, size_t index)
{
    enum err rc = ERR_OK;
    const char *name = cases[index].name;
    char run[FSIO_PATH_MAX], step[FSIO_PATH_MAX];
    struct model_config config = { 0 };
    struct replica_options options = cases[index].options;
    struct params *params = NULL;
    struct weights *weights = NULL;
    bool pass = false, same = false;
    options.slots = 4;
    options.leaves = 1;
    TRY_OUT(fsio_path(run, "%s/run-%zu", world->dir, index));
    TRY_OUT(ckpt_index_path(step, run, FIXTURE_STEP));
    TRY_OUT(weights_fixture_config(cases[index].preset, &config));
    TRY_OUT(params_create(&config, &params));
    TRY_OUT(weights_fixture_save(world->comm, &config, &options,
                                 "{\"a\": \"tok\"", run, FIXTURE_STEP));
    TRY_OUT(comm_agree(world->comm, ERR_OK));
    TRY_OUT(weights_open(run, &weights));
    pass = same_about(weights_about(weights), &config, step);
    everywhere(world, rc, pass, "what it says of itself", name);
    TRY_OUT(weights_match(weights, params, NULL, ""));
    TRY_OUT(read_back(weights, params, world->rank, &same));
    everywhere(world, rc, same, "the same bits, any interval", name);
    TRY_OUT(read_blocks(weights, params, &same));
    everywhere(world, rc, same, "the same bits block by block", name);
    TRY_OUT(fill_replicas(world, weights, params, &same));
    everywhere(world, rc, same, "and in replicas of every kind", name);
out:
    if (rc != ERR_OK)
        everywhere(world, rc, false, "no errors", name);
    weights_close(weights);
    params_destroy(params);
}

int main(int argc, char **argv)
{
    struct world world = { 0 };
    if (comm_create("auto", &argc, &argv, 60.0, &world.comm) != ERR_OK) {
        tap_ok(false, "create: %s", err_text());
        return tap_done();
    }
    world.rank = comm_rank(world.comm);
    world.ranks = comm_size(world.comm);
    log_init("test", world.rank, LOG_ERROR);
    if (world.rank > 0)
        tap_silence();
    if (world.rank == 0 && fsio_path(world.dir, "%s", tap_folder()) != ERR_OK)
        tap_ok(false, "no folder for the test");
    (void)comm_broadcast(world.comm, world.dir, sizeof world.dir, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        test_case(&world, i);
    (void)comm_agree(world.comm, ERR_OK);
    comm_destroy(world.comm);
    return tap_done();
}
