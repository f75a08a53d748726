/* Every strategy on any number of ranks has the bits of one rank: gradients,
 * norm, weights, moments. A model is played by somebody who makes its calls
 * with made-up gradients, and looks whether the weights are the right ones. */
#include "src/parallel/replica.h"

#include <stdlib.h>

#include "src/parallel/walk.h"
#include "tests/reduce_fixture.h"
#include "tests/tap.h"

#define BATCHES 2
#define NEVER (-1)

struct world {
    struct comm *comm;
    struct comm *self;
    int rank, ranks;
    const struct kernels *kernels;
    struct kernel_ctx ctx;
    struct params *params;
};

/* A leaf on its way through the blocks. */
struct player {
    const struct world *world;
    const struct param_access *access;
    const struct param_access *reference; /* NULL: weights are not compared */
    int batch, leaf;
    int calls_left; /* NEVER: it does not fail */
    int wrong;      /* blocks with other weights */
};

static const struct {
    const char *name;
    struct replica_options options;
} strategies[] = {
    { "ddp", { .strategy = REPLICA_DDP } },
    { "zero1", { .strategy = REPLICA_ZERO1 } },
    { "zero2", { .strategy = REPLICA_ZERO2 } },
    { "zero3", { .strategy = REPLICA_ZERO3, .prefetch = 1 } },
    { "zero3, nothing ahead", { .strategy = REPLICA_ZERO3 } },
    { "zero3, three ahead", { .strategy = REPLICA_ZERO3, .prefetch = 3 } },
    { "zero3 of 1", { .strategy = REPLICA_ZERO3, .shard_degree = 1 } },
    { "zero3 of 2",
      { .strategy = REPLICA_ZERO3, .shard_degree = 2, .prefetch = 1 } },
};

static void everywhere(const struct world *world, bool pass, const char *what,
                       const char *strategy)
{
    int64_t good = pass;
    enum err rc = comm_all_reduce_i64(world->comm, &good, 1, COMM_MIN);
    tap_ok(rc == ERR_OK && good == 1, "%s: %s", strategy, what);
    if (!pass)
        tap_note("rank %d: %s", world->rank, err_text());
}

static enum err may_go_on(struct player *player)
{
    if (player->calls_left == 0)
        return err_set(ERR_DATA, "the leaf was to fail here");
    if (player->calls_left > 0)
        player->calls_left--;
    return ERR_OK;
}

static enum err play_gather(struct player *player, int block)
{
    enum err rc = ERR_OK;
    const float *weights, *want;
    size_t bytes =
        (size_t)player->world->params->blocks[block].elements * sizeof *want;
    TRY(may_go_on(player));
    TRY(player->access->gather(player->access->arg, block, &weights));
    if (player->reference == NULL)
        return ERR_OK;
    TRY(player->reference->gather(player->reference->arg, block, &want));
    player->wrong += memcmp(weights, want, bytes) != 0;
out:
    return rc;
}

static enum err play_release(struct player *player, int block)
{
    enum err rc = may_go_on(player);
    return rc == ERR_OK ? player->access->release(player->access->arg, block)
                        : rc;
}

/* Some of the tensors' elements get a gradient, padding never does; part tells
 * head and embedding apart. */
static enum err play_gradient(struct player *player, int block, int part)
{
    enum err rc = ERR_OK;
    const struct params *params = player->world->params;
    float *gradient;
    TRY(may_go_on(player));
    TRY(player->access->gradient(player->access->arg, block, &gradient));
    gradient -= params->blocks[block].offset;
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        int64_t end = param->offset + param->numel;
        for (int64_t i = param->offset + part; i < end && param->block == block;
             i += 17)
            gradient[i] += 1e-3f * fixture_value(player->batch + 8 * part,
                                                 player->leaf, i);
    }
out:
    return rc;
}

