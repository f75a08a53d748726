/* Every strategy on any number of ranks has the bits of one rank: gradients,
 * norm, weights, moments. */
#include <math.h>

#include "tests/replica_fixture.h"

/* Momentum of gradients, of which each matrix is divided by its norm: the
 * result depends on all of it. A matrix that is cut is an error. */
static enum err whole_update(const struct optimizer_step *step,
                             const struct kernels *kernels,
                             const struct kernel_ctx *ctx,
                             const struct optimizer_piece *piece)
{
    (void)kernels, (void)ctx;
    for (int p = 0; p < piece->params->count; p++) {
        const struct param *param = &piece->params->list[p];
        int64_t begin = param->offset - piece->begin;
        int64_t end = begin + param->numel;
        double sum = 0.0;
        int64_t first = begin < 0 ? 0 : begin;
        int64_t last = end < piece->elements ? end : piece->elements;
        if (first >= last)
            continue;
        if (param->dims == 2 && (first != begin || last != end))
            return err_set(ERR_INTERNAL, "%s is cut", param->name);
        for (int64_t i = first; i < last && param->dims == 2; i++)
            sum += (double)piece->gradient[i] * (double)piece->gradient[i];
        float scale = sum > 0.0 ? (float)(1.0 / sqrt(sum)) : 1.0f;
        for (int64_t i = first; i < last; i++) {
            float *m = &piece->moments[0][i];
            *m = 0.9f * *m + piece->gradient[i] * scale;
            piece->weights[i] -= (float)step->lr * *m;
        }
    }
    return ERR_OK;
}

static const struct optimizer_ops whole_matrices = {
    .name = "whole",
    .moments = { "momentum_buffer" },
    .whole_matrices = true,
    .update = whole_update
};

static const struct strategy strategies[] = {
    { "ddp", { .strategy = REPLICA_DDP } },
    { "zero1", { .strategy = REPLICA_ZERO1 } },
    { "zero2", { .strategy = REPLICA_ZERO2 } },
    { "zero3", { .strategy = REPLICA_ZERO3, .prefetch = 1 } },
    { "zero3, nothing ahead", { .strategy = REPLICA_ZERO3 } },
    { "zero3, three ahead", { .strategy = REPLICA_ZERO3, .prefetch = 3 } },
    { "zero3 of 1", { .strategy = REPLICA_ZERO3, .shard_degree = 1 } },
    { "zero3 of 2",
      { .strategy = REPLICA_ZERO3, .shard_degree = 2, .prefetch = 1 } },
    { "ddp, whole matrices",
      { .strategy = REPLICA_DDP, .optimizer = &whole_matrices } },
    { "zero1, whole matrices",
      { .strategy = REPLICA_ZERO1, .optimizer = &whole_matrices } },
};

/* What one strategy has saved another one loads. */
static void test_load(struct world *world)
{
    struct replica_options from = {
        .strategy = REPLICA_DDP, .slots = 4, .leaves = 1, .exact = true
    };
    struct replica_options to = from;
    struct replica *whole = NULL;
    struct replica *replica = NULL;
    int64_t elements = 0;
    int count;
    double results[2];
    enum err rc = ERR_OK;
    to.strategy = REPLICA_ZERO3;
    to.shard_degree = world->ranks % 2 == 0 ? 2 : 0;
    TRY_OUT(make(world, world->self, &from, &whole));
    TRY_OUT(play_batch(world, whole, &from, NULL, 0, NEVER, NEVER, results));
    TRY_OUT(make(world, world->comm, &to, &replica));
    const struct ckpt_item *all = replica_items(whole, &count);
    const struct ckpt_item *own = replica_items(replica, &count);
    for (int i = 0; i < count; i++) {
        size_t n = (size_t)(own[i].part.end - own[i].part.begin);
        if (n > 0)
            memcpy(own[i].data, (const float *)all[i].data + own[i].part.begin,
                   n * sizeof(float));
    }
    TRY_OUT(replica_loaded(replica));
    TRY_OUT(play_batch(world, replica, &to, whole, 1, NEVER, NEVER, results));
    TRY_OUT(play_batch(world, whole, &from, NULL, 1, NEVER, NEVER, results));
out:
    everywhere(world,
               rc == ERR_OK && same_state(world, replica, whole, &elements),
               "goes on from the state of ddp", "zero3");
    replica_destroy(replica);
    replica_destroy(whole);
}

/* Gradients rounded on their way: nearly the same, and the same again. */
static void test_bf16(struct world *world, struct replica_options options)
{
    struct replica *replica = NULL;
    double exact[2] = { 0 }, first[2] = { 0 }, again[2] = { 1 };
    enum err rc = ERR_OK;
    options.slots = 4;
    options.leaves = 2;
    TRY_OUT(make(world, world->comm, &options, &replica));
    TRY_OUT(play_batch(world, replica, &options, NULL, 0, NEVER, NEVER, exact));
    for (int i = 0; i < 2; i++) {
        replica_destroy(replica);
        replica = NULL;
        options.reduce_bf16 = true;
        TRY_OUT(make(world, world->comm, &options, &replica));
        TRY_OUT(play_batch(world, replica, &options, NULL, 0, NEVER, NEVER,
                           i == 0 ? first : again));
    }
out:
    everywhere(world, rc == ERR_OK && first[1] == again[1],
               "bf16 gradients: the same norm twice", "not elastic");
    tap_is_close(first[1], exact[1], 1e-2, "bf16 gradients: nearly the norm");
    if (world->ranks > 1)
        tap_ok(first[1] != exact[1], "bf16 gradients: they were rounded");
    replica_destroy(replica);
}

