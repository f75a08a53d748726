/* What is kept, computed again or packed: the same bits whatever is computed
 * again, gradients that packing changes little, and the words for it. */
#include "src/model/model_memory.h"

#include "tests/model_fixture.h"

#define LAYERS 4

static const struct {
    const char *name;
    struct model_config config;
} styles[] = {
    { "mpt",
      { FOUNDRY, .n_layers = LAYERS, .dropout_embedding = 0.1,
        .dropout_attention = 0.2, .dropout_residual = 0.1 } },
    { "mpt, qk norm",
      { FOUNDRY, .n_layers = LAYERS, .positions = POSITIONS_ROPE,
        .qk_norm = QK_NORM_FULL, .norm = MODEL_NORM_LOW_LAYERNORM } },
    { "llama", { LLAMA, .n_layers = LAYERS, .qk_norm = QK_NORM_HEAD } },
    { "wide heads, norms after",
      { LLAMA, .n_layers = LAYERS, .head_dim = 20, .norm_place = NORM_AFTER,
        .no_rope_interval = 2 } },
    { "gemma3", { GEMMA3, .n_layers = LAYERS } },
    { "dbrx",
      { .n_layers = LAYERS,
        .positions = POSITIONS_ROPE,
        .n_kv_heads = 2,
        .clip_qkv = 2.6,
        .ffn = FFN_GLU,
        .activation = MODEL_SILU,
        .experts = 8,
        .experts_top_k = 2,
        .router_normalize = 1.0,
        .router_jitter = 0.1,
        .balance_weight = 0.1,
        .dropout_attention = 0.2,
        .dropout_residual = 0.1 } },
    { "mlp experts",
      { FOUNDRY, .n_layers = LAYERS, .positions = POSITIONS_ALIBI, .experts = 4,
        .experts_top_k = 2, .balance_weight = 0.1, .clip_qkv = 2.6 } },
};
#define STYLES (sizeof styles / sizeof styles[0])

/* --- the same bits --- */

static const char *const choices[] = {
    "block",
    "ffn",
    "attention",
    "norm",
    "activation", /* on CPU always */
    "norm_attn_norm: last-2",
    "block: first-1; ffn: last-2",
    "attention: range-1-3; block: 1, last-1",
    "attention: middle-2; ffn: all",
};
#define COUNT (sizeof choices / sizeof choices[0])

static size_t saved_bytes(const struct model_fixture *f,
                          const struct kernels *kernels,
                          const struct model_options *options)
{
    struct model_bytes plan = { 0 };
    if (model_plan(&f->config, kernels, options, &plan) != ERR_OK)
        return SIZE_MAX;
    return plan.saved;
}

static void check_choice(struct model_fixture *f, const struct kernels *kernels,
                         const char *style, const char *choice,
                         const float *gradient, struct leaf_loss loss)
{
    struct model_options plain = fixture_options(f, 1);
    struct model_options options = fixture_options(f, 2);
    struct leaf_loss got = { NAN, NAN };
    tap_ok(model_memory_parse(choice, LAYERS, &options.memory) == ERR_OK &&
               fixture_run(f, kernels, &options, &got) &&
               fixture_same_loss(got, loss) &&
               memcmp(f->gradient, gradient, fixture_bytes(f)) == 0,
           "%s: the same bits with \"%s\" computed again", style, choice);
    bool nothing =
        strcmp(choice, "norm") == 0 || strcmp(choice, "activation") == 0;
    size_t before = saved_bytes(f, kernels, &plain);
    size_t after = saved_bytes(f, kernels, &options);
    tap_ok(nothing ? after == before : after < before,
           "%s: \"%s\" keeps %zu of %zu bytes", style, choice, after, before);
}

