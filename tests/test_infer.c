/* The engine against the model's own evaluation, and against itself: to the bit
 * the same however tokens are cut into calls, on any number of threads, gathered
 * or held; its slots, and what it refuses. */
#include <limits.h>
#include <stddef.h>

#include "src/infer/infer_impl.h"
#include "src/model/model_config.h"
#include "tests/infer_fixture.h"
#include "tests/model_cases.h"

static const struct model_case cases[] = {
    { "some biases", { .tied = true, .qkv_bias = true, .mlp_bias = true } },
    { "another bias",
      { .tied = true, .ffn = FFN_GLU, .mlp_bias = true, .out_bias = true } },
    { "rope, linear",
      { FOUNDRY, .positions = POSITIONS_ROPE,
        .rope_scaling = ROPE_SCALING_LINEAR, .rope_factor = 4.0 } },
    { "rope, yarn",
      { LLAMA, .rope_scaling = ROPE_SCALING_YARN, .rope_factor = 4.0,
        .rope_original_len = 64, .rope_attention_factor = 1.3 } },
    { "wide heads", { LLAMA, .head_dim = 24, .qk_norm = QK_NORM_HEAD } },
    { "narrow heads", { FOUNDRY, .head_dim = 4 } },
    { "norms around, biases",
      { FOUNDRY, .norm_place = NORM_AROUND, .norm_plus_one = true,
        .embedding_scale = 0.5, .residual_scale = 0.6 } },
    { "dbrx", { DBRX } },
    { "mlp experts", { FOUNDRY, .experts = 5, .experts_top_k = 1 } },
    { "everything",
      { DBRX, .bias = true, .qk_norm = QK_NORM_HEAD, .logit_scale = 0.7,
        .residual_scale = 0.8 } },
    { "wide",
      { FOUNDRY, .d_model = 96, .n_heads = 2, .ffn_width = 80,
        .positions = POSITIONS_ALIBI } },
};

static double evaluated(struct model_fixture *f, const struct kernels *kernels)
{
    struct model *model = NULL;
    struct param_access access = fixture_access(f);
    struct model_options options = fixture_options(f, 2);
    struct leaf_loss loss = { NAN, NAN };
    if (model_create(&f->config, f->params, kernels, &options, &model) !=
            ERR_OK ||
        model_eval_leaf(model, &access, &f->leaf, &loss) != ERR_OK)
        tap_note("%s", err_text());
    model_destroy(model);
    return loss.cross_entropy;
}

static double sum(const float *x, int64_t n)
{
    double total = 0.0;
    for (int64_t i = 0; i < n; i++)
        total += (double)x[i];
    return total;
}

/* nll and argmax follow from the logits. */
static bool consistent(const struct model_fixture *f, const struct said *said)
{
    for (int64_t i = 0; i < TOKENS; i++) {
        const float *x = said->logits[i];
        double total = 0.0;
        int best = 0;
        for (int v = 0; v < VOCAB; v++) {
            total += exp((double)x[v]);
            best = x[v] > x[best] ? v : best;
        }
        double loss =
            f->labels[i] < 0 ? 0.0 : log(total) - (double)x[f->labels[i]];
        if (!(fabs((double)said->nll[i] - loss) < 1e-5) ||
            said->argmax[i] != best)
            return false;
    }
    return true;
}

static void check_case(const char *name, struct model_fixture *f,
                       const struct kernels *kernels)
{
    const struct way first = { 1, TOKENS, CUT_WHOLE, -1 };
    const struct way ways[] = {
        { 1, TOKENS, CUT_SINGLE, -1 },
        { 2, 4, CUT_BATCH, -1 },
        { 3, 7, CUT_RAGGED, -1 },
        { 1, TOKENS, CUT_BATCH, INFER_F32 },
        { 3, 1, CUT_RAGGED, INFER_F32 },
        { 2, 5, CUT_SINGLE, INFER_F32 },
        { 2, TOKENS, CUT_RAGGED, INFER_F32 },
    };
    bool low = model_norm_is_low(f->config.norm);
    double loss = evaluated(f, kernels);
    tap_ok(says(f, kernels, &first, want), "%s: runs", name);
    if (!tap_ok(fabs(sum(want->nll, TOKENS) - loss) <=
                    (low ? 1e-3 : 1e-6) * loss,
                "%s: the model's loss", name))
        tap_note("%.9g is not %.9g", sum(want->nll, TOKENS), loss);
    tap_ok(consistent(f, want), "%s: nll and argmax follow from logits", name);
    bool same = true;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        if (!says(f, kernels, &ways[i], got) ||
            memcmp(got, want, sizeof *got) != 0) {
            tap_note("way %zu is another", i);
            same = false;
        }
    tap_ok(same, "%s: the same bits however it is cut", name);
    bool released = !f->misused;
    for (int b = 0; b < f->params->block_count; b++)
        released = released && f->held[b] == 0;
    tap_ok(released, "%s: all that was gathered is released", name);
    fixture_destroy(f);
}

