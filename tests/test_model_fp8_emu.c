/* Models whose products are in 8 bits, on a device whose memory the host cannot
 * touch, beside bf16 and fp32; which magnitudes count; plans and refusals. */

#include "src/model/model.h"
#include "src/train/run/trainer_fp8.h"
#include "tests/cuda_emulator_memory.h"
#include "tests/kernel_check.h"
#include "tests/model_fp8.h"

/* --- whole models --- */

/* Of the cross entropy, relative. */
#define LOSS_NEAR 0.02
/* Of a tensor's gradient, |difference| / |gradient|: rounding to E4M3 changes
 * an element by 2^-4 at most, as often up as down, so an error may be some
 * times what moving the weights by as much changes. Gradients are rounded by
 * twice that, and errors of what comes before add up. */
#define MOVED (1.0f / 16)
#define MOVES 1.0
#define LEAST 0.5 /* length of a gradient that is not small */
#define TENSORS_MAX 64

static const struct {
    const char *name;
    struct model_config config;
    const char *memory;
} models[] = {
    { "mpt", { .bias = true, .tied = true }, "block" },
    { "llama", { FP8_LLAMA }, "ffn" },
    { "qk norm", { FP8_LLAMA, .qk_norm = QK_NORM_HEAD }, "attention" },
    { "wide heads, norms after",
      { FP8_LLAMA, .head_dim = 32, .norm_place = NORM_AFTER },
      "block" },
    { "norms around",
      { FP8_LLAMA, .norm_place = NORM_AROUND, .norm_plus_one = true },
      "ffn" },
    { "experts",
      { .experts = 3,
        .experts_top_k = 3,
        .router_normalize = 1.0,
        .balance_weight = 0.5 },
      "ffn" },
};

struct outcome {
    struct leaf_loss loss, eval;
    float *gradient, *found;
    bool waited;
};

static void outcome_free(struct outcome *o)
{
    free(o->gradient);
    free(o->found);
}

static bool train_leaf(struct device *d, struct model *model,
                       const struct leaf *leaf)
{
    struct param_access access = device_access(d);
    memset(d->f->done, 0, sizeof d->f->done);
    return model_train_leaf(model, &access, leaf, d->loss) == ERR_OK;
}

/* The magnitudes of a first pass make the scales. */
static bool calibrate(struct device *d, struct model *model)
{
    struct trainer_fp8 *fp8 = NULL;
    struct comm *self = NULL;
    const struct kernel_memory *memory = &d->memory;
    bool fine = comm_create("self", NULL, NULL, 60.0, &self) == ERR_OK &&
                trainer_fp8_create(memory, model_fp8_count(&d->f->config),
                                   &fp8) == ERR_OK &&
                model_fp8_clear(model) == ERR_OK &&
                train_leaf(d, model, &d->f->leaf) &&
                model_fp8_download(model, trainer_fp8_found(fp8)) == ERR_OK &&
                memory->wait(d->stream) == ERR_OK &&
                trainer_fp8_learn(fp8, self) == ERR_OK &&
                trainer_fp8_give(fp8, model) == ERR_OK &&
                memory->wait(d->stream) == ERR_OK;
    trainer_fp8_destroy(fp8);
    comm_destroy(self);
    return fine;
}

static bool run(struct device *d, bool fp8, const char *memory,
                struct outcome *out)
{
    struct leaf_loss loss[DEVICE_LEAVES];
    struct param_access access = device_access(d);
    struct model *model = fp8_model(d, fp8, memory);
    size_t bytes = fixture_bytes(d->f);
    size_t count = (size_t)model_fp8_count(&d->f->config);
    *out = (struct outcome){ .gradient = check_alloc(bytes),
                             .found = check_alloc(count * sizeof(float)) };
    bool fine = model != NULL && (!fp8 || calibrate(d, model));
    int64_t waits = cuda_emulator_memory_waits();
    fine = fine && device_zero(d) && model_fp8_clear(model) == ERR_OK &&
           train_leaf(d, model, &d->f->leaf) &&
           model_eval_leaf(model, &access, &d->f->leaf, d->loss + 1) == ERR_OK;
    out->waited = cuda_emulator_memory_waits() != waits;
    fine = fine && device_read(d, loss) &&
           (!fp8 || model_fp8_download(model, out->found) == ERR_OK);
    out->loss = loss[0];
    out->eval = loss[1];
    memcpy(out->gradient, d->f->gradient, bytes);
    model_destroy(model);
    return fine;
}

/* What to expect: the processor's in fp32. */
struct expected {
    struct leaf_loss loss;
    float *gradient;
    double bound[TENSORS_MAX];
};

