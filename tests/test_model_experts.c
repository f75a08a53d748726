/* A group of ranks that shares the experts of a model, ranks being threads: the
 * same bits as ranks that have all experts, each expert's gradient of each leaf
 * apart, and what happens when an exchange fails. */
#include "src/model/model.h"

#include "src/model/model_impl.h"
#include "tests/expert_group.h"
#include "tests/played_device.h"

#define GATED                                                                  \
    .positions = POSITIONS_ROPE, .n_kv_heads = 2, .ffn = FFN_GLU,              \
    .activation = MODEL_SILU, .router_normalize = 1.0
#define GATED_8 GATED, .experts = 8

/* --- what is compared --- */

struct style {
    const char *name;
    struct model_config config;
    const char *memory;
    enum packing packing;
    bool dull; /* the router prefers the last half of the experts for all */
};

static const struct style styles[] = {
    { .name = "gated, top 2, jitter, dropout",
      .config = { GATED_8, .experts_top_k = 2, .router_jitter = 0.2,
                  .balance_weight = 0.1, .dropout_residual = 0.1,
                  .dropout_attention = 0.2 } },
    { .name = "gated, top 4, block computed again",
      .config = { GATED_8, .experts_top_k = 4, .router_jitter = 0.01,
                  .balance_weight = 0.05, .residual_scale = 0.7 },
      .memory = "block" },
    { .name = "gated, top 3 of 16",
      .config = { GATED, .experts = 16, .experts_top_k = 3,
                  .balance_weight = 0.1 } },
    { .name = "plain, top 1, attention computed again",
      .config = { FOUNDRY, .experts = 8, .experts_top_k = 1,
                  .balance_weight = 0.1 },
      .memory = "attention: 1" },
    { .name = "plain, L2 norm, top 2, ffn computed again",
      .config = { FOUNDRY, .experts = 4, .experts_top_k = 2,
                  .router_normalize = 2.0 },
      .memory = "ffn: 1; block: last-1" },
    { .name = "gated, top 2, packed to bf16",
      .config = { GATED_8, .experts_top_k = 2, .balance_weight = 0.1,
                  .clip_qkv = 0.6 },
      .packing = PACKING_BF16 },
    { .name = "plain, top 4, packed to int8",
      .config = { FOUNDRY, .experts = 4, .experts_top_k = 4 },
      .memory = "attention: last-1",
      .packing = PACKING_INT8 },
    { .name = "gated, top 2, half of the experts without a row",
      .config = { GATED_8, .bias = true, .experts_top_k = 2,
                  .balance_weight = 0.1 },
      .dull = true },
    { .name = "plain, top 1, half of the experts without a row",
      .config = { FOUNDRY, .experts = 4, .experts_top_k = 1 },
      .dull = true },
};

/* All tokens look much the same to the router, which prefers the last ones. */
static void make_dull(struct model_fixture *f)
{
    int64_t d = f->config.d_model;
    for (int p = 0; p < f->params->count; p++) {
        const struct param *param = &f->params->list[p];
        float *w = f->weights + param->offset;
        for (int64_t i = 0; i < param->numel; i++) {
            if (param->role == PARAM_NORM_2_WEIGHT)
                w[i] *= 1e-2f;
            if (param->role == PARAM_NORM_2_BIAS)
                w[i] = 1.0f;
            if (param->role == PARAM_ROUTER)
                w[i] += i / d < f->config.experts / 2 ? -1.0f : 1.0f;
        }
    }
}

/* Leaves of 1, 2, 3 ... samples, each with other tokens; the third one bears no
 * loss at all, as a leaf that is to be thrown away. */