/* --- slots --- */

static void check_slots(struct model_config config,
                        const struct kernels *kernels)
{
    struct model_fixture *f = create(config);
    struct param_access access = fixture_access(f);
    const struct way whole = { 1, TOKENS, CUT_WHOLE, -1 };
    const struct infer_options options = {
        .threads = 2, .sequences = SLOTS, .positions = LENGTH, .rows = 16
    };
    struct infer *infer = NULL;
    bool fine = says(f, kernels, &whole, want);
    fine = fine &&
           infer_create(&f->config, f->params, kernels, &options, &infer) ==
               ERR_OK &&
           infer_hold(infer, &access, INFER_F32) == ERR_OK;
    /* slots 0 and 2 get text 0, the latter 19 tokens of it; then text 1 is read
     * into slot 0, and slot 2 goes on with text 0 */
    struct infer_tokens t = tokens_of(f, got, 0, 0, 21);
    fine = fine && infer_forward(infer, NULL, &t, 1) == ERR_OK;
    t = tokens_of(f, got, 0, 0, 19);
    t.slot = 2;
    fine = fine && infer_forward(infer, NULL, &t, 1) == ERR_OK;
    infer_cut(infer, 0, 0);
    t = tokens_of(f, got, 1, 0, LENGTH);
    t.slot = 0;
    fine = fine && infer_forward(infer, NULL, &t, 1) == ERR_OK;
    t = tokens_of(f, got, 0, 19, 10);
    t.slot = 2;
    fine = fine && infer_forward(infer, NULL, &t, 1) == ERR_OK;
    tap_ok(fine && infer_length(infer, 0) == LENGTH &&
               infer_length(infer, 1) == 0 && infer_length(infer, 2) == LENGTH,
           "slots: lengths after a cut");
    tap_ok(memcmp(got->logits, want->logits,
                  sizeof want->logits[0] * 2 * LENGTH) == 0,
           "slots: the same bits after copy and cut");
    /* back to 5 tokens, and others than before */
    infer_cut(infer, 2, 5);
    t = tokens_of(f, got, 0, 5, LENGTH - 5);
    t.slot = 2;
    memset(got->logits, 0xff, sizeof got->logits[0] * LENGTH);
    fine = infer_forward(infer, NULL, &t, 1) == ERR_OK;
    tap_ok(fine && memcmp(got->logits[5], want->logits[5],
                          sizeof want->logits[0] * (LENGTH - 5)) == 0,
           "slots: the same bits after going back");
    infer_destroy(infer);
    fixture_destroy(f);
}

/* Only the last tokens are wanted, of some slots, and not all of each kind. */
static void check_wanted(struct model_config config,
                         const struct kernels *kernels)
{
    struct model_fixture *f = create(config);
    struct param_access access = fixture_access(f);
    const struct way whole = { 1, TOKENS, CUT_WHOLE, -1 };
    const struct infer_options options = {
        .threads = 2, .sequences = SLOTS, .positions = LENGTH, .rows = 6
    };
    struct infer *infer = NULL;
    struct infer_tokens list[SLOTS];
    memset(got, 0xff, sizeof *got);
    bool fine = says(f, kernels, &whole, want) &&
                infer_create(&f->config, f->params, kernels, &options,
                             &infer) == ERR_OK;
    for (int slot = 0; slot < SLOTS; slot++) {
        list[slot] = tokens_of(f, got, slot, 0, LENGTH);
        list[slot].wanted = 3 * slot;
    }
    list[1].logits = NULL;
    list[2].labels = NULL;
    list[2].nll = NULL;
    list[2].argmax = NULL;
    const int64_t at = LENGTH - 3, last = LENGTH - 6;
    list[1].labels = f->labels + LENGTH + at;
    fine = fine && infer_forward(infer, &access, list, SLOTS) == ERR_OK;
    tap_ok(
        fine && memcmp(got->nll + LENGTH, want->nll + LENGTH + at, 12) == 0 &&
            memcmp(got->argmax + LENGTH, want->argmax + LENGTH + at, 12) == 0 &&
            memcmp(got->logits[2 * LENGTH], want->logits[2 * LENGTH + last],
                   6 * sizeof got->logits[0]) == 0,
        "wanted: of the last tokens");
    bool rest = true;
    for (size_t i = 3; i < LENGTH; i++)
        rest = rest && isnan(got->nll[LENGTH + i]) && isnan(got->nll[i]) &&
               isnan(got->logits[LENGTH + i][0]);
    tap_ok(rest, "wanted: nothing else is written");
    infer_destroy(infer);
    fixture_destroy(f);
}