static void test_check(void)
{
    static const struct {
        struct replica_options options;
        int ranks;
        const char *text; /* NULL: fine */
    } cases[] = {
        { { .strategy = REPLICA_ZERO3, .shard_degree = 2 }, 4, NULL },
        { { .strategy = REPLICA_ZERO3, .shard_degree = 2 }, 3, "3 ranks" },
        { { .strategy = REPLICA_ZERO3, .shard_degree = 8 }, 4, "(8)" },
        { { .strategy = REPLICA_ZERO1, .shard_degree = 2 }, 4, "zero3" },
        { { .strategy = REPLICA_ZERO3, .reduce_bf16 = true }, 4, NULL },
        { { .strategy = REPLICA_ZERO2, .reduce_bf16 = true }, 3, NULL },
        { { .strategy = REPLICA_ZERO1, .reduce_bf16 = true }, 4, "zero2" },
        { { .strategy = REPLICA_ZERO3, .reduce_bf16 = true, .exact = true },
          4,
          "elastic" },
        { { .strategy = REPLICA_ZERO1, .sequence_chunks = 2 }, 1, "zero2" },
        { { .strategy = REPLICA_DDP, .sequence_degree = 2 }, 2, "zero3" },
        { { .strategy = REPLICA_ZERO2, .sequence_chunks = 2 }, 1, NULL },
        { { .strategy = REPLICA_ZERO3,
            .sequence_chunks = 4,
            .sequence_degree = 2 },
          4,
          NULL },
        { { .strategy = REPLICA_ZERO3,
            .sequence_chunks = 3,
            .sequence_degree = 2 },
          4,
          "sequence_chunks (3)" },
        { { .strategy = REPLICA_ZERO2,
            .sequence_chunks = 2,
            .sequence_degree = 2 },
          3,
          "3 ranks" },
        { { .strategy = REPLICA_ZERO1, .optimizer = &whole_matrices },
          3,
          NULL },
        { { .strategy = REPLICA_ZERO2, .optimizer = &whole_matrices },
          1,
          "optimizer.name=whole" },
        { { .strategy = REPLICA_ZERO1, .expert_degree = 2 }, 2, "zero2" },
        { { .strategy = REPLICA_ZERO2, .expert_degree = 2 }, 3, "3 ranks" },
        { { .strategy = REPLICA_ZERO2,
            .expert_degree = 2,
            .sequence_chunks = 2 },
          2,
          "not combined" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum err rc = replica_check(&cases[i].options, cases[i].ranks);
        const char *text = cases[i].text;
        tap_ok(text == NULL
                   ? rc == ERR_OK
                   : rc == ERR_USAGE && strstr(err_text(), text) != NULL,
               "options %zu: %s", i, text != NULL ? text : "fine");
    }
}

/* The more is spread, the less a rank needs. */
static void test_plan(struct world *world)
{
    size_t before = 0;
    for (int i = 0; i <= 3; i++) {
        struct replica_options options = strategies[i].options;
        struct replica_bytes bytes;
        options.slots = 8;
        options.leaves = 1;
        options.exact = true;
        enum err rc = replica_plan(world->params, 4, &options, &bytes);
        tap_ok(rc == ERR_OK && (i == 0 || bytes.total < before),
               "%s on 4 ranks: %zu KiB", strategies[i].name, bytes.total >> 10);
        before = bytes.total;
    }
}

static void test_model(struct world *world, const char *preset, int64_t layers,
                       int64_t vocabulary)
{
    static const int batches[][2] = { { 5, 1 }, { 7, 2 }, { 4, 3 } };
    make_model(world, preset, layers, vocabulary);
    for (int s = 0; s < (int)(sizeof strategies / sizeof *strategies); s++) {
        if (replica_check(&strategies[s].options, world->ranks) != ERR_OK)
            continue;
        for (size_t i = 0; i < sizeof batches / sizeof *batches; i++)
            test_bits(world, &strategies[s], batches[i][0], batches[i][1],
                      false);
        test_bits(world, &strategies[s], 4, 2, true);
    }
    test_load(world);
    params_destroy(world->params);
    world->params = NULL;
}

int main(int argc, char **argv)
{
    struct world world;
    struct model_config config;
    if (!open_world(&world, &argc, &argv))
        return tap_done();
    test_check();
    test_model(&world, "mpt-tiny", 3, 300);
    test_model(&world, "mpt-tiny", 1, 3000); /* ends in several rounds */
    test_model(&world, "llama-tiny", 4, 1000);
    tap_ok(model_config_preset("llama-tiny", &config) == ERR_OK &&
               params_create(&config, &world.params) == ERR_OK,
           "llama-tiny");
    test_plan(&world);
    static const struct replica_options rounded[] = {
        { .strategy = REPLICA_ZERO2 },
        { .strategy = REPLICA_ZERO3 },
        { .strategy = REPLICA_ZERO2, .sequence_chunks = 2 },
    };
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++)
        test_bf16(&world, rounded[i]);
    params_destroy(world.params);
    return close_world(&world);
}
