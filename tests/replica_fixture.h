/* Replicas for tests: a model is played by somebody who makes its calls with
 * made-up gradients, and looks whether the weights are the right ones; what a
 * strategy makes of them on all ranks is compared with ddp on one, in fp32 and
 * memory of the host. Of bf16 weights the masters are compared, and whether
 * each weight is its master rounded. */
#pragma once

#include "src/parallel/access_trace.h"
#include "src/parallel/replica.h"
#include "tests/reduce_fixture.h"
#include "tests/replica_world.h"

#define BATCHES 2
#define NEVER (-1)
#define GIVEN_UP (-2)
#define EARLIER 10 /* steps of the run before the first batch */
#define NO_LEAF (-1)
#define LEAVES_MAX 256
#define GARBAGE 1e30f /* of leaves that are thrown away */

/* A leaf on its way through the blocks. */
struct player {
    const struct world *world;
    const struct param_access *access;
    const struct param_access *reference; /* NULL: weights are not compared */
    const struct replica_options *options;
    int batch;
    int leaf, own_leaves; /* the first; NO_LEAF: it only serves others */
    int microstep_leaf;   /* the microstep's first, of all ranks */
    int calls_left;       /* NEVER: it does not fail */
};

struct strategy {
    const char *name;
    struct replica_options options;
};

static inline enum err may_go_on(struct player *player)
{
    if (player->calls_left == 0)
        return err_set(ERR_DATA, "the leaf was to fail here");
    if (player->calls_left > 0)
        player->calls_left--;
    return ERR_OK;
}

/* What the rank sees of a block: all, or 1 / *degree of the experts. */
static inline void seen(const struct player *player, int block, int *degree,
                        int64_t *begin, int64_t *elements)
{
    const struct param_block *b = &player->world->params->blocks[block];
    *degree = 1;
    if (player->options->expert_degree > 1 && b->kind == PARAM_BLOCK_EXPERTS)
        *degree = player->options->expert_degree;
    *elements = b->elements / *degree;
    *begin = player->world->rank % *degree * *elements;
}

/* What is done to a tensor: weights are compared, or a gradient is filled. */
struct deed {
    struct player player;
    int block, part, leaf;
    int64_t begin, elements;
    bool begins; /* the matrices of the gradient */
    void *tensor;
    const float *want;
};

/* *deed is copied; `run` frees the copy. */
static inline void in_order(const struct world *world, bool (*run)(void *),
                            const struct deed *deed)
{
    struct deed *copy = malloc(sizeof *copy);
    if (copy == NULL)
        abort();
    *copy = *deed;
    if (world->reach != NULL)
        copy->tensor = world->reach(deed->tensor);
    if (world->enqueue != NULL)
        world->enqueue(world->ctx.stream, run, copy);
    else
        run(copy);
}

static inline uint16_t rounded(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline bool compare_now(void *argument)
{
    struct deed *deed = argument;
    const uint16_t *half = deed->tensor;
    bool same = true;
    if (deed->player.options->dtype == DTYPE_F32)
        same = memcmp(deed->tensor, deed->want,
                      (size_t)deed->elements * sizeof(float)) == 0;
    else
        for (int64_t i = 0; i < deed->elements; i++)
            same = same && half[i] == rounded(deed->want[i]);
    *deed->player.world->wrong += !same;
    free(deed);
    return true;
}

/* What does not train is as it was made. */
static inline enum err play_frozen(struct player *player, int block)
{
    const struct params *frozen = player->world->params->frozen;
    const void *weights;
    if (frozen == NULL || !params_trains(frozen, block))
        return ERR_OK;
    TRY(player->access->frozen(player->access->arg, block, &weights));
    struct deed deed = { .player = *player,
                         .elements = frozen->blocks[block].elements,
                         .tensor = (void *)(uintptr_t)weights,
                         .want = player->world->frozen +
                                 frozen->blocks[block].offset };
    in_order(player->world, compare_now, &deed);
    return ERR_OK;
}

static inline enum err play_gather(struct player *player, int block)
{
    const void *weights, *want;
    int degree;
    int64_t begin, elements;
    seen(player, block, &degree, &begin, &elements);
    TRY(play_frozen(player, block));
    if (!params_trains(player->world->params, block))
        return ERR_OK;
    TRY(may_go_on(player));
    TRY(player->access->gather(player->access->arg, block, &weights));
    if (player->reference == NULL)
        return ERR_OK;
    TRY(player->reference->gather(player->reference->arg, block, &want));
    struct deed deed = { .player = *player,
                         .elements = elements,
                         .tensor = (void *)(uintptr_t)weights,
                         .want = (const float *)want + begin };
    in_order(player->world, compare_now, &deed);
    return ERR_OK;
}

static inline enum err play_release(struct player *player, int block)
{
    if (!params_trains(player->world->params, block))
        return ERR_OK;
    enum err rc = may_go_on(player);
    return rc == ERR_OK ? player->access->release(player->access->arg, block)
                        : rc;
}

/* Some of the tensors' elements get a gradient, padding never does; part tells
 * head and embedding apart. */
static inline bool fill_now(void *argument)
{
    struct deed *deed = argument;
    const struct params *params = deed->player.world->params;
    float *gradient = deed->tensor;
    int64_t begin = deed->begin + params->blocks[deed->block].offset;
    int batch = deed->player.batch + 8 * deed->part;
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        int64_t end = param->offset + param->numel;
        bool begun = deed->begins && param->block == deed->block &&
                     param_multiplies(param);
        for (int64_t i = param->offset; i < end && begun; i++)
            if (i >= begin && i < begin + deed->elements)
                gradient[i - begin] = 0.0f;
        for (int64_t i = param->offset + deed->part;
             i < end && param->block == deed->block; i += 17)
            if (i >= begin && i < begin + deed->elements)
                gradient[i - begin] +=
                    deed->leaf == NO_LEAF
                        ? GARBAGE
                        : 1e-3f * fixture_value(batch, deed->leaf, i);
    }
    free(deed);
    return true;
}

