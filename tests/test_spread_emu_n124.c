/* Weights that ranks have together: what is computed with them has the bits of one
 * rank alone, however they lie, on processors and on a device that the host cannot
 * reach; what fails on one rank fails on all, or leaves the others in step; and what a
 * rank takes. */
#include "src/base/memory.h"
#include "src/parallel/spread.h"
#include "tests/infer_fixture.h"

struct world {
    struct comm *comm;
    int rank, ranks;
};

static void everywhere(const struct world *world, bool pass, const char *what,
                       const char *name)
{
    int64_t good = pass;
    if (!pass)
        fprintf(stderr, "# rank %d: %s: %s: %s\n", world->rank, name, what,
                err_text());
    enum err rc = comm_all_reduce_i64(world->comm, &good, 1, COMM_MIN);
    tap_ok(rc == ERR_OK && good == 1, "%s: %s", name, what);
}

/* --- the same bits --- */

static const struct {
    const char *name;
    struct model_config config;
} cases[] = {
    { "mpt", { FOUNDRY } },
    { "llama, blocks of 5 chunks", { LLAMA, .d_model = 96 } },
    { "dbrx", { DBRX, .tied = true } },
};

static enum err fill(void *arg, const struct params *params, int64_t begin,
                     int64_t end, float *out)
{
    const struct model_fixture *f = arg;
    (void)params;
    memcpy(out, f->weights + begin, (size_t)(end - begin) * sizeof *out);
    return ERR_OK;
}

static bool same_slot(const struct said *a, const struct said *b, int slot)
{
    int64_t at = (int64_t)slot * LENGTH;
    return memcmp(a->logits[at], b->logits[at], sizeof a->logits[0] * LENGTH) ==
               0 &&
           memcmp(&a->nll[at], &b->nll[at], sizeof a->nll[0] * LENGTH) == 0;
}

struct side {
    const struct kernels *kernels;
    struct kernel_ctx ctx;
    struct model_fixture *f;
};

/* Slots are dealt to the ranks, all of them to each where they do not walk together.
 * `spoiled`: the first rank's have a token that there is not. */
static enum err walk(const struct world *world, const struct side *side,
                     struct spread *spread, bool spoiled, struct said *said,
                     bool mine[SLOTS])
{
    enum err rc = ERR_OK;
    struct infer *infer = NULL;
    bool together = spread_together(spread);
    int ranks = together ? world->ranks : 1;
    int32_t wrong = VOCAB;
    const struct infer_options options = { .threads = 1,
                                           .sequences = SLOTS,
                                           .positions = LENGTH,
                                           .rows = LENGTH,
                                           .stream = side->ctx.stream };
    spoiled = spoiled && world->rank == 0;
    TRY_OUT(infer_create(&side->f->config, side->f->params, side->kernels,
                         &options, &infer));
    for (int first = 0; first < SLOTS; first += ranks) {
        int slot = first + (together ? world->rank : 0);
        spread_begin(spread);
        if (slot < SLOTS) {
            struct infer_tokens t = tokens_of(side->f, said, slot, 0, LENGTH);
            if (spoiled)
                t = (struct infer_tokens){ .count = 1, .tokens = &wrong };
            rc = infer_forward(infer, spread_access(spread), &t, 1);
            if (spoiled)
                rc = rc == ERR_USAGE ? ERR_OK : ERR_DATA;
            mine[slot] = !spoiled;
        }
        TRY_OUT(rc);
        TRY_OUT(spread_end(spread));
    }
out:
    infer_destroy(infer);
    return rc;
}

static bool agrees(const struct world *world, const struct side *side,
                   enum spread_way way, bool spoiled, struct said *said,
                   const struct said *expected)
{
    struct spread *spread = NULL;
    bool mine[SLOTS] = { false }, same = true;
    const struct replica_source source = { fill, side->f, true };
    if (spread_create(world->comm, side->kernels, &side->ctx, side->f->params,
                      &source, way, &spread) != ERR_OK)
        return false;
    memset(said, 0xff, sizeof *said);
    enum err rc = walk(world, side, spread, spoiled, said, mine);
    for (int s = 0; expected != NULL && s < SLOTS; s++)
        same = same && (!mine[s] || same_slot(said, expected, s));
    spread_destroy(spread);
    return rc == ERR_OK && same;
}

static void check_bits(const struct world *world, const struct kernels *kernels,
                       int number)
{
    const char *name = cases[number].name;
    struct side side = { kernels,
                         { .threads = 1 },
                         create(cases[number].config) };
    const struct way alone = { 1, LENGTH, CUT_WHOLE, -1 };
    bool device = kernels->memory->device;
    if (kernels->memory->use(0) != ERR_OK ||
        kernels->memory->stream_create(false, &side.ctx.stream) != ERR_OK)
        abort();
    if (!device)
        everywhere(world, says(side.f, kernels, &alone, want), "alone", name);
    everywhere(world,
               agrees(world, &side, SPREAD_NODE, false, device ? want : got,
                      device ? NULL : want),
               device ? "a copy on each device" : "a copy on the node", name);
    everywhere(world, agrees(world, &side, SPREAD_RANKS, false, got, want),
               "over ranks", name);
    everywhere(world, agrees(world, &side, SPREAD_RANKS, true, got, want),
               "a rank fails, the others go on", name);
    if (side.ctx.stream != NULL)
        kernels->memory->stream_destroy(side.ctx.stream);
    fixture_destroy(side.f);
}

/* --- what a rank takes --- */

static float element(int64_t at)
{
    return (float)((uint32_t)at * 2654435761u >> 20);
}

/* A rank that has none; -1: all have. */
static int without;

