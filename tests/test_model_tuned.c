/* A model of which only some trains, and adapters: losses and gradients against
 * an fp64 reference, and against the model that trains all of it, whose bits
 * they have; what is not asked for stays untouched. */

#include "src/model/model_impl.h"
#include "tests/model_probe.h"

#define EXPERTS                                                                \
    .positions = POSITIONS_ROPE, .n_kv_heads = 2, .ffn = FFN_GLU,              \
    .activation = MODEL_SILU, .experts = 4, .experts_top_k = 2,                \
    .balance_weight = 0.2

static const struct {
    const char *name;
    struct model_config config;
    struct params_tuning tuning;
    struct lora_options lora; /* of them alpha and dropout */
} cases[] = {
    { "embeddings frozen", TUPLE(FOUNDRY), { "transformer.w*", "", 0 }, { 0 } },
    { "untied embedding frozen", TUPLE(LLAMA), { "*wte*", "", 0 }, { 0 } },
    { "head frozen", TUPLE(LLAMA), { "lm_head.weight", "", 0 }, { 0 } },
    { "positions frozen", TUPLE(FOUNDRY), { "*wpe*", "", 0 }, { 0 } },
    { "only the last layer", TUPLE(FOUNDRY, .n_layers = 3),
      TUPLE("transformer.w* *.blocks.0.* *.blocks.1.*", "", 0), TUPLE(0) },
    { "only the head's norm", TUPLE(FOUNDRY),
      TUPLE("transformer.w* transformer.blocks.*", "", 0), TUPLE(0) },
    { "only the embeddings", TUPLE(FOUNDRY),
      TUPLE("transformer.blocks.* transformer.norm_f.*", "", 0), TUPLE(0) },
    { "norms frozen", TUPLE(FOUNDRY, .qk_norm = QK_NORM_FULL),
      TUPLE("*norm_* *_ln.*", "", 0), TUPLE(0) },
    { "norms of heads frozen", TUPLE(LLAMA, .qk_norm = QK_NORM_HEAD),
      TUPLE("*q_ln.weight *norm_1.weight", "", 0), TUPLE(0) },
    { "biases only", TUPLE(FOUNDRY), { "*.weight", "", 0 }, { 0 } },
    { "matrices of the first layer and down frozen",
      TUPLE(LLAMA, .clip_qkv = 0.6), TUPLE("*.0.attn.* *.down_proj.*", "", 0),
      TUPLE(0) },
    { "experts frozen", TUPLE(EXPERTS), { "*.experts.*", "", 0 }, { 0 } },
    { "router and experts' gates frozen", TUPLE(EXPERTS),
      TUPLE("*.router.* *.mlp.w1", "", 0), TUPLE(0) },
    { "adapters of all", TUPLE(LLAMA), { "", "*", 3 }, { .alpha = 8 } },
    { "adapters of all, mpt", TUPLE(FOUNDRY), { "", "*", 2 }, { .alpha = 1 } },
    { "adapters of queries", TUPLE(FOUNDRY), TUPLE("", "q_proj", 4),
      TUPLE(.alpha = 16) },
    { "adapters of keys and values",
      TUPLE(LLAMA, .clip_qkv = 0.6, .qk_norm = QK_NORM_HEAD),
      TUPLE("", "k_proj *.1.attn.v_proj", 4), TUPLE(.alpha = 16) },
    { "adapters of gates",
      TUPLE(LLAMA),
      { "", "gate_proj", 2 },
      { .alpha = 2 } },
    { "adapters of wide heads, norms after",
      TUPLE(LLAMA, .head_dim = 24, .norm_place = NORM_AFTER), TUPLE("", "*", 3),
      TUPLE(.alpha = 8, .dropout = 0.2) },
    { "adapters, norms around",
      TUPLE(LLAMA, .norm_place = NORM_AROUND, .norm_plus_one = true,
            .tied = true, .embedding_scale = 4.5),
      TUPLE("", "*", 3), TUPLE(.alpha = 8) },
    { "norms around, frozen",
      TUPLE(FOUNDRY, .norm_place = NORM_AROUND, .norm_plus_one = true),
      TUPLE("*norm_1_after*", "", 0), TUPLE(0) },
    { "norms after, frozen", TUPLE(FOUNDRY, .norm_place = NORM_AFTER),
      TUPLE("*norm_*", "", 0), TUPLE(0) },
    { "adapters with dropout", TUPLE(LLAMA), TUPLE("", "*", 3),
      TUPLE(.alpha = 8, .dropout = 0.3) },
    { "adapters with all dropouts",
      { FOUNDRY, .dropout_embedding = 0.2, .dropout_attention = 0.3,
        .dropout_residual = 0.1 },
      TUPLE("", "o_proj up_proj k_proj", 4),
      TUPLE(.alpha = 8, .dropout = 0.5) },
    { "adapters beside experts", TUPLE(EXPERTS), TUPLE("", "*", 4),
      TUPLE(.alpha = 4, .dropout = 0.1) },
    { "adapters and norms", TUPLE(LLAMA),
      TUPLE("*attn* *ffn* *wte* lm_head*", "down_proj o_proj", 4),
      TUPLE(.alpha = 8) },
    { "adapters of the last layer", TUPLE(LLAMA, .n_layers = 3),
      TUPLE("", "*.2.ffn.down_proj", 4), TUPLE(.alpha = 8) },
    { "adapters, all trains but the embeddings",
      TUPLE(FOUNDRY, .residual_scale = 0.7),
      TUPLE("transformer.w*", "q_proj v_proj", 4), TUPLE(.alpha = 8) },
};
#define CASES (int)(sizeof cases / sizeof cases[0])