/* In every other batch the leaf adds to the gradients of both ends in place, if
 * it may: each of its elements gets one addition. */
static inline void play_once(const struct player *player, int block)
{
    if (player->access->once != NULL && player->batch % 2 == 1 &&
        params_trains(player->world->params, block))
        (void)player->access->once(player->access->arg, block);
}

/* In two of three batches a leaf begins the matrices of layers, if it may. */
static inline bool play_begins(const struct player *player, int block)
{
    const struct param_access *access = player->access;
    bool layer = block > 0 && block < player->world->params->block_count - 1;
    return layer && player->batch % 3 > 0 && access->begins != NULL &&
           access->begins(access->arg, block);
}

/* Of the rank's own leaves, or of its experts and the leaves of its group, as
 * far as they are of the batch. */
static inline enum err play_gradient(struct player *player, int block, int part)
{
    const struct replica_options *options = player->options;
    int rank = player->world->rank;
    float *gradient;
    int degree;
    int64_t begin, elements;
    if (!params_trains(player->world->params, block))
        return ERR_OK;
    TRY(may_go_on(player));
    bool begins = play_begins(player, block);
    TRY(player->access->gradient(player->access->arg, block, &gradient));
    seen(player, block, &degree, &begin, &elements);
    int count = degree > 1 ? degree : player->own_leaves;
    int first = degree > 1 ? player->microstep_leaf + rank - rank % degree
                           : player->leaf;
    for (int i = 0; i < count; i++) {
        bool real =
            first != NO_LEAF && first + i < options->slots * options->leaves;
        struct deed deed = { .player = *player,
                             .block = block,
                             .part = part,
                             .leaf = real ? first + i : NO_LEAF,
                             .begin = begin,
                             .elements = elements,
                             .begins = begins,
                             .tensor = gradient + i * elements };
        in_order(player->world, fill_now, &deed);
    }
    return ERR_OK;
}

static inline enum err play_done(struct player *player, int block)
{
    if (!params_trains(player->world->params, block))
        return ERR_OK;
    enum err rc = may_go_on(player);
    return rc == ERR_OK
               ? player->access->gradient_done(player->access->arg, block)
               : rc;
}

static inline enum err play_head(struct player *player, bool training)
{
    int last = player->world->params->block_count - 1;
    bool tied = params_tied(player->world->params);
    if (training)
        play_once(player, last);
    TRY(play_gather(player, last));
    if (training)
        TRY(play_gradient(player, last, 0));
    if (tied)
        TRY(play_gather(player, 0));
    if (tied && training)
        play_once(player, 0);
    if (tied && training)
        TRY(play_gradient(player, 0, 1));
    if (tied)
        TRY(play_release(player, 0));
    if (training)
        TRY(play_done(player, last));
    return play_release(player, last);
}

/* The layer's block and those of its experts. */
static inline enum err play_layer(struct player *player, int layer,
                                  bool backward)
{
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
    return play_release(player, block);
}