/* --- errors --- */

static void check_errors(const struct kernels *kernels)
{
    struct model_fixture *f = create((struct model_config){ FOUNDRY });
    struct param_access access = fixture_access(f);
    const struct infer_options options = {
        .threads = 1, .sequences = SLOTS, .positions = 20, .rows = 6
    };
    struct infer *infer = NULL;
    if (infer_create(&f->config, f->params, kernels, &options, &infer) !=
        ERR_OK)
        abort();
    struct infer_tokens t = tokens_of(f, got, 0, 0, 21);
    tap_ok(infer_forward(infer, &access, &t, 1) == ERR_USAGE &&
               strstr(err_text(), "too long by 1") != NULL,
           "a text that is too long: %s", err_text());
    t = tokens_of(f, got, 0, 0, 20);
    tap_ok(infer_forward(infer, &access, &t, 1) == ERR_OK, "a full slot");
    t = tokens_of(f, got, 0, 20, 1);
    tap_ok(infer_forward(infer, &access, &t, 1) == ERR_USAGE,
           "a token more: %s", err_text());
    const int32_t bad[][2] = { { 3, VOCAB }, { -1, 3 }, { 0, INT32_MAX } };
    for (int i = 0; i < 3; i++) {
        t = (struct infer_tokens){ .slot = 1, .count = 2, .tokens = bad[i] };
        tap_ok(infer_forward(infer, &access, &t, 1) == ERR_USAGE &&
                   infer_length(infer, 1) == 0,
               "a token that is none: %s", err_text());
    }
    const int32_t label = VOCAB;
    t = tokens_of(f, got, 1, 0, 1);
    t.labels = &label;
    tap_ok(infer_forward(infer, &access, &t, 1) == ERR_USAGE,
           "a label that is none: %s", err_text());
    t = (struct infer_tokens){ .slot = 1 };
    tap_ok(infer_forward(infer, &access, &t, 1) == ERR_OK &&
               infer_forward(infer, &access, NULL, 0) == ERR_OK &&
               infer_length(infer, 1) == 0,
           "nothing to append");
    f->weights[0] = NAN;
    f->weights[f->params->list[1].offset] = NAN;
    t = tokens_of(f, got, 1, 0, 2);
    tap_ok(infer_forward(infer, &access, &t, 1) == ERR_NUMERIC,
           "logits that are no numbers: %s", err_text());
    f->calls = 0;
    f->fail_at = 4;
    tap_ok(infer_forward(infer, &access, &t, 1) == ERR_COMM &&
               infer_length(infer, 1) == 0,
           "a gathering that fails");
    infer_destroy(infer);
    fixture_destroy(f);
}

static void check_plan(const struct kernels *kernels)
{
    struct model_config config;
    size_t cache, held[3], total;
    struct params *params = NULL;
    const struct infer_options options = {
        .threads = 1, .sequences = 2, .positions = 48, .rows = 16
    };
    bool fine = model_config_preset("mpt-125m", &config) == ERR_OK &&
                params_create(&config, &params) == ERR_OK;
    double weights = (double)model_config_param_count(&config);
    for (int i = 0; i < 3; i++)
        fine = fine && infer_plan(&config, params, kernels, &options, i, &cache,
                                  &held[i], &total) == ERR_OK;
    tap_ok(fine && cache == 2 * 2 * 12 * 48 * 768 * sizeof(float),
           "plan: keys and values");
    tap_ok((double)held[INFER_F32] >= 4.0 * weights &&
               (double)held[INFER_F32] < 4.04 * weights &&
               held[INFER_BF16] < held[INFER_F32] * 51 / 100 + 2048 * 768 * 2 &&
               held[INFER_INT8] < held[INFER_F32] * 26 / 100 + 2048 * 768 * 3 &&
               total > held[INFER_INT8] + cache,
           "plan: weights");
    const struct infer_options most = {
        .threads = 1,
        .sequences = INT_MAX,
        .positions = INT_MAX / 2,
        .rows = 16,
    };
    config.positions = POSITIONS_ALIBI;
    tap_ok(infer_plan(&config, params, kernels, &most, INFER_F32, &cache,
                      &held[0], &total) == ERR_MEMORY,
           "plan: %s", err_text());
    params_destroy(params);
}

