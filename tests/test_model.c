/* The whole model against an fp64 reference: loss and gradients of every
 * configuration, the same bits for any number of threads, the random numbers of
 * dropout, and how it uses its parameters. */
#include "src/model/model.h"

#include "src/model/model_impl.h"
#include "tests/model_cases.h"
#include "tests/model_probe.h"

static const struct model_case cases[] = {
    { "rope, linear",
      { FOUNDRY, .positions = POSITIONS_ROPE,
        .rope_scaling = ROPE_SCALING_LINEAR, .rope_factor = 3 } },
    { "rope, llama3",
      { FOUNDRY, .positions = POSITIONS_ROPE,
        .rope_scaling = ROPE_SCALING_LLAMA3, .rope_factor = 4,
        .rope_low_freq_factor = 0.3, .rope_high_freq_factor = 2,
        .rope_original_len = 32 } },
    { "rope, yarn",
      { LLAMA, .rope_scaling = ROPE_SCALING_YARN, .rope_factor = 4,
        .rope_original_len = 64, .rope_beta_fast = 8 } },
    { "low precision rmsnorm", { FOUNDRY, .norm = MODEL_NORM_LOW_RMSNORM } },
    { "silu glu", { FOUNDRY, .ffn = FFN_GLU, .activation = MODEL_SILU } },
    { "gelu tanh glu",
      { FOUNDRY, .ffn = FFN_GLU, .activation = MODEL_GELU_TANH } },
    { "qkv bias, rmsnorm",
      { .qkv_bias = true, .norm = MODEL_NORM_RMSNORM, .n_kv_heads = 2 } },
    { "attention bias", { .qkv_bias = true, .out_bias = true } },
    { "out bias", { .out_bias = true } },
    { "mlp bias", { .mlp_bias = true } },
    { "glu bias", { .mlp_bias = true, .ffn = FFN_GLU } },
    { "gelu tanh experts",
      { .experts = 3,
        .experts_top_k = 2,
        .activation = MODEL_GELU_TANH,
        .qkv_bias = true } },
    { "qk norm, by heads",
      { FOUNDRY, .n_kv_heads = 2, .qk_norm = QK_NORM_HEAD } },
    { "wide heads", { LLAMA, .head_dim = 24 } },
    { "narrow heads, biases", { FOUNDRY, .head_dim = 4, .n_kv_heads = 2 } },
    { "wide heads, qk norm, full",
      { LLAMA, .head_dim = 12, .qk_norm = QK_NORM_FULL } },
    { "qwen3", { LLAMA, .head_dim = 16, .qk_norm = QK_NORM_HEAD } },
    { "wide heads, dropouts, experts",
      { DBRX, DROPOUTS, .head_dim = 20, .qk_norm = QK_NORM_HEAD } },
    { "norms after", { FOUNDRY, .norm_place = NORM_AFTER } },
    { "norms after, dropouts, residual scale",
      { FOUNDRY, DROPOUTS, .norm_place = NORM_AFTER, .residual_scale = 0.6 } },
    { "norms around, biases, dropouts",
      { FOUNDRY, DROPOUTS, .norm_place = NORM_AROUND, .norm_plus_one = true,
        .embedding_scale = 0.5, .residual_scale = 0.6 } },
    { "clip, a layer without rope",
      { LLAMA, .no_rope_interval = 2, .clip_qkv = 0.6 } },
    { "clip, qk norm, rope",
      { FOUNDRY, .clip_qkv = 0.6, .qk_norm = QK_NORM_FULL,
        .positions = POSITIONS_ROPE } },
    { "dropout of the embedding", { FOUNDRY, .dropout_embedding = 0.3 } },
    { "dropout of attention", { FOUNDRY, .dropout_attention = 0.3 } },
    { "dropout of branches", { FOUNDRY, .dropout_residual = 0.3 } },
    { "mpt with dropout", { FOUNDRY, DROPOUTS, .residual_scale = 0.6 } },
    { "mpt-7b-released", { .tied = true, .positions = POSITIONS_ALIBI } },
    { "dbrx", { DBRX, .router_jitter = 0.01, .balance_weight = 0.05 } },
    { "dbrx, balance", { DBRX, .balance_weight = 3.0 } },
    { "dbrx, jitter, dropout", { DBRX, DROPOUTS, .router_jitter = 0.3 } },
    { "mlp experts",
      { FOUNDRY, .experts = 5, .experts_top_k = 1, .balance_weight = 0.1 } },
    { "mlp experts, L2 norm",
      { FOUNDRY, .experts = 4, .experts_top_k = 3, .router_normalize = 2.0,
        .residual_scale = 0.5 } },
    { "all experts", { .experts = 3, .experts_top_k = 3 } },
    { "everything",
      { DBRX, DROPOUTS, .bias = true, .qk_norm = QK_NORM_HEAD,
        .logit_scale = 0.7, .residual_scale = 0.8, .router_jitter = 0.2,
        .balance_weight = 0.5 } },
};

