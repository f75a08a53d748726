/* Replicas of a model of which only some trains: every strategy on any number
 * of ranks has the bits of one rank, blocks of which nothing trains are never
 * asked for, and every rank has what is frozen, fresh or from a source, in fp32
 * and bf16, from the first batch to the last. */
#include "tests/deferred_kernels.h"
#include "tests/replica_fixture.h"

static const struct strategy strategies[] = {
    { "ddp", { .strategy = REPLICA_DDP } },
    { "zero1", { .strategy = REPLICA_ZERO1 } },
    { "zero2", { .strategy = REPLICA_ZERO2 } },
    { "zero3", { .strategy = REPLICA_ZERO3, .prefetch = 1 } },
    { "zero2, chunks",
      { .strategy = REPLICA_ZERO2,
        .sequence_chunks = 2,
        .sequence_degree = 2 } },
};
#define STRATEGIES (int)(sizeof strategies / sizeof *strategies)

static const struct {
    const char *name, *preset;
    struct params_tuning tuning;
} models[] = {
    { "adapters", "mpt-tiny", { "", "*", 4 } },
    { "the head's norm", "mpt-tiny", { "*blocks* *.w?e.*", "", 0 } },
    { "all but the embeddings", "mpt-tiny", { "*.w?e.*", "", 0 } },
    { "the router",
      "moe-tiny",
      { "*attn* *norm* *experts* *wte* lm*", "", 0 } },
};
#define MODELS (int)(sizeof models / sizeof *models)

/* Every other element is the source's. */
static enum err fill(void *arg, const struct params *params, int64_t begin,
                     int64_t end, float *out)
{
    (void)arg;
    (void)params;
    for (int64_t i = begin + begin % 2; i < end; i += 2)
        out[i - begin] = 1.0f + (float)(i % 1000);
    return ERR_OK;
}

static void test_strategies(struct world *world, int model, enum dtype dtype)
{
    bool device = world->kernels->memory->device;
    for (int i = 0; i < STRATEGIES; i++) {
        struct strategy strategy = strategies[i];
        if (replica_check(&strategy.options, world->ranks) != ERR_OK)
            continue;
        strategy.options.dtype = dtype;
        strategy.options.exchange = device ? EXCHANGE_STAGED : EXCHANGE_AUTO;
        tap_note("%s, %s, %s", models[model].name, world->kernels->backend,
                 dtype_name(dtype));
        test_bits(world, &strategy, 4, 2, false);
        if (dtype == DTYPE_F32 && model == 0)
            test_bits(world, &strategy, 3, 1, true);
    }
}

/* Fails on all ranks alike when one cannot read. */
static enum err fail(void *arg, const struct params *params, int64_t begin,
                     int64_t end, float *out)
{
    const struct world *world = arg;
    (void)params, (void)end, (void)out;
    return world->rank + 1 == world->ranks && begin >= 0
               ? err_set(ERR_DATA, "cannot be read")
               : ERR_OK;
}

static void test_failure(struct world *world)
{
    struct replica_source source = { .fill = fail, .arg = world };
    struct replica_options options = {
        .strategy = REPLICA_ZERO1, .slots = 4, .leaves = 1, .exact = true
    };
    struct replica *replica = NULL;
    enum err rc = replica_create(world->comm, world->kernels, &world->ctx,
                                 world->params, &options, &replica);
    if (rc == ERR_OK)
        rc = replica_init_frozen(replica, 17, &source);
    everywhere(world, rc == ERR_DATA, "one rank's failure is everybody's",
               "a source");
    replica_destroy(replica);
}

static void test_model(struct world *world, int model)
{
    struct model_config config;
    struct world device;
    struct replica_source source = { .fill = fill };
    bool made = model_config_preset(models[model].preset, &config) == ERR_OK;
    config.d_model = 32;
    config.n_heads = config.n_kv_heads = 4;
    config.ffn_width = 64;
    config.n_layers = 3;
    config.vocab_size = 300;
    made = made && params_create_tuned(&config, &models[model].tuning,
                                       &world->params) == ERR_OK;
    if (!tap_ok(made, "%s", models[model].name)) {
        tap_note("%s", err_text());
        return;
    }
    const struct params *frozen = world->params->frozen;
    float *values = calloc((size_t)frozen->elements, sizeof *values);
    if (values == NULL)
        abort();
    params_init(frozen, 17, 0, frozen->elements, values);
    if (model % 2 == 1) {
        world->source = &source;
        fill(NULL, frozen, 0, frozen->elements, values);
    }
    world->frozen = values;
    test_strategies(world, model, DTYPE_F32);
    if (model < 2)
        test_strategies(world, model, DTYPE_BF16);
    if (model < 2 && open_device(world, &device)) {
        test_strategies(&device, model, DTYPE_BF16);
        device.kernels->memory->stream_destroy(device.ctx.stream);
    }
    if (model == 0)
        test_failure(world);
    world->source = NULL;
    params_destroy(world->params);
    free(values);
}

int main(int argc, char **argv)
{
    struct world world;
    if (!open_world(&world, &argc, &argv))
        return tap_done();
    for (int model = 0; model < MODELS; model++)
        test_model(&world, model);
    return close_world(&world);
}