/* Rank 64 of queries, 16 rows: low, its part of d, and the slice of Wqkv. */
static void check_plan_adapters(const struct kernels *kernels)
{
    struct model_config config;
    struct params *params[2] = { NULL };
    size_t cache, held[2], total[2];
    const struct params_tuning tuning = { "", "q_proj", 64 };
    const struct infer_options options = {
        .threads = 1, .sequences = 2, .positions = 48, .rows = 16
    };
    bool fine = model_config_preset("mpt-125m", &config) == ERR_OK &&
                params_create(&config, &params[0]) == ERR_OK &&
                params_create_tuned(&config, &tuning, &params[1]) == ERR_OK;
    for (int i = 0; i < 2; i++)
        fine =
            fine && infer_plan(&config, params[i], kernels, &options, INFER_F32,
                               &cache, &held[i], &total[i]) == ERR_OK;
    double more = (double)(held[1] - held[0]), least = 12 * 128 * 768 * 4;
    tap_ok(fine && more >= least && more < least * 1.01,
           "plan: what adapters take that are held: %.0f of %.0f", more, least);
    tap_is_int((int64_t)(total[1] - held[1]) - (int64_t)(total[0] - held[0]),
               16 * (64 + 768 + 768) * 4, "plan: and what they work in");
    params_destroy(params[0]);
    params_destroy(params[1]);
}

/* An option that somebody adds to the model: the engine refuses it until it is
 * in its list, and knows all that there are. */
static void check_unknown(void)
{
    struct more {
        struct model_config config;
        int64_t stripes;
    } more = { .stripes = 0 };
    struct setting rows[128];
    int count = model_known_row_count;
    memcpy(rows, model_known_rows, (size_t)count * sizeof rows[0]);
    rows[count] = (struct setting){ .key = "stripes",
                                    .help = "tokens that one attends to",
                                    .type = SETTING_INT,
                                    .offset = offsetof(struct more, stripes),
                                    .preset = "0",
                                    .max = 1e6 };
    memset(&more.config, 0xff, sizeof more.config); /* no default anywhere */
    tap_ok(model_known_check(model_known_rows, count, &more, infer_known,
                             "generation") == ERR_OK,
           "the engine knows all of %d options", count);
    tap_ok(model_known_check(rows, count + 1, &more, infer_known,
                             "generation") == ERR_OK,
           "one more at its default");
    more.stripes = 4096;
    tap_ok(model_known_check(rows, count + 1, &more, infer_known,
                             "generation") == ERR_UNSUPPORTED &&
               strstr(err_text(), "model.stripes = 4096: generation") != NULL,
           "one more is refused by its name: %s", err_text());
}

int main(void)
{
    const struct kernels *kernels = NULL;
    const struct model_config dense = { FOUNDRY, .ffn = FFN_GLU };
    if (kernels_find("cpu", "auto", &kernels) != ERR_OK)
        abort();
    for (size_t i = 0; i < MODEL_CASES; i++)
        check_case(model_cases[i].name, create(model_cases[i].config), kernels);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_case(cases[i].name, create(cases[i].config), kernels);
    for (size_t i = 0; i < sizeof tuned / sizeof tuned[0]; i++)
        check_case(tuned[i].name, create_case(&tuned[i]), kernels);
    check_slots(dense, kernels);
    check_slots((struct model_config){ .positions = POSITIONS_ALIBI }, kernels);
    check_wanted(dense, kernels);
    check_unknown();
    check_errors(kernels);
    check_plan(kernels);
    check_plan_adapters(kernels);
    return tap_done();
}