/* --- one configuration --- */

static void check_gradient(const struct model_fixture *f,
                           const struct expected *want, const char *name)
{
    double worst = 0.0;
    double tolerance = model_norm_is_low(f->config.norm) ? 2e-2 : 2e-5;
    int used = 0;
    for (int i = 0; i < want->probe_count; i++) {
        struct probe probe = want->probes[i];
        double error = probe.useless ? 0.0 : probe_error(f, probe);
        used += !probe.useless;
        worst = fmax(worst, error);
        if (error > tolerance)
            tap_note("gradient of %s, element %lld: error %.2g",
                     f->params->list[probe.tensor].name,
                     (long long)probe.element, error);
    }
    tap_ok(worst <= tolerance && 2 * used > want->probe_count,
           "%s: gradients (worst %.2g, %d of %d probes)", name, worst, used,
           want->probe_count);
}

static bool padding_untouched(const struct model_fixture *f)
{
    int64_t sum = 0, zero = 0;
    for (int p = 0; p < f->params->count; p++)
        for (int64_t i = 0; i < f->params->list[p].numel; i++)
            zero += f->gradient[f->params->list[p].offset + i] == 0.0f;
    for (int64_t i = 0; i < f->params->elements; i++)
        sum += f->gradient[i] == 0.0f;
    return sum - zero == f->params->elements - f->params->numel;
}

static bool counted(struct model *model, const struct kernels *kernels,
                    const struct model_fixture *f, const struct expected *want,
                    int64_t times)
{
    int64_t counts[LAYERS_MAX * EXPERTS_MAX] = { 0 };
    bool same = fixture_counts(model, kernels, &f->config, counts) == ERR_OK;
    for (int64_t i = 0; i < f->config.n_layers * f->config.experts; i++)
        same &= counts[i] == times * want->counts[i];
    return same;
}

/* After one evaluation; a leaf without loss adds nothing. */
static void check_counts(struct model_fixture *f, const struct kernels *kernels,
                         struct model *model, const struct expected *want,
                         const char *name)
{
    int32_t none[FIXTURE_TOKENS_MAX];
    struct param_access access = fixture_access(f);
    struct leaf silent = f->leaf;
    struct leaf_loss loss;
    memset(none, 0xff, sizeof none);
    silent.labels = none;
    tap_ok(counted(model, kernels, f, want, 1), "%s: choices of the experts",
           name);
    tap_ok(model_eval_leaf(model, &access, &f->leaf, &loss) == ERR_OK &&
               model_eval_leaf(model, &access, &silent, &loss) == ERR_OK &&
               counted(model, kernels, f, want, 2) && loss.balance == 0.0 &&
               model_expert_counts_clear(model) == ERR_OK &&
               counted(model, kernels, f, want, 0),
           "%s: of more leaves, and none", name);
}

/* With one thread, in detail. */
static void check_single(struct model_fixture *f, const struct kernels *kernels,
                         const struct expected *want, const char *name,
                         struct leaf_loss *loss)
{
    struct param_access access = fixture_access(f);
    struct model_options options = fixture_options(f, 1);
    struct leaf_loss eval = { NAN, NAN };
    struct model *model = NULL;
    double tolerance = model_norm_is_low(f->config.norm) ? 1e-3 : 2e-6;
    if (!tap_ok(model_create(&f->config, f->params, kernels, &options,
                             &model) == ERR_OK &&
                    fixture_train(f, model, loss),
                "%s: trains", name)) {
        tap_note("%s", err_text());
        model_destroy(model);
        return;
    }
    check_loss(*loss, want->train, tolerance, name, "");
    check_gradient(f, want, name);
    tap_ok(balanced_access(f) && padding_untouched(f),
           "%s: gathers, releases and gradients match", name);
    tap_ok(model_expert_counts_clear(model) == ERR_OK &&
               model_eval_leaf(model, &access, &f->leaf, &eval) == ERR_OK,
           "%s: evaluates", name);
    check_loss(eval, want->eval, tolerance, name, " without dropout");
    check_counts(f, kernels, model, want, name);
    model_destroy(model);
}