static inline enum err play(struct player *player, bool training)
{
    const struct params *params = player->world->params;
    int layers = params_layer(params, params->block_count - 1);
    TRY(play_gather(player, 0));
    TRY(play_release(player, 0));
    for (int layer = 0; layer < layers; layer++)
        TRY(play_layer(player, layer, false));
    TRY(play_head(player, training));
    for (int layer = layers - 1;
         layer >= params_lowest_layer(params) && training; layer--)
        TRY(play_layer(player, layer, true));
    if (training) {
        if (!params_tied(params))
            play_once(player, 0);
        TRY(play_gradient(player, 0, 0));
        TRY(play_done(player, 0));
    }
    return ERR_OK;
}

#define GROUPS_MAX 4 /* with the tensors that are in none */

static inline double loss_of(int batch, int leaf)
{
    return (double)fixture_value(batch, leaf, 7) * 1.0000001;
}

/* One batch up to the update; the weights are those of `reference`. fail_rank's
 * second leaf fails after so many calls, and the batch is given up; or all ranks give it up
 * before that. */
static inline enum err
play_batch(const struct world *world, struct replica *replica,
           const struct replica_options *options, struct replica *reference,
           int batch, int fail_rank, int fail_calls, double results[2])
{
    double losses[LEAVES_MAX] = { 0 };
    struct player player = { .world = world,
                             .options = options,
                             .own_leaves = replica_own_leaves(replica),
                             .access = replica_access(replica),
                             .reference = reference != NULL
                                              ? replica_access(reference)
                                              : NULL,
                             .batch = batch };
    bool failed = false;
    replica_begin_batch(replica);
    for (int microstep = 0; microstep < replica_microsteps(replica);
         microstep++) {
        bool fails = microstep == 1 && world->rank == fail_rank;
        int leaf = replica_leaf(replica, microstep);
        if (fail_calls == GIVEN_UP && microstep == 1) {
            replica_give_up(replica);
            failed = true;
        }
        TRY(replica_begin_leaf(replica, microstep));
        /* before the model, where others need it */
        failed = failed || (fails && replica_shares(replica));
        player.calls_left =
            fails && !replica_shares(replica) ? fail_calls : NEVER;
        player.leaf = failed ? NO_LEAF : leaf;
        player.microstep_leaf = microstep * world->ranks * player.own_leaves;
        for (int i = 0; i < player.own_leaves && player.leaf >= 0; i++)
            losses[leaf + i] = loss_of(batch, leaf + i);
        if (player.leaf >= 0 || replica_serves(replica))
            failed = play(&player, true) != ERR_OK || failed;
        TRY(replica_end_leaf(replica));
    }
    if (fail_calls != NEVER)
        return ERR_OK;
    struct optimizer_step steps[GROUPS_MAX];
    for (int i = 0; i < GROUPS_MAX; i++) /* each group another rate */
        steps[i] = (struct optimizer_step){ .lr = 1e-2 / (1 + i),
                                            .decay = 1e-3,
                                            .grad_scale = 0.1,
                                            .beta1 = 0.9,
                                            .beta2 = 0.95,
                                            .eps = 1e-8,
                                            .count = batch + 1 + EARLIER,
                                            .momentum = 0.95,
                                            .ns_steps = 5,
                                            .adjust_lr = ADJUST_ORIGINAL,
                                            .clip_threshold = 1.0,
                                            .decay_rate = 0.8,
                                            .outlier_threshold = 5.0,
                                            .outlier_penalty = 0.7,
                                            .outlier_floor = 1e-4,
                                            .outlier_timeout = 100 };
    TRY(replica_finish_batch(replica));
    TRY(replica_leaf_sum(replica, losses, &results[0]));
    TRY(replica_gradient_norm(replica, &results[1]));
    TRY(replica_update(replica, steps));
    if (*world->wrong > 0)
        return err_set(ERR_INTERNAL, "%d blocks with wrong weights",
                       *world->wrong);
    return ERR_OK;
}

/* Whether what this rank would save is what the whole replica, of the host, has
 * there; and how much it is. */