static bool expect(struct model_fixture *f, struct expected *out)
{
    size_t bytes = fixture_bytes(f);
    struct model_options options = fixture_options(f, 1);
    const struct kernels *cpu = kernels_all()[0];
    struct leaf_loss loss;
    float *weights = check_copy(f->weights, f->params->elements);
    bool fine = fixture_run(f, cpu, &options, &out->loss);
    out->gradient = check_copy(f->gradient, f->params->elements);
    for (int64_t i = 0; i < f->params->elements; i++)
        f->weights[i] *=
            1.0f + (rng_u64(9, 0, (uint64_t)i) & 1 ? MOVED : -MOVED);
    fine = fixture_run(f, cpu, &options, &loss) && fine;
    for (int p = 0; p < f->params->count; p++)
        out->bound[p] =
            MOVES * fixture_distance(&f->params->list[p], f->gradient,
                                     out->gradient, LEAST);
    memcpy(f->weights, weights, bytes);
    free(weights);
    return fine;
}

static bool near(struct leaf_loss a, struct leaf_loss b)
{
    return fabs(a.cross_entropy / b.cross_entropy - 1.0) <= LOSS_NEAR;
}

static void check_beside(const struct model_fixture *f,
                         const struct outcome *fp8, struct leaf_loss loss,
                         const float *gradient, const double *bound,
                         const char *name)
{
    double worst = 0.0, nearest = INFINITY;
    int off = 0;
    for (int p = 0; p < f->params->count; p++) {
        double error = fixture_distance(&f->params->list[p], fp8->gradient,
                                        gradient, LEAST);
        off += !(error <= bound[p]);
        worst = fmax(worst, error / bound[p]);
        nearest = fmin(nearest, error);
    }
    tap_ok(near(fp8->loss, loss) && near(fp8->eval, loss),
           "%s: loss %.4f, %.4f", name, fp8->loss.cross_entropy,
           loss.cross_entropy);
    tap_ok(off == 0 && nearest > 0.0,
           "%s: gradients, at most %.2g of what is allowed", name, worst);
}

static bool same(const struct model_fixture *f, const struct outcome *a,
                 const struct outcome *b)
{
    size_t count = (size_t)model_fp8_count(&f->config);
    return fixture_same_loss(a->loss, b->loss) &&
           memcmp(a->gradient, b->gradient, fixture_bytes(f)) == 0 &&
           memcmp(a->found, b->found, count * sizeof(float)) == 0;
}

static void check_model(struct device *d, const char *memory, const char *name)
{
    struct model_fixture *f = d->f;
    struct outcome fp8, again, bf16;
    struct expected want;
    char beside[64];
    tap_ok(expect(f, &want), "%s on the processor", name);
    tap_ok(run(d, true, NULL, &fp8), "%s trains", name);
    tap_ok(!fp8.waited, "%s: nobody waits", name);
    tap_ok(run(d, true, memory, &again) && same(f, &fp8, &again),
           "%s: the same bits where %s is computed again", name, memory);
    tap_ok(run(d, false, NULL, &bf16), "%s: in bf16", name);
    snprintf(beside, sizeof beside, "%s beside bf16", name);
    check_beside(f, &fp8, bf16.loss, bf16.gradient, want.bound, beside);
    snprintf(beside, sizeof beside, "%s beside fp32", name);
    check_beside(f, &fp8, want.loss, want.gradient, want.bound, beside);
    free(want.gradient);
    outcome_free(&fp8);
    outcome_free(&again);
    outcome_free(&bf16);
}

static void test_models(const struct kernels *kernels)
{
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct device d;
        struct model_fixture *f = fp8_fixture(models[i].config);
        device_open(&d, f, kernels, DTYPE_BF16);
        check_model(&d, models[i].memory, models[i].name);
        device_close(&d);
        fixture_destroy(f);
    }
}

/* --- what counts --- */

static bool found_in(struct device *d, struct model *model,
                     const struct leaf *leaf, float *found)
{
    return model_fp8_clear(model) == ERR_OK && train_leaf(d, model, leaf) &&
           model_fp8_download(model, found) == ERR_OK &&
           d->memory.wait(d->stream) == ERR_OK;
}

/* One linear layer's numbers of `operand` that are 0. */
static int zeros(const float *found, int64_t count, int operand)
{
    int zero = 0;
    for (int64_t i = operand; i < count; i += FP8_OPERANDS)
        zero += found[i] == 0.0f;
    return zero;
}