static struct model_fixture *create_fixture(const struct style *style, int rank)
{
    struct model_fixture *f = fixture_create(style->config, true);
    int64_t vocab = f->config.vocab_size;
    fixture_leaf(f, 1 + (rank + 1) % 3, rank == 1 ? 8 : 7, rank % 2 == 0);
    f->leaf.first_sample = 3 * rank;
    for (int64_t i = 0; i < f->leaf.samples * f->leaf.seq_len; i++) {
        uint64_t at = (uint64_t)(1000 * rank + i);
        f->tokens[i] = (int32_t)(rng_u64(1, 3, at) % (uint64_t)vocab);
        f->labels[i] = rank == 2 || i % (rank + 4) == 1
                           ? -100
                           : (int32_t)(rng_u64(1, 4, at) % (uint64_t)vocab);
    }
    if (style->dull)
        make_dull(f);
    return f;
}

/* Shapes are those of the largest leaf. */
static struct model_options options_of(const struct style *style, int threads)
{
    struct model_options options = {
        .threads = threads, .samples = 3, .seq_len = 8, .seed = FIXTURE_SEED
    };
    if (style->memory != NULL &&
        model_memory_parse(style->memory, LAYERS, &options.memory) != ERR_OK)
        abort();
    options.memory.packing = style->packing;
    return options;
}

/* Where a group computes the hidden layer again from exact tokens, a rank alone
 * must not have packed it. */
static struct model_options options_alone(const struct style *style)
{
    struct model_options options = options_of(style, 1);
    for (int i = 0; style->packing != PACKING_NONE && i < LAYERS; i++)
        options.memory.recompute[i] |= RECOMPUTE_FFN;
    return options;
}

static void run(struct member *m, const struct param_access *access)
{
    enum err rc = ERR_OK;
    struct model *model = NULL;
    struct model_fixture *f = m->f;
    struct leaf fewer = f->leaf;
    fewer.samples = (fewer.samples + 1) / 2;
    memset(f->gradient, 0, fixture_bytes(f));
    memset(f->done, 0, sizeof f->done);
    TRY_OUT(
        model_create(&f->config, f->params, m->kernels, &m->options, &model));
    TRY_OUT(model_train_leaf(model, access, &f->leaf, &m->train));
    TRY_OUT(fixture_counts(model, m->kernels, &f->config, m->counts[0]));
    TRY_OUT(model_eval_leaf(model, access, &fewer, &m->eval));
    TRY_OUT(fixture_counts(model, m->kernels, &f->config, m->counts[1]));
out:
    model_destroy(model);
    m->rc = rc;
}

static void *run_member(void *arg)
{
    struct member *m = arg;
    struct param_access access = { .arg = m,
                                   .gather = member_gather,
                                   .release = member_release,
                                   .gradient = member_gradient,
                                   .gradient_done = member_done };
    run(m, &access);
    return NULL;
}

/* Every rank of the group at the same time. */
static void run_group(struct world *world, struct member *members)
{
    pthread_t threads[DEGREE_MAX];
    for (int r = 0; r < world->size; r++)
        if (pthread_create(&threads[r], NULL, run_member, &members[r]) != 0)
            abort();
    for (int r = 0; r < world->size; r++)
        pthread_join(threads[r], NULL);
}

static void create_group(struct world *world, struct member *members,
                         const struct style *style, int degree, int threads,
                         const struct kernels *kernels)
{
    memset(world, 0, sizeof *world);
    pthread_mutex_init(&world->lock, NULL);
    pthread_cond_init(&world->changed, NULL);
    world->size = degree;
    for (int r = 0; r < degree; r++) {
        struct member *m = &members[r];
        memset(m, 0, sizeof *m);
        m->world = world;
        m->group =
            (struct group_access){ m, r, degree, world_start, world_wait };
        m->f = create_fixture(style, r);
        m->kernels = kernels;
        m->options = options_of(style, threads);
        m->options.expert_degree = degree;
        m->options.experts = &m->group;
    }
}

static void destroy_group(struct world *world, struct member *members)
{
    for (int r = 0; r < world->size; r++)
        fixture_destroy(members[r].f);
    pthread_cond_destroy(&world->changed);
    pthread_mutex_destroy(&world->lock);
}

