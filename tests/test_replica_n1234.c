/* Every strategy on any number of ranks has the bits of one rank: gradients,
 * norm, weights, moments. */

#include "src/parallel/optimizer/optimizer_whole.h"
#include "tests/node_fixture.h"
#include "tests/replica_fixture.h"

/* Momentum of gradients, of which each tensor is divided by its norm: the result
 * depends on all of it. A tensor that is cut is an error. Beside its momentum it
 * keeps its norm, and matrices of each row the sum of its first elements. */
static enum err whole_update(const struct optimizer_step *step,
                             const struct kernels *kernels,
                             const struct kernel_ctx *ctx,
                             const struct optimizer_partition *partition)
{
    const struct param *param = partition->tensor;
    (void)kernels, (void)ctx;
    double sum = 0.0;
    if (partition->begin != param->offset ||
        partition->elements != param->numel)
        return err_set(ERR_INTERNAL, "%s is cut", param->name);
    for (int64_t i = 0; i < param->numel; i++)
        sum += (double)partition->gradient[i] * (double)partition->gradient[i];
    float scale = sum > 0.0 ? (float)(1.0 / sqrt(sum)) : 1.0f;
    partition->states[0][0] += scale;
    for (int64_t i = 0; i < param->shape[0] && param->dims == 2; i++)
        partition->states[1][i] += partition->gradient[i * param->shape[1]];
    for (int64_t i = 0; i < param->numel; i++) {
        float *m = &partition->moments[0][i];
        partition->scratch[i] = partition->gradient[i] * scale;
        *m = 0.9f * *m + partition->scratch[i];
        partition->weights[i] -= (float)step->lr * *m;
    }
    return ERR_OK;
}

static int whole_shape(const struct params *params, const struct param *param,
                       int state, int64_t shape[2])
{
    (void)params;
    shape[0] = state == 0 ? 1 : param->shape[0];
    return state == 0 || param->dims == 2;
}

static int64_t whole_scratch(const struct param *param)
{
    return param->numel;
}

static bool is_matrix(const struct param *param)
{
    return param->dims == 2;
}

static const struct optimizer_ops whole_tensors = {
    .name = "whole",
    .moments = { "momentum_buffer" },
    .states = { "scale", "rows" },
    .whole_tensors = true,
    .state_shape = whole_shape,
    .scratch = whole_scratch,
    .update = whole_update
};

/* Set by main(): the same for matrices, the rest is AdamW's. */
static struct optimizer_ops whole_matrices;
/* Groups of several optimizers; of some tensors nothing is kept but one
 * moment. */
static struct optimizer_group groups[] = { { "*norm*", NULL },
                                           { "*ffn* *wte*", NULL } };
static struct optimizer_group element_wise[] = { { "*norm*", NULL },
                                                 { "*ffn* *wte*", NULL } };

static void make_optimizers(void)
{
    whole_matrices = whole_tensors;
    whole_matrices.takes = is_matrix;
    whole_matrices.other = optimizer_at(0);
    groups[0].optimizer = element_wise[0].optimizer = optimizer_at(1);
    groups[1].optimizer = &whole_matrices;
    element_wise[1].optimizer = optimizer_at(2);
}

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
    { "zero3 of 2, once",
      { .strategy = REPLICA_ZERO3,
        .shard_degree = 2,
        .prefetch = 1,
        .once = true } },
};

/* Of those below, with which tensors are held, too. */
#define HELD_STRATEGIES 7

/* Others than AdamW for all: what whole tensors need, and several at once. */
static const struct strategy mixed[] = {
    { "ddp, whole tensors",
      { .strategy = REPLICA_DDP, .optimizer = &whole_tensors } },
    { "zero1, whole tensors",
      { .strategy = REPLICA_ZERO1, .optimizer = &whole_tensors } },
    { "zero1, whole matrices",
      { .strategy = REPLICA_ZERO1, .optimizer = &whole_matrices } },
    { "ddp, groups",
      { .strategy = REPLICA_DDP, .groups = groups, .group_count = 2 } },
    { "zero1, groups",
      { .strategy = REPLICA_ZERO1, .groups = groups, .group_count = 2 } },
    { "zero2, groups",
      { .strategy = REPLICA_ZERO2, .groups = element_wise, .group_count = 2 } },
    { "zero3, groups",
      { .strategy = REPLICA_ZERO3, .groups = element_wise, .group_count = 2 } },
    { "ddp, muon", { .strategy = REPLICA_DDP, .optimizer = &optimizer_muon } },
    { "zero1, muon",
      { .strategy = REPLICA_ZERO1, .optimizer = &optimizer_muon } },
    { "ddp, adafactor",
      { .strategy = REPLICA_DDP, .optimizer = &optimizer_adafactor } },
    { "zero1, adafactor",
      { .strategy = REPLICA_ZERO1, .optimizer = &optimizer_adafactor } },
    { "zero1, clip_lion",
      { .strategy = REPLICA_ZERO1, .optimizer = &optimizer_clip_lion } },
    { "ddp, adalr_lion",
      { .strategy = REPLICA_DDP, .optimizer = &optimizer_adalr_lion } },
};

/* The part of the items of a replica that has everything. */
static void copy_items(struct replica *whole, struct replica *replica)
{
    int count;
    const struct ckpt_item *all = replica_items(whole, &count);
    const struct ckpt_item *own = replica_items(replica, &count);
    for (int i = 0; i < count; i++) {
        size_t n = (size_t)(own[i].part.end - own[i].part.begin);
        if (n > 0)
            memcpy(own[i].data, (const float *)all[i].data + own[i].part.begin,
                   n * sizeof(float));
    }
}