/* Twice by one model: nothing of a leaf is left for the next one. With three
 * threads also in a model that the leaf fills. */
static void check_threads(struct model_fixture *f,
                          const struct kernels *kernels, const char *name,
                          struct leaf_loss single)
{
    size_t bytes = fixture_bytes(f);
    float *first = malloc(bytes);
    bool same = first != NULL;
    if (same)
        memcpy(first, f->gradient, bytes);
    for (int threads = 2; same && threads <= 3; threads++) {
        struct model_options options = fixture_options(f, threads);
        struct leaf_loss loss = { NAN, NAN };
        struct model *model = NULL;
        if (threads == 3) {
            options.samples = f->leaf.samples;
            options.seq_len = f->leaf.seq_len;
        }
        same &= model_create(&f->config, f->params, kernels, &options,
                             &model) == ERR_OK;
        for (int again = 0; same && again < 2; again++)
            same = fixture_train(f, model, &loss) &&
                   fixture_same_loss(loss, single) &&
                   memcmp(f->gradient, first, bytes) == 0;
        model_destroy(model);
    }
    tap_ok(same, "%s: the same bits with 1, 2 and 3 threads", name);
    free(first);
}

static void check_case(struct model_fixture *f, const char *name)
{
    static struct expected want;
    const struct kernels *const *tables = kernels_all();
    expect(f, 1, &want);
    for (int k = 0; tables[k] != NULL; k++) {
        char text[96];
        struct leaf_loss loss = { NAN, NAN };
        snprintf(text, sizeof text, "%s, %s%s", tables[k]->kernel_set, name,
                 f->leaf.sequence_ids != NULL ? ", packed" : "");
        check_single(f, tables[k], &want, text, &loss);
        check_threads(f, tables[k], text, loss);
    }
}

static void test_cases(const struct model_case *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (int packed = 0; packed < 2; packed++) {
            struct model_fixture *f = fixture_create(list[i].config, packed);
            check_case(f, list[i].name);
            fixture_destroy(f);
        }
}

/* More rows than logits are made at a time, a last part that is not full. */
static void test_long_leaf(void)
{
    static const struct model_config configs[] = {
        { FOUNDRY, .n_layers = 1, .max_seq_len = 80, .n_kv_heads = 2 },
        { DBRX, .n_layers = 1, .max_seq_len = 80, .balance_weight = 0.1 },
    };
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        struct model_fixture *f = fixture_create(configs[i], true);
        fixture_leaf(f, 3, 71, i == 0);
        check_case(f, i == 0 ? "long" : "long with experts");
        fixture_destroy(f);
    }
}

/* --- random numbers --- */

/* The samples of a leaf apart, in leaves of one. */
static bool run_apart(struct model_fixture *f, const struct kernels *kernels,
                      struct leaf_loss *loss, float *gradient)
{
    struct model_options options = fixture_options(f, 1);
    struct leaf whole = f->leaf;
    bool fine = true;
    memset(gradient, 0, fixture_bytes(f));
    *loss = (struct leaf_loss){ 0 };
    for (int64_t s = 0; fine && s < whole.samples; s++) {
        struct leaf_loss one = { NAN, NAN };
        f->leaf = whole;
        f->leaf.samples = 1;
        f->leaf.first_sample += s;
        f->leaf.tokens += s * whole.seq_len;
        f->leaf.labels += s * whole.seq_len;
        fine = fixture_run(f, kernels, &options, &one);
        loss->cross_entropy += one.cross_entropy;
        for (int64_t i = 0; i < f->params->elements; i++)
            gradient[i] += f->gradient[i];
    }
    f->leaf = whole;
    return fine;
}