/* Ranks that have all experts, each alone. */
static void create_alone(struct member *alone, const struct style *style,
                         const struct kernels *kernels)
{
    for (int r = 0; r < style->config.experts; r++) {
        memset(&alone[r], 0, sizeof alone[r]);
        alone[r].f = create_fixture(style, r);
        alone[r].kernels = kernels;
        alone[r].options = options_alone(style);
        struct param_access access = fixture_access(alone[r].f);
        run(&alone[r], &access);
    }
}

/* --- the same bits --- */

/* What the gradients of a rank should be: its dense part, and of its experts
 * that of each leaf. */
static bool same_gradient(const struct member *m, const struct member *alone)
{
    const struct params *params = m->f->params;
    int degree = m->group.size, self = m->group.rank;
    int64_t size = piece(&m->f->config, degree);
    bool same = true;
    for (int b = 0; b < params->block_count; b++) {
        int64_t at = params->blocks[b].offset;
        size_t bytes = (size_t)params->blocks[b].elements * sizeof(float);
        if (!is_experts(m->f, b)) {
            same &= memcmp(m->f->gradient + at, alone[self].f->gradient + at,
                           bytes) == 0;
            continue;
        }
        for (int s = 0; s < degree; s++)
            same &= memcmp(m->f->gradient + at + s * size,
                           alone[s].f->gradient + at + self * size,
                           (size_t)size * sizeof(float)) == 0;
        for (int64_t i = degree * size; i < params->blocks[b].elements; i++)
            same &= m->f->gradient[at + i] == 0.0f;
    }
    return same;
}

static bool same_results(const struct member *m, const struct member *alone)
{
    return m->rc == ERR_OK && alone->rc == ERR_OK &&
           fixture_same_loss(m->train, alone->train) &&
           fixture_same_loss(m->eval, alone->eval) &&
           memcmp(m->counts, alone->counts, sizeof m->counts) == 0;
}

static bool balanced(const struct member *m)
{
    bool fine = !m->f->misused;
    for (int b = 0; b < m->f->params->block_count; b++)
        fine &= m->f->held[b] == 0 && m->f->done[b] == 1;
    return fine;
}

static void check_group(const struct style *style, int degree, int threads,
                        const struct kernels *kernels,
                        const struct member *alone)
{
    static struct world world;
    static struct member members[DEGREE_MAX];
    bool results = true, gradients = true, orderly = true;
    create_group(&world, members, style, degree, threads, kernels);
    run_group(&world, members);
    for (int r = 0; r < degree; r++) {
        results &= same_results(&members[r], &alone[r]);
        gradients &= same_gradient(&members[r], alone);
        orderly &= balanced(&members[r]);
    }
    tap_ok(results, "%s, %s, %d ranks of %d threads: losses and choices",
           kernels->kernel_set, style->name, degree, threads);
    tap_ok(gradients, "... gradients");
    tap_ok(orderly && all_delivered(&world), "... every exchange is in order");
    destroy_group(&world, members);
}

/* A comparison of zeros would say nothing. */
static void check_alone(const struct style *style, const struct member *alone)
{
    const struct model_fixture *f = alone[0].f;
    int64_t experts = f->config.experts;
    int64_t first_half = 0, nonzero = 0;
    for (int64_t i = 0; i < LAYERS * experts; i++)
        first_half += i % experts < experts / 2 ? alone[0].counts[0][i] : 0;
    for (int b = 0; b < f->params->block_count; b++)
        for (int64_t i = 0; is_experts(f, b) && i < piece(&f->config, 1); i++)
            nonzero += f->gradient[f->params->blocks[b].offset + i] != 0.0f;
    tap_ok(alone[0].rc == ERR_OK && 2 * nonzero > piece(&f->config, 1) &&
               (first_half == 0) == style->dull,
           "%s: a rank alone, %lld choices of the first half of the experts",
           style->name, (long long)first_half);
}