static struct model_fixture *make(int i, bool packed)
{
    struct model_fixture *f =
        fixture_create_tuned(cases[i].config, &cases[i].tuning, packed);
    f->lora = (struct lora_options){ .rank = cases[i].tuning.rank,
                                     .alpha = cases[i].lora.alpha,
                                     .dropout = cases[i].lora.dropout,
                                     .targets = cases[i].tuning.targets };
    return f;
}

static bool used_rightly(const struct model_fixture *f)
{
    bool fine = !f->misused;
    for (int b = 0; b < f->params->block_count; b++)
        fine &= f->held[b] == 0 && f->done[b] == params_trains(f->params, b);
    return fine;
}

static void check_reference(struct model_fixture *f,
                            const struct kernels *kernels, const char *name,
                            struct leaf_loss *loss)
{
    static struct expected want;
    struct model_options options = fixture_options(f, 1);
    double worst = 0.0;
    expect(f, 1, &want);
    tap_ok(fixture_run(f, kernels, &options, loss) && used_rightly(f),
           "%s: trains", name);
    tap_is_close(loss->cross_entropy, want.train.cross_entropy, 2e-6,
                 "%s: loss", name);
    for (int i = 0; i < want.probe_count; i++)
        if (!want.probes[i].useless) {
            double error = probe_error(f, want.probes[i]);
            worst = fmax(worst, error);
            if (error > 2e-5)
                tap_note("%s, element %lld: %.2g",
                         f->params->list[want.probes[i].tensor].name,
                         (long long)want.probes[i].element, error);
        }
    tap_ok(worst <= 2e-5, "%s: gradients (worst %.2g)", name, worst);
}

/* --- against the model of which all trains --- */

static const float *value_of(const struct model_fixture *f, const char *name)
{
    const struct params *tables[] = { f->params, f->params->frozen };
    const float *at = f->weights;
    for (int t = 0; t < 2 && tables[t] != NULL; t++) {
        for (int i = 0; i < tables[t]->count; i++)
            if (strcmp(tables[t]->list[i].name, name) == 0)
                return at + tables[t]->list[i].offset;
        at += tables[t]->elements;
    }
    return NULL;
}

/* The same values in the tensors that both have. */
static void copy_values(const struct model_fixture *from,
                        struct model_fixture *to)
{
    for (int i = 0; i < to->params->count; i++) {
        const struct param *param = &to->params->list[i];
        memcpy(to->weights + param->offset, value_of(from, param->name),
               (size_t)param->numel * sizeof(float));
    }
}

/* Where both train. */
static bool same_gradients(const struct model_fixture *part,
                           const struct model_fixture *whole, int *compared)
{
    bool same = true;
    for (int i = 0; i < part->params->count; i++)
        for (int j = 0; j < whole->params->count; j++) {
            const struct param *a = &part->params->list[i];
            const struct param *b = &whole->params->list[j];
            if (strcmp(a->name, b->name) != 0)
                continue;
            ++*compared;
            if (memcmp(part->gradient + a->offset, whole->gradient + b->offset,
                       (size_t)a->numel * sizeof(float)) == 0)
                continue;
            same = false;
            tap_note("%s has another gradient", a->name);
        }
    return same;
}

static void check_whole(struct model_fixture *f, const struct kernels *kernels,
                        int i, const char *name, struct leaf_loss loss)
{
    struct model_fixture *whole = fixture_create(cases[i].config, false);
    struct model_options options = fixture_options(whole, 1);
    struct leaf_loss all = { NAN, NAN };
    int compared = 0;
    whole->leaf = f->leaf;
    copy_values(f, whole);
    tap_ok(fixture_run(whole, kernels, &options, &all) &&
               fixture_same_loss(all, loss),
           "%s: the loss of the model that trains all, to the bit", name);
    bool same = same_gradients(f, whole, &compared);
    tap_ok(same && (compared > 0 || cases[i].tuning.rank > 0),
           "%s: and its gradients, of %d tensors", name, compared);
    fixture_destroy(whole);
}