/* What one strategy has saved another one loads. */
static void test_load(struct world *world, const struct strategy *strategy)
{
    struct replica_options to = strategy->options;
    struct replica *whole = NULL;
    struct replica *replica = NULL;
    int64_t elements = 0;
    double results[2];
    enum err rc = ERR_OK;
    to.slots = 4;
    to.leaves = 1;
    to.exact = true;
    struct replica_options from = to;
    from.strategy = REPLICA_DDP;
    from.shard_degree = from.prefetch = 0;
    TRY_OUT(make(world, world->self, &from, &whole));
    TRY_OUT(play_batch(world, whole, &from, NULL, 0, NEVER, NEVER, results));
    TRY_OUT(make(world, world->comm, &to, &replica));
    copy_items(whole, replica);
    TRY_OUT(replica_loaded(replica));
    TRY_OUT(play_batch(world, replica, &to, whole, 1, NEVER, NEVER, results));
    TRY_OUT(play_batch(world, whole, &from, NULL, 1, NEVER, NEVER, results));
out:
    everywhere(world,
               rc == ERR_OK && same_state(world, replica, whole, &elements),
               "goes on from the state of ddp", strategy->name);
    replica_destroy(replica);
    replica_destroy(whole);
}

/* Which tensor the item is about. */
static int tensor_of(const struct params *params, const struct ckpt_item *item)
{
    size_t length = strlen(item->name);
    for (int p = 0; p < params->count; p++) {
        size_t bytes = strlen(params->list[p].name);
        if (length >= bytes &&
            strcmp(item->name + length - bytes, params->list[p].name) == 0)
            return p;
    }
    return -1;
}

/* Weights, moments and all else of a tensor that is held stay as they are, and
 * the others' are as if nothing was. */
static void test_held(struct world *world, const struct strategy *strategy)
{
    struct replica_options options = strategy->options;
    struct replica *three[3] = { NULL }; /* fresh, updated, held */
    bool held[512];
    bool right = true;
    double results[2];
    int count = 0;
    enum err rc = ERR_OK;
    options.slots = 4;
    options.leaves = 1;
    options.exact = true;
    for (int i = 0; i < 3; i++)
        TRY_OUT(make(world, world->comm, &options, &three[i]));
    const struct ckpt_item *items = replica_items(three[0], &count);
    for (int p = 0; p < world->params->count; p++)
        held[p] = p % 3 == 1;
    replica_hold(three[2], held);
    for (int i = 1; i < 3; i++)
        TRY_OUT(play_batch(world, three[i], &options, NULL, 0, NEVER, NEVER,
                           results));
    for (int i = 0; i < count; i++) {
        const struct ckpt_item *item = &items[i];
        size_t n = (size_t)(item->part.end - item->part.begin);
        int like = held[tensor_of(world->params, item)] ? 0 : 1;
        int items_count;
        right =
            right &&
            (n == 0 || memcmp(replica_items(three[2], &items_count)[i].data,
                              replica_items(three[like], &items_count)[i].data,
                              n * sizeof(float)) == 0);
    }
out:
    everywhere(world, rc == ERR_OK && right, "held tensors stay as they are",
               strategy->name);
    for (int i = 0; i < 3; i++)
        replica_destroy(three[i]);
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

/* What needs whole tensors is refused by name where blocks are cut. */
static void test_whole_check(const struct world *world)
{
    struct replica_options options = { .strategy = REPLICA_ZERO1,
                                       .groups = groups,
                                       .group_count = 2 };
    bool fine = replica_check_model(&options, world->params) == ERR_OK;
    options.strategy = REPLICA_ZERO2;
    tap_ok(fine && replica_check_model(&options, world->params) == ERR_USAGE &&
               strstr(err_text(), "optimizer whole") != NULL,
           "whole tensors are not for zero2");
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
        for (int slots = 8; strategies[s].options.once && slots <= 32;
             slots *= 2)
            test_bits(world, &strategies[s], slots, 2, slots == 16);
        if (strategies[s].options.strategy >= REPLICA_ZERO2) /* one slot */
            test_bits(world, &strategies[s], 1, 9, false);
    }
    test_load(world, &strategies[2]);
    test_load(world, &strategies[3]);
    params_destroy(world->params);
    world->params = NULL;
}

static void test_mixed(struct world *world)
{
    const struct kernel_limits limits = {
        .threads = world->ctx.threads, .tokens = 1, .width = 1, .vocab = 1
    };
    world->ctx.scratch_bytes = world->kernels->scratch_bytes(&limits);
    world->ctx.scratch =
        aligned_alloc(64, (world->ctx.scratch_bytes + 63) / 64 * 64);
    make_model(world, "llama-tiny", 3, 300);
    for (int s = 0; s < (int)(sizeof mixed / sizeof *mixed); s++) {
        test_bits(world, &mixed[s], 5, 1, false);
        test_load(world, &mixed[s]);
        if (s < HELD_STRATEGIES)
            test_held(world, &mixed[s]);
    }
    test_whole_check(world);
    params_destroy(world->params);
    free(world->ctx.scratch);
    world->ctx = (struct kernel_ctx){ .threads = world->ctx.threads };
}

int main(int argc, char **argv)
{
    struct world world;
    struct model_config config;
    node_pairs();
    if (!open_world(&world, &argc, &argv))
        return tap_done();
    make_optimizers();
    test_check();
    test_model(&world, "mpt-tiny", 3, 300);
    test_model(&world, "mpt-tiny", 1, 3000); /* ends in several rounds */
    test_model(&world, "llama-tiny", 4, 1000);
    if (world.ranks > 1)
        test_mixed(&world);
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