static enum err play_done(struct player *player, int block)
{
    enum err rc = may_go_on(player);
    return rc == ERR_OK
               ? player->access->gradient_done(player->access->arg, block)
               : rc;
}

static enum err play_head(struct player *player, bool training)
{
    enum err rc = ERR_OK;
    int last = player->world->params->block_count - 1;
    bool tied = walk_tied(player->world->params);
    TRY(play_gather(player, last));
    if (training)
        TRY(play_gradient(player, last, 0));
    if (tied)
        TRY(play_gather(player, 0));
    if (tied && training)
        TRY(play_gradient(player, 0, 1));
    if (tied)
        TRY(play_release(player, 0));
    if (training)
        TRY(play_done(player, last));
    TRY(play_release(player, last));
out:
    return rc;
}

/* The layer's block and those of its experts. */
static enum err play_layer(struct player *player, int layer, bool backward)
{
    enum err rc = ERR_OK;
    const struct params *params = player->world->params;
    int block = params_layer_block(params, layer);
    int end = block + params->layer_blocks;
    for (int b = block; b < end; b++)
        TRY(play_gather(player, b));
    for (int b = block; b < end && backward; b++)
        TRY(play_gradient(player, b, 0));
    for (int b = block + 1; b < end && backward; b++)
        TRY(play_done(player, b));
    for (int b = block + 1; b < end; b++)
        TRY(play_release(player, b));
    if (backward)
        TRY(play_done(player, block));
    TRY(play_release(player, block));
out:
    return rc;
}

static enum err play(struct player *player, bool training)
{
    enum err rc = ERR_OK;
    const struct params *params = player->world->params;
    int layers = params_layer(params, params->block_count - 1);
    TRY(play_gather(player, 0));
    TRY(play_release(player, 0));
    for (int layer = 0; layer < layers; layer++)
        TRY(play_layer(player, layer, false));
    TRY(play_head(player, training));
    for (int layer = layers - 1; layer >= 0 && training; layer--)
        TRY(play_layer(player, layer, true));
    if (training) {
        TRY(play_gradient(player, 0, 0));
        TRY(play_done(player, 0));
    }
out:
    return rc;
}

static double loss_of(int batch, int leaf)
{
    return (double)fixture_value(batch, leaf, 7) * 1.0000001;
}

/* One batch up to the update; the weights are those of `reference`. fail_rank's
 * second leaf fails after so many calls, and the batch is given up. */
static enum err play_batch(const struct world *world, struct replica *replica,
                           struct replica *reference, int batch, int fail_rank,
                           int fail_calls, double results[2])
{
    enum err rc = ERR_OK;
    double losses[64] = { 0 };
    struct player player = { .world = world,
                             .access = replica_access(replica),
                             .reference = reference != NULL
                                              ? replica_access(reference)
                                              : NULL,
                             .batch = batch };
    bool failed = false;
    replica_begin_batch(replica);
    for (int turn = 0; turn < replica_turns(replica); turn++) {
        player.leaf = replica_leaf(replica, turn);
        player.calls_left =
            turn == 1 && world->rank == fail_rank ? fail_calls : NEVER;
        TRY(replica_begin_leaf(replica, turn));
        if (player.leaf >= 0 && !failed) {
            losses[player.leaf] = loss_of(batch, player.leaf);
            failed = play(&player, true) != ERR_OK;
        }
        TRY(replica_end_leaf(replica));
    }
    if (player.wrong > 0)
        return err_set(ERR_INTERNAL, "%d blocks with wrong weights",
                       player.wrong);
    if (fail_calls != NEVER)
        return ERR_OK;
    struct adamw step = { .lr = 1e-2f,
                          .decay = 1e-3f,
                          .beta1 = 0.9f,
                          .beta2 = 0.95f,
                          .eps = 1e-8f,
                          .correction1 = 0.1f,
                          .correction2 = 0.05f,
                          .grad_scale = 0.1f };
    TRY(replica_finish_batch(replica));
    TRY(replica_leaf_sum(replica, losses, &results[0]));
    TRY(replica_gradient_norm(replica, &results[1]));
    TRY(replica_update(replica, &step));
out:
    return rc;
}