static void test_choices(const struct kernels *kernels)
{
    for (size_t i = 0; i < STYLES; i++) {
        struct model_fixture *f = fixture_create(styles[i].config, true);
        struct model_options options = fixture_options(f, 1);
        struct leaf_loss loss = { NAN, NAN };
        float *gradient = malloc(fixture_bytes(f));
        if (tap_ok(gradient != NULL && fixture_run(f, kernels, &options, &loss),
                   "%s: trains", styles[i].name)) {
            memcpy(gradient, f->gradient, fixture_bytes(f));
            for (size_t j = 0; j < COUNT; j++)
                check_choice(f, kernels, styles[i].name, choices[j], gradient,
                             loss);
        }
        free(gradient);
        fixture_destroy(f);
    }
}

/* --- fewer bits --- */

static const struct {
    const char *name;
    enum packing packing;
    double bound; /* of a gradient's relative error, L2 per tensor */
} packings[] = {
    { "bf16", PACKING_BF16, 0.02 },
    { "int8", PACKING_INT8, 0.1 },
};

/* Of the whole gradient. */
static double length(const struct model_fixture *f, const float *gradient)
{
    double squares = 0.0;
    for (int64_t i = 0; i < f->params->elements; i++)
        squares += (double)gradient[i] * (double)gradient[i];
    return sqrt(squares);
}

/* A tensor whose gradient nearly cancels is measured by the whole. */
static void check_packing(struct model_fixture *f,
                          const struct kernels *kernels, const char *style,
                          int which, const char *choice, const float *gradient,
                          struct leaf_loss loss)
{
    struct model_options plain = fixture_options(f, 1);
    struct model_options options = fixture_options(f, 1);
    struct leaf_loss got = { NAN, NAN };
    double worst = 0.0, least = 0.01 * length(f, gradient);
    /* What packing moves across the bound of clipping loses its gradient. Without a
     * norm before attention its scores are large, and with them what a rounded query
     * or key changes. */
    bool touchy =
        f->config.clip_qkv > 0.0 || f->config.norm_place == NORM_AFTER;
    double bound = touchy ? 0.2 : packings[which].bound;
    const char *tensor = "none";
    bool fine = model_memory_parse(choice, LAYERS, &options.memory) == ERR_OK &&
                model_memory_parse(choice, LAYERS, &plain.memory) == ERR_OK;
    options.memory.packing = packings[which].packing;
    tap_ok(fine && fixture_run(f, kernels, &options, &got) &&
               fixture_same_loss(got, loss),
           "%s, %s, %s: packing leaves forward alone", style, choice,
           packings[which].name);
    for (int p = 0; p < f->params->count; p++) {
        double distance =
            fixture_distance(&f->params->list[p], f->gradient, gradient, least);
        if (distance > worst) {
            worst = distance;
            tensor = f->params->list[p].name;
        }
    }
    tap_ok(worst > 0.0 && worst <= bound,
           "%s, %s, %s: gradients off by %.2g at most (%s)", style, choice,
           packings[which].name, worst, tensor);
    tap_ok(saved_bytes(f, kernels, &options) < saved_bytes(f, kernels, &plain),
           "%s, %s, %s: less is kept", style, choice, packings[which].name);
}

static void test_packing(const struct kernels *kernels)
{
    static const char *const kept[] = { "none", "ffn: 2; attention: last-1" };
    for (size_t i = 0; i < STYLES; i++) {
        struct model_fixture *f = fixture_create(styles[i].config, true);
        struct model_options options = fixture_options(f, 1);
        struct leaf_loss loss = { NAN, NAN };
        float *gradient = malloc(fixture_bytes(f));
        if (tap_ok(gradient != NULL && fixture_run(f, kernels, &options, &loss),
                   "%s: trains", styles[i].name)) {
            memcpy(gradient, f->gradient, fixture_bytes(f));
            for (int k = 0; k < 4; k++)
                check_packing(f, kernels, styles[i].name, k % 2, kept[k / 2],
                              gradient, loss);
        }
        free(gradient);
        fixture_destroy(f);
    }
}

/* --- the words --- */