static inline bool same_state(const struct world *world,
                              struct replica *replica, struct replica *whole,
                              int64_t *elements)
{
    int count, own_count;
    const struct kernel_memory *memory = world->kernels->memory;
    const struct ckpt_item *all = replica_items(whole, &count);
    const struct ckpt_item *own = replica_items(replica, &own_count);
    bool same = count == own_count;
    for (int i = 0; i < count && same; i++) {
        int64_t n = own[i].part.end - own[i].part.begin;
        size_t bytes = (size_t)n * sizeof(float);
        struct arena host = { 0 };
        same = strcmp(all[i].name, own[i].name) == 0;
        if (n > 0)
            same = same && memory->host_create(bytes, &host) == ERR_OK &&
                   memory->download(world->ctx.stream, bytes, own[i].data,
                                    host.base) == ERR_OK &&
                   memory->wait(world->ctx.stream) == ERR_OK &&
                   memcmp(host.base,
                          (const float *)all[i].data + own[i].part.begin,
                          bytes) == 0;
        memory->host_destroy(&host);
        *elements += n;
    }
    return same;
}

/* As of a run that has gone on from others, whose moments it did not take all.
 */
static inline enum err make(struct world *world, struct comm *comm,
                            const struct replica_options *options,
                            struct replica **out)
{
    int count = 0;
    TRY(replica_create(comm, world->kernels, &world->ctx, world->params,
                       options, out));
    (void)replica_items(*out, &count);
    for (int i = 0; i < count; i++)
        replica_set_began(*out, i, i / 2 % 3 * EARLIER / 2);
    TRY(replica_init(*out, 17, NULL));
    return replica_init_frozen(*out, 17, world->source);
}

/* All ranks evaluate, the last one without a leaf. */
static inline enum err play_eval(struct world *world, struct replica *replica,
                                 const struct replica_options *options,
                                 struct replica *reference)
{
    struct player player = { .world = world,
                             .options = options,
                             .access = replica_access(replica),
                             .reference = replica_access(reference),
                             .calls_left = NEVER };
    replica_begin_eval(replica);
    if (world->rank + 1 < world->ranks)
        TRY(play(&player, false));
    TRY(replica_end_eval(replica));
    TRY(world->kernels->memory->wait(world->ctx.stream));
    if (*world->wrong > 0)
        return err_set(ERR_INTERNAL, "evaluation: wrong weights");
    return ERR_OK;
}

/* The strategy on all ranks against ddp on one, batch by batch. */
static inline void test_bits(struct world *world,
                             const struct strategy *strategy, int slots,
                             int leaves, bool fails)
{
    struct replica_options options = strategy->options;
    leaves *= options.sequence_chunks > 1 ? options.sequence_chunks : 1;
    struct replica_options one = {
        .strategy = REPLICA_DDP, .slots = slots, .leaves = leaves, .exact = true
    };
    struct replica *whole = NULL;
    struct replica *replica = NULL;
    enum err rc = ERR_OK;
    struct world alone = alone_in(world);
    bool same = true;
    int64_t elements = 0;
    int64_t saved = 0;
    one.optimizer = options.optimizer;
    one.groups = options.groups;
    one.group_count = options.group_count;
    *world->wrong = 0;
    options.slots = slots;
    options.leaves = leaves;
    options.exact = true;
    TRY_OUT(make(&alone, world->self, &one, &whole));
    TRY_OUT(make(world, world->comm, &options, &replica));
    for (int batch = 0; batch < BATCHES; batch++) {
        double want[2], got[2];
        /* somewhere forward, somewhere backward */
        if (fails)
            TRY_OUT(play_batch(world, replica, &options, whole, batch,
                               world->ranks - 1, 3 + 9 * batch, got));
        if (fails)
            TRY_OUT(play_batch(world, replica, &options, whole, batch,
                               world->ranks, GIVEN_UP, got));
        TRY_OUT(play_batch(world, replica, &options, whole, batch, NEVER, NEVER,
                           got));
        TRY_OUT(
            play_batch(&alone, whole, &one, NULL, batch, NEVER, NEVER, want));
        same = same && memcmp(want, got, sizeof want) == 0;
    }
    TRY_OUT(play_eval(world, replica, &options, whole));
    same = same && same_state(world, replica, whole, &elements) &&
           same_state(&alone, whole, whole, &saved);
    TRY_OUT(comm_all_reduce_i64(world->comm, &elements, 1, COMM_SUM));
    if (elements != saved)
        rc = err_set(ERR_INTERNAL, "not every element is saved once");
out:
    tap_note("%d slots of %d leaves%s", slots, leaves,
             fails ? ", one fails" : "");
    everywhere(world, rc == ERR_OK && same, "the bits of one rank",
               strategy->name);
    replica_destroy(replica);
    replica_destroy(whole);
}