static enum err make(void *arg, const struct params *params, int64_t begin,
                     int64_t end, float *out)
{
    const struct world *world = arg;
    (void)params;
    if (world->rank == without)
        return err_set(ERR_DATA, "no weights");
    for (int64_t i = begin; i < end; i++)
        out[i - begin] = element(i);
    return ERR_OK;
}

/* Bytes that a line of smaps_rollup says. */
static int64_t rollup(const char *key)
{
    long long kib = 0;
    char line[256];
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            sscanf(line + strlen(key), "%lld", &kib);
    if (file != NULL)
        fclose(file);
    return kib * 1024;
}

/* Gathers and releases all blocks but the last, which is left to the end. */
static bool reads(struct spread *spread, const struct params *params)
{
    const struct param_access *access = spread_access(spread);
    bool right = true;
    spread_begin(spread);
    for (int b = 0; b + 1 < params->block_count && right; b++) {
        const void *lent = NULL;
        right = access->gather(access->arg, b, &lent) == ERR_OK;
        const float *values = lent;
        for (int64_t i = 0; i < params->blocks[b].elements && right; i++)
            right = values[i] == element(params->blocks[b].offset + i);
        right = access->release(access->arg, b) == ERR_OK && right;
    }
    return spread_end(spread) == ERR_OK && right;
}

static void check_memory(const struct world *world,
                         const struct kernels *kernels,
                         const struct params *params, enum spread_way way)
{
    const char *name = spread_way_names[way];
    const struct kernel_ctx ctx = { .threads = 1 };
    const struct replica_source source = { make, (void *)world, true };
    double all = (double)params->elements * 4.0, block = 0.0;
    size_t plan = 0;
    struct spread *spread = NULL;
    for (int b = 0; b < params->block_count; b++)
        block = fmax(block, (double)params->blocks[b].elements * 4.0);
    without = world->ranks - 1;
    everywhere(world,
               spread_create(world->comm, kernels, &ctx, params, &source, way,
                             &spread) == ERR_DATA &&
                   spread == NULL && strstr(err_text(), "no weights") != NULL,
               "a rank has none", name);
    without = -1;
    double before =
        (double)(way == SPREAD_NODE ? rollup("Pss:") : rollup("Rss:"));
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (file == NULL || fputs("5", file) < 0 || fclose(file) != 0)
        abort();
    bool fine = spread_create(world->comm, kernels, &ctx, params, &source, way,
                              &spread) == ERR_OK &&
                comm_barrier(world->comm) == ERR_OK &&
                spread_plan(params, world->ranks, &plan) == ERR_OK;
    fine = fine && reads(spread, params) && reads(spread, params) &&
           comm_barrier(world->comm) == ERR_OK;
    everywhere(world, fine, "twice all values, of a source once", name);
    double took =
        (way == SPREAD_NODE ? (double)rollup("Pss:") : (double)memory_peak()) -
        before;
    double bound = 1.15 * (all / world->ranks + block);
    tap_note("%s: rank %d of %d: %.1f MiB of %.1f, planned %.1f, block %.1f",
             name, world->rank, world->ranks, took / 0x1p20, all / 0x1p20,
             (double)plan / 0x1p20, block / 0x1p20);
    everywhere(world,
               took <= bound && (double)plan <= bound &&
                   took >= all / world->ranks / 2,
               "memory within 1.15 x (weights / ranks + a block)", name);
    spread_destroy(spread);
}

/* Two layers, of which buffers for a block ahead keep both: ranks whose shards lie on
 * either side of what allows them have as many all the same. */
static void check_in_step(const struct world *world)
{
    struct model_config config;
    struct params *params = NULL;
    struct spread *spread = NULL;
    const struct kernel_ctx ctx = { .threads = 1 };
    const struct replica_source source = { make, (void *)world, true };
    if (model_config_preset("llama-tiny", &config) != ERR_OK)
        abort();
    config.n_layers = 2;
    config.vocab_size = world->ranks == 2 ? 9344 : 12928;
    if (params_create(&config, &params) != ERR_OK)
        abort();
    without = -1;
    everywhere(world,
               spread_create(world->comm, *kernels_all(), &ctx, params, &source,
                             SPREAD_RANKS, &spread) == ERR_OK &&
                   reads(spread, params) && reads(spread, params) &&
                   comm_barrier(world->comm) == ERR_OK,
               "two walks, whatever a rank's shard", "two layers");
    spread_destroy(spread);
    params_destroy(params);
}

int main(int argc, char **argv)
{
    struct world world = { .comm = NULL };
    struct model_config config;
    struct params *params = NULL;
    const struct kernels *const *table = kernels_all();
    if (comm_create("auto", &argc, &argv, 60.0, &world.comm) != ERR_OK)
        abort();
    world.rank = comm_rank(world.comm);
    world.ranks = comm_size(world.comm);
    if (world.rank > 0)
        tap_silence();
    for (; *table != NULL; table++)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            if (table == kernels_all() || (*table)->memory->device)
                check_bits(&world, *table, (int)i);
    if (model_config_preset("mpt-125m", &config) != ERR_OK)
        abort();
    config.n_layers = 48;
    config.d_model = 192;
    config.n_heads = config.n_kv_heads = 6;
    config.ffn_width = 768;
    config.vocab_size = 512;
    config.max_seq_len = 64;
    if (params_create(&config, &params) != ERR_OK)
        abort();
    check_memory(&world, *kernels_all(), params, SPREAD_RANKS);
    check_memory(&world, *kernels_all(), params, SPREAD_NODE);
    params_destroy(params);
    check_in_step(&world);
    comm_destroy(world.comm);
    return tap_done();
}