/* Whether what this rank would save is what the whole replica has there; and
 * how much it is. */
static bool same_state(struct replica *replica, struct replica *whole,
                       int64_t *elements)
{
    int count;
    const struct ckpt_item *all = replica_items(whole, &count);
    const struct ckpt_item *own = replica_items(replica, &count);
    bool same = true;
    for (int i = 0; i < count; i++) {
        int64_t n = own[i].part.end - own[i].part.begin;
        const float *want = (const float *)all[i].data + own[i].part.begin;
        same = same && strcmp(all[i].name, own[i].name) == 0;
        if (n > 0)
            same = same &&
                   memcmp(own[i].data, want, (size_t)n * sizeof *want) == 0;
        *elements += n;
    }
    return same;
}

static enum err make(struct world *world, struct comm *comm,
                     const struct replica_options *options,
                     struct replica **out)
{
    enum err rc = ERR_OK;
    TRY(replica_create(comm, world->kernels, &world->ctx, world->params,
                       options, out));
    TRY(replica_init(*out, 17));
out:
    return rc;
}

/* All ranks evaluate, the last one without a leaf. */
static enum err play_eval(struct world *world, struct replica *replica,
                          struct replica *reference)
{
    enum err rc = ERR_OK;
    struct player player = { .world = world,
                             .access = replica_access(replica),
                             .reference = replica_access(reference),
                             .calls_left = NEVER };
    replica_begin_eval(replica);
    if (world->rank + 1 < world->ranks)
        TRY(play(&player, false));
    TRY(replica_end_eval(replica));
    if (player.wrong > 0)
        return err_set(ERR_INTERNAL, "evaluation: wrong weights");
out:
    return rc;
}

/* The strategy on all ranks against ddp on one, batch by batch. */
static void test_bits(struct world *world, int which, int slots, int leaves,
                      bool fails)
{
    struct replica_options one = {
        .strategy = REPLICA_DDP, .slots = slots, .leaves = leaves, .exact = true
    };
    struct replica_options options = strategies[which].options;
    struct replica *whole = NULL;
    struct replica *replica = NULL;
    enum err rc = ERR_OK;
    bool same = true;
    int64_t elements = 0;
    options.slots = slots;
    options.leaves = leaves;
    options.exact = true;
    TRY(make(world, world->self, &one, &whole));
    TRY(make(world, world->comm, &options, &replica));
    for (int batch = 0; batch < BATCHES; batch++) {
        double want[2], got[2];
        /* somewhere forward, somewhere backward */
        if (fails)
            TRY(play_batch(world, replica, whole, batch, world->ranks - 1,
                           3 + 9 * batch, got));
        TRY(play_batch(world, replica, whole, batch, NEVER, NEVER, got));
        TRY(play_batch(world, whole, NULL, batch, NEVER, NEVER, want));
        same = same && memcmp(want, got, sizeof want) == 0;
    }
    TRY(play_eval(world, replica, whole));
    same = same && same_state(replica, whole, &elements);
    TRY(comm_all_reduce_i64(world->comm, &elements, 1, COMM_SUM));
    if (elements != 3 * world->params->numel)
        rc = err_set(ERR_INTERNAL, "not every element is saved once");
out:
    tap_note("%d slots of %d leaves%s", slots, leaves,
             fails ? ", one fails" : "");
    everywhere(world, rc == ERR_OK && same, "the bits of one rank",
               strategies[which].name);
    replica_destroy(replica);
    replica_destroy(whole);
}

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
    TRY(make(world, world->self, &from, &whole));
    TRY(play_batch(world, whole, NULL, 0, NEVER, NEVER, results));
    TRY(make(world, world->comm, &to, &replica));
    const struct ckpt_item *all = replica_items(whole, &count);
    const struct ckpt_item *own = replica_items(replica, &count);
    for (int i = 0; i < count; i++) {
        size_t n = (size_t)(own[i].part.end - own[i].part.begin);
        if (n > 0)
            memcpy(own[i].data, (const float *)all[i].data + own[i].part.begin,
                   n * sizeof(float));
    }
    TRY(replica_loaded(replica));
    TRY(play_batch(world, replica, whole, 1, NEVER, NEVER, results));
    TRY(play_batch(world, whole, NULL, 1, NEVER, NEVER, results));
