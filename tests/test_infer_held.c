/* The types in which the engine holds weights, and those that it is lent: the
 * same bits with any kernel set, and as if the weights had been rounded. */

#include "tests/infer_fixture.h"

/* --- kernel sets, held types --- */

static void check_sets(struct model_config config, int held)
{
    struct model_fixture *f = create(config);
    const struct way ways[] = { { 2, TOKENS, CUT_BATCH, held },
                                { 1, 3, CUT_RAGGED, held } };
    bool same = true;
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++)
        for (int i = 0; i < 2; i++) {
            bool first = t == kernels_all() && i == 0;
            same = says(f, *t, &ways[i], first ? want : got) && same;
            if (!first && memcmp(got, want, sizeof *got) != 0) {
                tap_note("%s, way %d is another", (*t)->kernel_set, i);
                same = false;
            }
        }
    tap_ok(same, "all kernel sets and cuts, held %d: the same bits", held);
    fixture_destroy(f);
}

static float rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A row of n elements, `step` apart. */
static void round_row(enum infer_weights weights, float *x, int64_t n,
                      int64_t step)
{
    float most = 0.0f;
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i * step]));
    for (int64_t i = 0; i < n; i++) {
        float *one = &x[i * step];
        *one = weights == INFER_BF16
                   ? rounded(*one)
                   : nearbyintf(*one * (127.0f / most)) * (most / 127.0f);
    }
}

/* The fixture's matrices become what is held of them. */
static void round_table(const struct model_fixture *f,
                        const struct params *params, float *values,
                        enum infer_weights weights)
{
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        float *x = values + param->offset;
        int64_t rows = param->shape[0], cols = param->shape[1];
        int64_t width = f->config.ffn_width;
        if (!param_multiplies(param) || param->role == PARAM_ROUTER ||
            param->role >= PARAM_LORA)
            continue;
        if (param->role != PARAM_EXPERTS_DOWN)
            for (int64_t r = 0; r < rows; r++)
                round_row(weights, x + r * cols, cols, 1);
        else
            for (int64_t i = 0; i < rows / width * cols; i++)
                round_row(weights, x + i / cols * width * cols + i % cols,
                          width, cols);
    }
}

static void round_weights(const struct model_fixture *f,
                          enum infer_weights weights)
{
    round_table(f, f->params, f->weights, weights);
    if (f->params->frozen != NULL)
        round_table(f, f->params->frozen, f->weights + f->params->elements,
                    weights);
}

static double furthest(const struct said *a, const struct said *b)
{
    double most = 0.0;
    for (int64_t i = 0; i < TOKENS; i++)
        for (int v = 0; v < VOCAB; v++)
            most = fmax(
                most, fabs((double)a->logits[i][v] - (double)b->logits[i][v]));
    return most;
}

/* Held in fewer bits is to compute with weights of fewer bits. */
static void check_rounded(const char *name, struct model_fixture *f,
                          const struct kernels *kernels,
                          enum infer_weights weights)
{
    const struct way held = { 2, TOKENS, CUT_BATCH, (int)weights };
    const struct way gathered = { 2, TOKENS, CUT_BATCH, -1 };
    bool fine = says(f, kernels, &held, got);
    round_weights(f, weights);
    fine = says(f, kernels, &gathered, want) && fine;
    double off = furthest(got, want);
    if (!tap_ok(fine && off <= (weights == INFER_BF16 ? 0.0 : 2e-5),
                "%s held in %s: as with rounded weights", name,
                infer_weights_names[weights]))
        tap_note("%.3e off", off);
    fixture_destroy(f);
}

/* --- what is lent in bf16 --- */

static uint16_t *bf16_weights;

static enum err gather_bf16(void *arg, int block, const void **weights)
{
    struct model_fixture *f = arg;
    *weights = bf16_weights + f->params->blocks[block].offset;
    return ERR_OK;
}

static enum err frozen_bf16(void *arg, int block, const void **weights)
{
    struct model_fixture *f = arg;
    *weights = bf16_weights + f->params->elements +
               f->params->frozen->blocks[block].offset;
    return ERR_OK;
}

static enum err release_nothing(void *arg, int block)
{
    (void)arg;
    (void)block;
    return ERR_OK;
}

static void check_lent_bf16(const char *name, struct model_fixture *f,
                            const struct kernels *kernels, bool hold)
{
    const struct way gathered = { 2, TOKENS, CUT_WHOLE, -1 };
    const struct param_access access = { .arg = f,
                                         .gather = gather_bf16,
                                         .frozen = frozen_bf16,
                                         .release = release_nothing };
    const struct infer_options options = { .threads = 2,
                                           .sequences = SLOTS,
                                           .positions = LENGTH,
                                           .rows = 11,
                                           .lora_alpha = f->lora.alpha,
                                           .dtype = DTYPE_BF16 };
    struct infer *infer = NULL;
    bf16_weights = malloc((size_t)f->all * sizeof bf16_weights[0]);
    if (bf16_weights == NULL)
        abort();
    for (int64_t i = 0; i < f->all; i++) {
        uint32_t bits;
        f->weights[i] = rounded(f->weights[i]);
        memcpy(&bits, &f->weights[i], sizeof bits);
        bf16_weights[i] = (uint16_t)(bits >> 16);
    }
    bool fine = says(f, kernels, &gathered, want);
    struct infer_tokens list[SLOTS];
    memset(got, 0xff, sizeof *got);
    for (int slot = 0; slot < SLOTS; slot++)
        list[slot] = tokens_of(f, got, slot, 0, LENGTH);
    fine = fine && infer_create(&f->config, f->params, kernels, &options,
                                &infer) == ERR_OK;
    if (hold)
        fine = fine && infer_hold(infer, &access, INFER_BF16) == ERR_OK;
    fine = fine && infer_forward(infer, &access, list, SLOTS) == ERR_OK;
    tap_ok(fine && memcmp(got, want, sizeof *got) == 0,
           "%s, lent in bf16%s: the same bits", name, hold ? " and held" : "");
    infer_destroy(infer);
    free(bf16_weights);
    fixture_destroy(f);
}

static void check_tuned(const struct tuned_case *c,
                        const struct kernels *kernels)
{
    check_rounded(c->name, create_case(c), kernels, INFER_BF16);
    check_rounded(c->name, create_case(c), kernels, INFER_INT8);
    check_lent_bf16(c->name, create_case(c), kernels, false);
    check_lent_bf16(c->name, create_case(c), kernels, true);
}

int main(void)
{
    const struct kernels *kernels = NULL;
    const struct model_config moe = { DBRX, .tied = true };
    const struct model_config dense = { FOUNDRY, .ffn = FFN_GLU };
    if (kernels_find("cpu", "auto", &kernels) != ERR_OK)
        abort();
    for (int held = -1; held <= INFER_INT8; held++) {
        check_sets(dense, held);
        check_sets(moe, held);
    }
    for (int weights = INFER_BF16; weights <= INFER_INT8; weights++) {
        check_rounded("dense", create(dense), kernels,
                      (enum infer_weights)weights);
        check_rounded("experts", create(moe), kernels,
                      (enum infer_weights)weights);
    }
    check_lent_bf16("weights", create(dense), kernels, false);
    check_lent_bf16("experts", create(moe), kernels, false);
    check_lent_bf16("weights", create(dense), kernels, true);
    for (size_t i = 0; i < sizeof tuned / sizeof tuned[0]; i++)
        check_tuned(&tuned[i], kernels);
    return tap_done();
}