/* want: a digit per block, the sum of enum model_recompute. */
static void test_words(void)
{
    static const struct {
        const char *text;
        const char *want;
    } cases[] = {
        { "none", "00000000" },
        { "block", "44444444" },
        { "block: all", "44444444" },
        { "block: -1", "44444444" },
        { "block: none", "00000000" },
        { "block:3", "44400000" },
        { "  block :  first-3  ", "44400000" },
        { "ffn: middle-2", "00022000" },
        { "ffn: middle-3", "00022200" },
        { "attention: last-2", "00000011" },
        { "norm_attn_norm: last-2", "00000011" },
        { "ffn: range-2-5", "00222000" },
        { "ffn: range-0-8", "22222222" },
        { "block: 1, last-1, range-3-5", "40044004" },
        { "block: first-4; ffn: last-2", "44440022" },
        { "norm", "00000000" },
        { "norm; block: 2; ffn: last-1", "44000002" },
        { "attention; ffn: 2", "33111111" },
        { "activation; ffn: 2", "::888888" },
        { "activation: last-1; block: 2", "44000008" },
        { "ffn: last-8", "22222222" },
        { "block: first-8", "44444444" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_memory memory;
        char got[9] = "";
        memset(&memory, 0, sizeof memory);
        enum err rc = model_memory_parse(cases[i].text, 8, &memory);
        for (int b = 0; rc == ERR_OK && b < 8; b++)
            got[b] = (char)('0' + memory.recompute[b]);
        tap_is_str(rc == ERR_OK ? got : err_text(), cases[i].want, "\"%s\"",
                   cases[i].text);
        tap_ok(memory.recompute[8] == 0, "\"%s\": no block beyond the last",
               cases[i].text);
    }
}

static void test_wrong_words(void)
{
    static const struct {
        const char *text;
        const char *named[2]; /* what the error must name */
    } cases[] = {
        { "blok: all", { "blok", "block" } },
        { "blok", { "blok", "block" } },
        { "Block", { "Block", "block" } },
        { "block: some", { "some", "" } },
        { "block:", { "block", "" } },
        { "block: ,", { "block", "" } },
        { "block: 1,,2", { "block", "" } },
        { "block: -2", { "-2", "" } },
        { "block: first--1", { "first--1", "" } },
        { "block: first-", { "first-", "" } },
        { "block: 1.5", { "1.5", "" } },
        { "block: 2x", { "2x", "" } },
        { "block: 99999999999999999999", { "99999999999999999999", "" } },
        { "block: 9", { "9", "8" } },
        { "block: first-9", { "first-9", "8" } },
        { "block: middle-9", { "middle-9", "8" } },
        { "block: last-9", { "last-9", "8" } },
        { "block: range-2-9", { "range-2-9", "8" } },
        { "block: range-5-3", { "range-5-3", "" } },
        { "block: range-1", { "range-1", "" } },
        { "block: range--1-3", { "range--1-3", "" } },
        { "block; ffn: last-2", { "block", "ffn" } },
        { "attention: first-2; block: range-1-3", { "attention", "block" } },
        { "attention: 2; norm_attn_norm: 1",
          { "attention", "norm_attn_norm" } },
        { "block; activation: 1", { "block", "activation" } },
        { "block: 1; block: 2", { "block", "" } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_memory memory;
        memset(&memory, 0, sizeof memory);
        tap_ok(model_memory_parse(cases[i].text, 8, &memory) == ERR_USAGE &&
                   strstr(err_text(), cases[i].named[0]) != NULL &&
                   strstr(err_text(), cases[i].named[1]) != NULL,
               "\"%s\" is refused", cases[i].text);
        tap_note("%s", err_text());
    }
}

int main(void)
{
    const struct kernels *const *tables = kernels_all();
    test_words();
    test_wrong_words();
    for (int k = 0; tables[k] != NULL; k++) {
        tap_note("%s", tables[k]->kernel_set);
        test_choices(tables[k]);
        test_packing(tables[k]);
    }
    return tap_done();
}