out:
    everywhere(world, rc == ERR_OK && same_state(replica, whole, &elements),
               "goes on from the state of ddp", "zero3");
    replica_destroy(replica);
    replica_destroy(whole);
}

/* Gradients rounded on their way: nearly the same, and the same again. */
static void test_bf16(struct world *world, enum replica_strategy strategy)
{
    struct replica_options options = { .strategy = strategy,
                                       .slots = 4,
                                       .leaves = 2 };
    struct replica *replica = NULL;
    double exact[2] = { 0 }, first[2] = { 0 }, again[2] = { 1 };
    enum err rc = ERR_OK;
    TRY(make(world, world->comm, &options, &replica));
    TRY(play_batch(world, replica, NULL, 0, NEVER, NEVER, exact));
    for (int i = 0; i < 2; i++) {
        replica_destroy(replica);
        replica = NULL;
        options.reduce_bf16 = true;
        TRY(make(world, world->comm, &options, &replica));
        TRY(play_batch(world, replica, NULL, 0, NEVER, NEVER,
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
    struct model_config config;
    bool pass = model_config_preset(preset, &config) == ERR_OK;
    config.d_model = 64;
    config.n_heads = 4;
    config.n_kv_heads = 4;
    config.ffn_width = 256;
    config.n_layers = layers;
    config.vocab_size = vocabulary;
    pass = pass && params_create(&config, &world->params) == ERR_OK;
    tap_ok(pass, "%s of %lld blocks, %lld tokens", preset, (long long)layers,
           (long long)vocabulary);
    for (int s = 0; s < (int)(sizeof strategies / sizeof *strategies); s++) {
        if (replica_check(&strategies[s].options, world->ranks) != ERR_OK)
            continue;
        for (size_t i = 0; i < sizeof batches / sizeof *batches; i++)
            test_bits(world, s, batches[i][0], batches[i][1], false);
        test_bits(world, s, 4, 2, true);
    }
    test_load(world);
    params_destroy(world->params);
    world->params = NULL;
}

int main(int argc, char **argv)
{
    struct world world = { .ctx = { .threads = 1 } };
    struct model_config config;
    if (comm_create("auto", &argc, &argv, 60.0, &world.comm) != ERR_OK ||
        comm_create("self", NULL, NULL, 60.0, &world.self) != ERR_OK ||
        kernels_find("cpu", "generic", &world.kernels) != ERR_OK) {
        tap_ok(false, "create: %s", err_text());
        return tap_done();
    }
    world.rank = comm_rank(world.comm);
    world.ranks = comm_size(world.comm);
    if (world.rank > 0)
        tap_silence();
    test_check();
    test_model(&world, "mpt-tiny", 3, 300);
    test_model(&world, "mpt-tiny", 1, 3000); /* ends in several rounds */
    test_model(&world, "llama-tiny", 4, 1000);
    tap_ok(model_config_preset("llama-tiny", &config) == ERR_OK &&
               params_create(&config, &world.params) == ERR_OK,
           "llama-tiny");
    test_plan(&world);
    test_bf16(&world, REPLICA_ZERO2);
    test_bf16(&world, REPLICA_ZERO3);
    params_destroy(world.params);
    comm_destroy(world.self);
    comm_destroy(world.comm);
    return tap_done();
}