static void test_samples(const struct kernels *kernels, const char *name,
                         struct model_config config)
{
    struct model_fixture *f = fixture_create(config, false);
    struct model_options options = fixture_options(f, 1);
    struct leaf_loss whole = { NAN, NAN }, apart = { NAN, NAN };
    struct leaf_loss other = { NAN, NAN }, seeded = { NAN, NAN };
    float *gradient = malloc(fixture_bytes(f));
    double worst = 0.0;
    tap_ok(gradient != NULL && run_apart(f, kernels, &apart, gradient) &&
               fixture_run(f, kernels, &options, &whole),
           "%s: leaves of one and of two samples", name);
    tap_is_close(apart.cross_entropy, whole.cross_entropy, 1e-6,
                 "%s: the losses of samples do not depend on grouping", name);
    for (int p = 0; p < f->params->count; p++)
        worst = fmax(worst, fixture_distance(&f->params->list[p], gradient,
                                             f->gradient, 0.1));
    tap_ok(worst < 2e-6, "%s: nor do their gradients (%.2g)", name, worst);
    f->leaf.first_sample = 6;
    tap_ok(fixture_run(f, kernels, &options, &other) &&
               other.cross_entropy != whole.cross_entropy,
           "%s: another sample number, other random numbers", name);
    f->leaf.first_sample = 5;
    options.seed++;
    tap_ok(fixture_run(f, kernels, &options, &seeded) &&
               seeded.cross_entropy != whole.cross_entropy,
           "%s: another seed, other random numbers", name);
    free(gradient);
    fixture_destroy(f);
}

/* --- memory and failures --- */

static void test_plan(const struct kernels *kernels,
                      const struct model_case *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct model_fixture *f = fixture_create(list[i].config, false);
        struct model_options options = fixture_options(f, 2);
        struct model_bytes plan = { 0 };
        struct model *model = NULL;
        bool fine =
            model_plan(&f->config, kernels, &options, &plan) == ERR_OK &&
            model_create(&f->config, f->params, kernels, &options, &model) ==
                ERR_OK;
        tap_ok(fine && plan.total == model->arena.capacity &&
                   plan.total == model->arena.used,
               "%s: the plan is what is allocated, %zu bytes", list[i].name,
               plan.total);
        size_t sum = plan.saved + plan.workspace + plan.logits + plan.scratch;
        tap_ok(sum <= plan.total && plan.total <= sum + sum / 8 &&
                   plan.saved > 0 && plan.logits > 0,
               "%s: its parts make up the whole", list[i].name);
        model_destroy(model);
        fixture_destroy(f);
    }
}

/* An error of every single call reaches the caller. */
static void test_failures(const struct kernels *kernels,
                          struct model_config config)
{
    struct model_fixture *f = fixture_create(config, false);
    struct model_options options = fixture_options(f, 1);
    struct param_access access = fixture_access(f);
    struct leaf_loss loss;
    struct model *model = NULL;
    bool passed_on = true;
    if (!tap_ok(model_create(&f->config, f->params, kernels, &options,
                             &model) == ERR_OK &&
                    fixture_train(f, model, &loss),
                "a model to fail"))
        return;
    int calls = f->calls;
    for (int at = 1; at <= calls; at++) {
        f->calls = 0;
        f->fail_at = at;
        passed_on &=
            model_train_leaf(model, &access, &f->leaf, &loss) == ERR_COMM;
    }
    tap_ok(passed_on, "an error in any of %d calls ends the leaf", calls);
    f->calls = 0;
    f->fail_at = 2;
    tap_ok(model_eval_leaf(model, &access, &f->leaf, &loss) == ERR_COMM,
           "and an evaluation");
    f->fail_at = 0;
    memset(f->held, 0, sizeof f->held);
    f->misused = false;
    tap_ok(fixture_train(f, model, &loss) && balanced_access(f),
           "after errors the model works");
    model_destroy(model);
    fixture_destroy(f);
}

int main(void)
{
    const struct kernels *kernels = kernels_all()[0];
    test_cases(model_cases, MODEL_CASES);
    test_cases(cases, sizeof cases / sizeof cases[0]);
    test_long_leaf();
    test_samples(kernels, "dropout",
                 (struct model_config){ FOUNDRY, DROPOUTS });
    test_samples(kernels, "dropout and jitter",
                 (struct model_config){ DBRX, DROPOUTS, .router_jitter = 0.3 });
    test_plan(kernels, model_cases, MODEL_CASES);
    test_plan(kernels, cases, sizeof cases / sizeof cases[0]);
    test_failures(kernels, (struct model_config){ FOUNDRY });
    test_failures(kernels, (struct model_config){ DBRX });
    return tap_done();
}