static void test_bits(const struct kernels *kernels)
{
    static struct member alone[DEGREE_MAX];
    for (size_t i = 0; i < sizeof styles / sizeof styles[0]; i++) {
        create_alone(alone, &styles[i], kernels);
        check_alone(&styles[i], alone);
        for (int degree = 2; degree <= alone[0].f->config.experts; degree *= 2)
            for (int threads = 1; threads <= 2; threads++)
                check_group(&styles[i], degree, threads, kernels, alone);
        for (int r = 0; r < styles[i].config.experts; r++)
            fixture_destroy(alone[r].f);
    }
}

/* Where the host must fetch what it needs to know. */
static void test_device(const struct kernels *kernels)
{
    static struct member alone[DEGREE_MAX];
    struct played_device device;
    played_device_create(kernels, &device);
    create_alone(alone, &styles[0], kernels);
    for (int degree = 2; degree <= alone[0].f->config.experts; degree *= 2)
        check_group(&styles[0], degree, 1, &device.kernels, alone);
    for (int r = 0; r < styles[0].config.experts; r++)
        fixture_destroy(alone[r].f);
}

/* --- memory and failures --- */

static void test_plan(const struct kernels *kernels)
{
    for (size_t i = 0; i < sizeof styles / sizeof styles[0]; i++) {
        struct model_fixture *f = create_fixture(&styles[i], 0);
        for (int degree = 1; degree <= 4; degree *= 2) {
            struct group_access group = { .size = degree };
            struct model_options options = options_of(&styles[i], 2);
            struct model_bytes plan = { 0 };
            struct model *model = NULL;
            options.expert_degree = degree;
            bool fine =
                model_plan(&f->config, kernels, &options, &plan) == ERR_OK;
            options.experts = &group;
            fine &= model_create(&f->config, f->params, kernels, &options,
                                 &model) == ERR_OK;
            tap_ok(fine && plan.total == model->arena.capacity &&
                       plan.total == model->arena.used &&
                       plan.saved + plan.workspace + plan.logits +
                               plan.scratch <=
                           plan.total,
                   "%s, %d ranks: the plan is what is allocated, %zu bytes",
                   styles[i].name, degree, plan.total);
            tap_ok(degree == 1 || model->layers[0].live[SAVED_HIDDEN] ==
                                      model->layers[1].live[SAVED_HIDDEN],
                   "%s, %d ranks: no hidden layer is kept", styles[i].name,
                   degree);
            model_destroy(model);
        }
        fixture_destroy(f);
    }
}

/* The number of a rank's calls of its group in a leaf and an evaluation. */
static int count_calls(const struct kernels *kernels, int degree)
{
    static struct world world;
    static struct member members[DEGREE_MAX];
    create_group(&world, members, &styles[0], degree, 1, kernels);
    run_group(&world, members);
    int calls = members[0].calls;
    destroy_group(&world, members);
    return calls;
}

/* An error of any exchange reaches the callers of all ranks. */
static void test_failures(const struct kernels *kernels, int degree)
{
    static struct world world;
    static struct member members[DEGREE_MAX];
    bool passed_on = true;
    int calls = count_calls(kernels, degree);
    for (int at = 1; at <= calls; at++) {
        create_group(&world, members, &styles[0], degree, 1, kernels);
        world.fail_at = at;
        run_group(&world, members);
        /* the others may be done when it is rank 0's last call that fails */
        passed_on &= members[0].rc == ERR_COMM;
        for (int r = 1; r < degree && at < calls / 2; r++)
            passed_on &= members[r].rc == ERR_COMM;
        destroy_group(&world, members);
    }
    tap_ok(passed_on && calls > 0,
           "%d ranks: an error of any of %d exchanges ends the leaf", degree,
           calls);
}

int main(void)
{
    const struct kernels *const *tables = kernels_all();
    for (int k = 0; tables[k] != NULL; k++)
        test_bits(tables[k]);
    test_device(tables[0]);
    test_plan(tables[0]);
    test_failures(tables[0], 2);
    test_failures(tables[0], 4);
    return tap_done();
}