static void test_counted(const struct kernels *kernels, bool experts)
{
    struct model_config config = { .experts = experts ? 3 : 0,
                                   .experts_top_k = experts ? 1 : 0 };
    struct model_fixture *f = fp8_fixture(config);
    int32_t labels[FIXTURE_TOKENS_MAX];
    int64_t count = model_fp8_count(&f->config);
    float *found = check_alloc((size_t)count * sizeof *found);
    int unused = experts ? 2 * (int)f->config.n_layers : 0;
    struct device d;
    struct leaf empty = f->leaf;
    for (int i = 0; i < FIXTURE_TOKENS_MAX; i++)
        labels[i] = -100;
    empty.labels = labels;
    device_open(&d, f, kernels, DTYPE_BF16);
    struct model *model = fp8_model(&d, true, NULL);
    const char *name = experts ? "experts" : "dense";
    tap_ok(found_in(&d, model, &f->leaf, found) &&
               zeros(found, count, 0) == unused &&
               zeros(found, count, 1) == unused &&
               zeros(found, count, 2) == unused,
           "%s: layers that have magnitudes", name);
    tap_ok(found_in(&d, model, &empty, found) &&
               zeros(found, count, 0) == count / FP8_OPERANDS &&
               zeros(found, count, 1) == count / FP8_OPERANDS,
           "%s: a leaf without loss tokens does not count", name);
    model_destroy(model);
    device_close(&d);
    fixture_destroy(f);
    free(found);
}

/* Leaves of the same shape, of which some count: a graph is of one sort. */
static void test_counted_as_graphs(const struct kernels *kernels)
{
    struct model_fixture *f =
        fp8_fixture((struct model_config){ .bias = true });
    int32_t labels[FIXTURE_TOKENS_MAX];
    int64_t count = model_fp8_count(&f->config);
    float *found = check_alloc((size_t)count * sizeof *found);
    struct device d;
    struct leaf empty = f->leaf;
    bool fine = true;
    for (int i = 0; i < FIXTURE_TOKENS_MAX; i++)
        labels[i] = -100;
    empty.labels = labels;
    device_open(&d, f, kernels, DTYPE_BF16);
    d.fixes = true;
    struct model *model = fp8_model(&d, true, NULL);
    for (int i = 0; i < 3; i++) {
        fine = fine && found_in(&d, model, &f->leaf, found) &&
               zeros(found, count, 0) == 0;
        fine = fine && found_in(&d, model, &empty, found) &&
               zeros(found, count, 0) == count / FP8_OPERANDS;
    }
    tap_ok(fine, "as graphs: a leaf without loss tokens does not count");
    tap_is_int(model_graph_launches(model), 4, "as graphs: two of three each");
    model_destroy(model);
    device_close(&d);
    fixture_destroy(f);
    free(found);
}

/* --- plans and refusals --- */

static void test_plan(const struct kernels *kernels)
{
    struct model_config llama = { FP8_LLAMA };
    struct model_fixture *f = fp8_fixture(llama);
    struct model_options options = fixture_options(f, 1);
    struct model_bytes bf16 = { 0 }, fp8 = { 0 };
    struct model *model = NULL;
    int64_t rows = options.samples * options.seq_len;
    options.dtype = DTYPE_BF16;
    bool fine = model_plan(&f->config, kernels, &options, &bf16) == ERR_OK;
    options.fp8 = true;
    fine = fine && model_plan(&f->config, kernels, &options, &fp8) == ERR_OK;
    int64_t more = (int64_t)(fp8.workspace - bf16.workspace);
    /* x of down, W of gate and up, and twice its dy */
    int64_t operands = rows * 48 + 96 * 32 + 2 * rows * 96;
    tap_ok(fine && fp8.total - bf16.total == (size_t)more && more > operands &&
               more < operands + 1024,
           "the plan has %lld bytes more, operands %lld", (long long)more,
           (long long)operands);
    tap_ok(model_create(&f->config, f->params, kernels_all()[0], &options,
                        &model) == ERR_UNSUPPORTED &&
               model == NULL && strstr(err_text(), "8-bit") != NULL,
           "the processor has none: %s", err_text());
    fixture_destroy(f);
}

int main(void)
{
    const struct kernels *kernels = NULL;
    if (!tap_ok(kernels_find("cuda", "emulated", &kernels) == ERR_OK &&
                    kernels->quantize != NULL,
                "an emulated device with 8-bit floats"))
        return tap_done();
    test_models(kernels);
    test_counted(kernels, false);
    test_counted(kernels, true);
    test_counted_as_graphs(kernels);
    test_plan(kernels);
    return tap_done();
}