/* B = 0 in all adapters. */
static void check_fresh(struct model_fixture *f, const struct kernels *kernels,
                        int i, const char *name)
{
    struct model_options options = fixture_options(f, 1);
    struct leaf_loss loss = { NAN, NAN };
    for (int p = 0; p < f->params->count; p++) {
        const struct param *param = &f->params->list[p];
        bool b = param->role >= PARAM_LORA && (param->role - PARAM_LORA) % 2;
        if (b)
            memset(f->weights + param->offset, 0,
                   (size_t)param->numel * sizeof(float));
    }
    tap_ok(fixture_run(f, kernels, &options, &loss), "%s: B is 0", name);
    check_whole(f, kernels, i, name, loss);
}

static void check_threads(struct model_fixture *f,
                          const struct kernels *kernels, const char *name)
{
    struct model_options options = fixture_options(f, 1);
    struct leaf_loss one = { NAN, NAN }, three = { NAN, NAN };
    float *first = malloc(fixture_bytes(f));
    bool same = first != NULL && fixture_run(f, kernels, &options, &one);
    if (same)
        memcpy(first, f->gradient, fixture_bytes(f));
    options.threads = 3;
    same = same && fixture_run(f, kernels, &options, &three) &&
           fixture_same_loss(one, three) &&
           memcmp(first, f->gradient, fixture_bytes(f)) == 0;
    tap_ok(same, "%s: the same bits with 3 threads", name);
    free(first);
}

/* What is computed again has the bits of what is kept. */
static void check_recompute(struct model_fixture *f,
                            const struct kernels *kernels, const char *name)
{
    struct model_options options = fixture_options(f, 1);
    struct leaf_loss kept = { NAN, NAN }, again = { NAN, NAN };
    float *first = malloc(fixture_bytes(f));
    bool same = first != NULL && fixture_run(f, kernels, &options, &kept);
    if (same)
        memcpy(first, f->gradient, fixture_bytes(f));
    same = same &&
           model_memory_parse("block: 1; ffn: last-1", f->config.n_layers,
                              &options.memory) == ERR_OK &&
           fixture_run(f, kernels, &options, &again) &&
           fixture_same_loss(kept, again) &&
           memcmp(first, f->gradient, fixture_bytes(f)) == 0;
    options.memory.packing = PACKING_INT8;
    same = same && fixture_run(f, kernels, &options, &again) &&
           fixture_same_loss(kept, again);
    tap_ok(same, "%s: the same bits with recomputation", name);
    free(first);
}

static void check_plan(const struct model_fixture *f,
                       const struct kernels *kernels, const char *name)
{
    struct model_options options = fixture_options(f, 2);
    struct model_bytes plan = { 0 };
    struct model *model = NULL;
    bool fine = model_plan(&f->config, kernels, &options, &plan) == ERR_OK &&
                model_create(&f->config, f->params, kernels, &options,
                             &model) == ERR_OK;
    tap_ok(fine && plan.total == model->arena.capacity &&
               plan.total == model->arena.used,
           "%s: the plan is what is allocated", name);
    model_destroy(model);
}

static void check_case(int i, const struct kernels *kernels, bool packed)
{
    struct model_fixture *f = make(i, packed);
    struct leaf_loss loss = { NAN, NAN };
    char name[128];
    float *before = malloc((size_t)f->all * sizeof(float));
    snprintf(name, sizeof name, "%s, %s%s", kernels->kernel_set, cases[i].name,
             packed ? ", packed" : "");
    if (before == NULL)
        abort();
    memcpy(before, f->weights, (size_t)f->all * sizeof(float));
    check_reference(f, kernels, name, &loss);
    if (cases[i].tuning.rank == 0)
        check_whole(f, kernels, i, name, loss);
    check_threads(f, kernels, name);
    check_recompute(f, kernels, name);
    check_plan(f, kernels, name);
    tap_ok(memcmp(before, f->weights, (size_t)f->all * sizeof(float)) == 0,
           "%s: no weight is touched", name);
    if (cases[i].tuning.rank > 0)
        check_fresh(f, kernels, i, name);
    free(before);
    fixture_destroy(f);
}

int main(void)
{
    const struct kernels *const *tables = kernels_all();
    for (int i = 0; i < CASES; i++)
        for (int k = 0; tables[k] != NULL && k < (i % 4 == 0 ? 3 : 1); k++)
            check_case(i, tables[k], i % 2 == 1);
    return tap_done();
}
