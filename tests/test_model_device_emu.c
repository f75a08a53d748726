/* The model on a device whose memory the host cannot touch, and which does
 * nothing before somebody waits for it (tests/cuda_emulator_memory.h), in fp32
 * and in bf16: loss and gradients against the fp64 reference and against the
 * processor's; leaves that follow each other without a wait. */
#include "src/model/model.h"

#include <sys/wait.h>

#include "tests/cuda_emulator_memory.h"
#include "tests/model_device.h"
#include "tests/model_probe.h"

static const struct {
    const char *name;
    struct model_config config;
    const char *memory; /* what is computed again; NULL: nothing */
    bool packed;
    bool unclipped; /* in bf16: others would be clipped, and gradients jump */
} cases[] = {
    { .name = "mpt",
      .config = { .bias = true,
                  .tied = true,
                  DROPOUTS,
                  .residual_scale = 0.6 } },
    { .name = "mpt, alibi",
      .config = { .tied = true, .positions = POSITIONS_ALIBI },
      .memory = "block",
      .packed = true },
    { .name = "llama", .config = { LLAMA }, .packed = true },
    { .name = "llama, dropout",
      .config = { LLAMA, DROPOUTS },
      .memory = "activation: last-1" },
    { .name = "qk norm",
      .config = { LLAMA, .qk_norm = QK_NORM_HEAD, .clip_qkv = 0.6,
                  .bias = true },
      .memory = "attention",
      .packed = true,
      .unclipped = true },
    { .name = "wide heads, norms after",
      .config = { LLAMA, .head_dim = 24, .norm_place = NORM_AFTER,
                  .qk_norm = QK_NORM_FULL },
      .memory = "ffn" },
    { .name = "gemma3",
      .config = { GEMMA3 },
      .memory = "block",
      .packed = true },
    { .name = "all experts",
      .config = { .experts = 3,
                  .experts_top_k = 3,
                  .router_normalize = 1.0,
                  .balance_weight = 0.5 } },
    { .name = "dbrx",
      .config = { DBRX, DROPOUTS, .router_jitter = 0.1, .balance_weight = 0.5 },
      .packed = true },
    { .name = "dbrx, again",
      .config = { DBRX, .balance_weight = 3.0 },
      .memory = "ffn",
      .unclipped = true },
};

/* --- one configuration --- */

#define LOSS_F32 2e-6
#define LOSS_BF16 (1.0 / 128)
#define GRADIENT_F32 2e-5
/* Every tensor of the model is rounded, by 2^-9 of an element at most, so an
 * error may be some times what moving the weights by as much changes. */
#define GRADIENT_BF16 (1.0 / 64)
#define ROUNDINGS 6.0

/* What to expect of the gradients: the processor's, of the same weights in
 * fp32, and how far a tensor may be off, relative to its largest element, or to
 * its length as a whole and along a direction. */
struct allowance {
    float *gradient;
    double bound[TENSORS_MAX];
};

/* Those of norms by as much of 1 + w, where that is multiplied by. */
static void move_weights(struct model_fixture *f)
{
    for (int p = 0; p < f->params->count; p++) {
        const struct param *param = &f->params->list[p];
        float one = f->config.norm_plus_one && param->dims == 1 ? 1.0f : 0.0f;
        for (int64_t i = param->offset; i < param->offset + param->numel; i++)
            f->weights[i] +=
                (one + f->weights[i]) * (float)sign_of(9, i) / 512.0f;
    }
}

static bool allow(const struct device *d, const char *memory,
                  struct allowance *out)
{
    struct model_fixture *f = d->f;
    const struct kernels *cpu = kernels_all()[0];
    size_t bytes = fixture_bytes(f);
    struct model_options options = device_options(d, memory);
    struct leaf_loss loss;
    float *weights = malloc(bytes);
    out->gradient = malloc(bytes);
    options.stream = NULL;
    options.dtype = DTYPE_F32;
    if (weights == NULL || out->gradient == NULL)
        abort();
    bool fine = fixture_run(f, cpu, &options, &loss);
    memcpy(out->gradient, f->gradient, bytes);
    memcpy(weights, f->weights, bytes);
    if (d->dtype == DTYPE_BF16)
        move_weights(f);
    fine = fine && fixture_run(f, cpu, &options, &loss);
    memcpy(f->weights, weights, bytes);
    for (int p = 0; p < f->params->count; p++) {
        double moved = fixture_distance(&f->params->list[p], f->gradient,
                                        out->gradient, 0.5);
        out->bound[p] = d->dtype == DTYPE_F32
                            ? GRADIENT_F32
                            : GRADIENT_BF16 + ROUNDINGS * moved;
    }
    free(weights);
    return fine;
}

/* Some elements and directions beside the reference's. */
static void check_probes(const struct model_fixture *f,
                         const struct expected *want,
                         const struct allowance *allowed, const char *name)
{
    double worst = 0.0;
    int used = 0, off = 0;
    for (int i = 0; i < want->probe_count; i++) {
        struct probe probe = want->probes[i];
        double error = probe.useless ? 0.0 : probe_error(f, probe);
        used += !probe.useless;
        worst = fmax(worst, error);
        if (error <= allowed->bound[probe.tensor])
            continue;
        off++;
        tap_note("gradient of %s, element %lld: error %.2g, allowed %.2g",
                 f->params->list[probe.tensor].name, (long long)probe.element,
                 error, allowed->bound[probe.tensor]);
    }
    tap_ok(off == 0 && 2 * used > want->probe_count,
           "%s: gradients (worst %.2g, %d of %d probes)", name, worst, used,
           want->probe_count);
}

/* All of them beside the processor's. */
static void check_all(const struct model_fixture *f,
                      const struct allowance *allowed, const char *name)
{
    double worst = 0.0;
    int off = 0;
    for (int p = 0; p < f->params->count; p++) {
        double error = fixture_distance(&f->params->list[p], f->gradient,
                                        allowed->gradient, 0.5);
        worst = fmax(worst, error);
        if (error <= allowed->bound[p])
            continue;
        off++;
        tap_note("gradient of %s: error %.2g, allowed %.2g",
                 f->params->list[p].name, error, allowed->bound[p]);
    }
    tap_ok(off == 0, "%s: all gradients beside the processor's (worst %.2g)",
           name, worst);
}

static bool same_choices(struct model *model, const struct kernels *kernels,
                         const struct model_fixture *f,
                         const struct expected *want)
{
    int64_t counts[LAYERS_MAX * EXPERTS_MAX] = { 0 };
    size_t experts = (size_t)(f->config.n_layers * f->config.experts);
    return fixture_counts(model, kernels, &f->config, counts) == ERR_OK &&
           memcmp(counts, want->counts, experts * sizeof counts[0]) == 0;
}

static void check_case(struct device *d, const char *memory,
                       const struct expected *want, const char *name)
{
    struct model_fixture *f = d->f;
    struct param_access access = device_access(d);
    struct model_options options = device_options(d, memory);
    struct leaf_loss loss[DEVICE_LEAVES] = { { NAN, NAN } };
    double bound = d->dtype == DTYPE_F32 ? LOSS_F32 : LOSS_BF16;
    struct allowance allowed;
    struct model *model = NULL;
    bool fine = allow(d, memory, &allowed);
    fine &= model_create(&f->config, f->params, &d->kernels, &options,
                         &model) == ERR_OK;
    int64_t waits = cuda_emulator_memory_waits();
    d->reached = 0;
    fine = fine && device_zero(d) &&
           model_train_leaf(model, &access, &f->leaf, d->loss) == ERR_OK &&
           model_expert_counts_clear(model) == ERR_OK &&
           model_eval_leaf(model, &access, &f->leaf, d->loss + 1) == ERR_OK;
    bool waited = cuda_emulator_memory_waits() != waits;
    if (!tap_ok(fine && device_read(d, loss), "%s: trains", name))
        tap_note("%s", err_text());
    tap_ok(!waited && d->reached == 2 && balanced_access(f),
           "%s: nobody waits but for the input, gathers and releases match",
           name);
    check_loss(loss[0], want->train, bound, name, "");
    check_loss(loss[1], want->eval, bound, name, " without dropout");
    check_probes(f, want, &allowed, name);
    check_all(f, &allowed, name);
    tap_ok(same_choices(model, &d->kernels, f, want),
           "%s: choices of the experts", name);
    model_destroy(model);
    free(allowed.gradient);
}

/* In bf16 the cases were taken so that the same experts are chosen. */
static void test_cases(const struct kernels *kernels)
{
    static struct expected want;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (enum dtype dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
            struct device d;
            char name[96];
            struct model_config config = cases[i].config;
            if (dtype == DTYPE_BF16 && cases[i].unclipped)
                config.clip_qkv = 0.0;
            struct model_fixture *f = fixture_create(config, cases[i].packed);
            snprintf(name, sizeof name, "%s in %s", cases[i].name,
                     dtype_name(dtype));
            round_weights(f, dtype);
            expect(f, 1, &want);
            device_open(&d, f, kernels, dtype);
            check_case(&d, cases[i].memory, &want, name);
            device_close(&d);
            fixture_destroy(f);
        }
}

/* --- leaves that follow each other --- */

/* Of other samples, with other tokens. */
static struct leaf other_leaf(const struct model_fixture *f, int number,
                              int32_t *tokens, int32_t *labels, int32_t *ids)
{
    struct leaf leaf = f->leaf;
    int64_t n = leaf.samples * leaf.seq_len;
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = f->tokens[(i + 3 * number) % n];
        labels[i] = f->labels[(i + 5 * number) % n];
        ids[i] = f->documents[i] + number % 2 * (int32_t)(i % leaf.seq_len > 1);
    }
    leaf.first_sample += number;
    leaf.tokens = tokens;
    leaf.labels = labels;
    leaf.sequence_ids = number == 2 ? NULL : ids;
    return leaf;
}

/* The leaves into one gradient; apart: each is waited for, and the caller's
 * memory is left alone. */
static bool run_leaves(struct device *d, bool apart, struct leaf_loss *loss)
{
    struct model_fixture *f = d->f;
    int32_t tokens[64], labels[64], ids[64];
    struct param_access access = device_access(d);
    struct model_options options = device_options(d, NULL);
    struct model *model = NULL;
    bool fine = model_create(&f->config, f->params, &d->kernels, &options,
                             &model) == ERR_OK &&
                device_zero(d);
    for (int i = 0; fine && i < DEVICE_LEAVES; i++) {
        struct leaf leaf = other_leaf(f, i, tokens, labels, ids);
        memset(f->done, 0, sizeof f->done);
        fine = model_train_leaf(model, &access, &leaf, d->loss + i) == ERR_OK;
        if (apart)
            fine = fine && d->memory.wait(d->stream) == ERR_OK;
        memset(tokens, 0xff, sizeof tokens);
        memset(labels, 0xff, sizeof labels);
        memset(ids, 0xff, sizeof ids);
    }
    fine = fine && device_read(d, loss);
    model_destroy(model);
    return fine;
}

static void test_leaves(const struct kernels *kernels, enum dtype dtype)
{
    struct leaf_loss apart[DEVICE_LEAVES], together[DEVICE_LEAVES];
    struct model_fixture *f = fixture_create(cases[6].config, true);
    struct device d;
    size_t bytes = fixture_bytes(f);
    float *first = malloc(bytes);
    device_open(&d, f, kernels, dtype);
    if (first == NULL)
        abort();
    bool fine = run_leaves(&d, true, apart);
    memcpy(first, f->gradient, bytes);
    int64_t before = cuda_emulator_memory_waits();
    fine = fine && run_leaves(&d, false, together);
    int64_t waits = cuda_emulator_memory_waits() - before;
    tap_ok(fine && memcmp(apart, together, sizeof apart) == 0 &&
               memcmp(first, f->gradient, bytes) == 0 &&
               apart[0].cross_entropy != apart[1].cross_entropy,
           "%s: leaves without a wait between them, the same bits",
           dtype_name(dtype));
    tap_ok(waits > 0 && waits < 2 * DEVICE_LEAVES,
           "%s: the host is two leaves ahead at most (%lld waits)",
           dtype_name(dtype), (long long)waits);
    free(first);
    device_close(&d);
    fixture_destroy(f);
}

/* --- fewer bits --- */

/* Of a tensor's gradient, relative, L2; one that nearly cancels is measured by
 * the whole. A value has half a step of 1 / 127 of its row's largest. */
#define PACKED_INT8 0.05

static size_t tensor_bytes; /* asked for last */

static enum err counted_create(size_t bytes, struct arena *out)
{
    tensor_bytes = bytes;
    return cuda_emulator_memory.tensors_create(bytes, out);
}

/* One leaf; what the model keeps and takes, and what it was planned to. */
static bool run_packed(struct device *d, enum packing packing,
                       struct leaf_loss *loss, struct model_bytes *plan)
{
    struct model_options options = device_options(d, NULL);
    struct param_access access = device_access(d);
    struct model *model = NULL;
    struct model_fixture *f = d->f;
    options.memory.packing = packing;
    d->memory.tensors_create = counted_create;
    bool fine = model_plan(&f->config, &d->kernels, &options, plan) == ERR_OK &&
                model_create(&f->config, f->params, &d->kernels, &options,
                             &model) == ERR_OK &&
                plan->total == tensor_bytes && device_zero(d) &&
                model_train_leaf(model, &access, &f->leaf, d->loss) == ERR_OK &&
                device_read(d, loss);
    model_destroy(model);
    return fine;
}

static double worst_distance(const struct model_fixture *f, const float *want)
{
    double squares = 0.0, worst = 0.0;
    for (int64_t i = 0; i < f->params->elements; i++)
        squares += (double)want[i] * (double)want[i];
    for (int p = 0; p < f->params->count; p++)
        worst = fmax(worst, fixture_distance(&f->params->list[p], f->gradient,
                                             want, 0.01 * sqrt(squares)));
    return worst;
}

/* Attention's output and the hidden layer are halved, with a scale per row. */
static void check_packed(struct device *d, const char *name)
{
    struct leaf_loss plain[DEVICE_LEAVES], packed[DEVICE_LEAVES];
    struct model_bytes plan, less;
    float *gradient = malloc(fixture_bytes(d->f));
    if (gradient == NULL)
        abort();
    bool fine = run_packed(d, PACKING_NONE, plain, &plan);
    memcpy(gradient, d->f->gradient, fixture_bytes(d->f));
    tap_ok(fine && run_packed(d, PACKING_BF16, packed, &less) &&
               less.total == plan.total &&
               memcmp(gradient, d->f->gradient, fixture_bytes(d->f)) == 0,
           "%s in bf16, packed to bf16: the same bits", name);
    tap_ok(run_packed(d, PACKING_INT8, packed, &less) &&
               fixture_same_loss(plain[0], packed[0]),
           "%s in bf16, packed to int8: forward is left alone", name);
    tap_ok(less.saved < plan.saved, "%s: %zu bytes are kept instead of %zu",
           name, less.saved, plan.saved);
    double worst = worst_distance(d->f, gradient);
    tap_ok(worst > 0.0 && worst <= PACKED_INT8,
           "%s: gradients off by %.2g at most", name, worst);
    free(gradient);
}

static void test_packed(const struct kernels *kernels)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct device d;
        struct model_config config = cases[i].config;
        struct model_fixture *f;
        config.clip_qkv = 0.0; /* the gradient of what a bound clips jumps */
        f = fixture_create(config, cases[i].packed);
        device_open(&d, f, kernels, DTYPE_BF16);
        check_packed(&d, cases[i].name);
        device_close(&d);
        fixture_destroy(f);
    }
}

/* --- the proof, and failures --- */

/* That the host cannot read a tensor is what all of the above relies on. */
static void test_reach(const struct kernels *kernels)
{
    struct arena tensors;
    int status = 0;
    if (kernels->memory->tensors_create(64, &tensors) != ERR_OK)
        abort();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(0);
        _exit(*(volatile char *)tensors.base);
    }
    tap_ok(child > 0 && waitpid(child, &status, 0) == child && status != 0,
           "who reads a tensor on the host dies");
    kernels->memory->tensors_destroy(&tensors);
}

static void test_failures(const struct kernels *kernels)
{
    struct model_fixture *f = fixture_create(cases[0].config, false);
    struct model_options options = fixture_options(f, 1);
    struct model_bytes plan = { 0 }, half = { 0 };
    tap_ok(model_plan(&f->config, kernels, &options, &plan) == ERR_OK &&
               plan.host > 0,
           "a plan counts the host's memory");
    options.dtype = DTYPE_BF16;
    tap_ok(model_plan(&f->config, kernels, &options, &half) == ERR_OK &&
               half.logits < plan.logits && half.saved < plan.saved * 3 / 4,
           "bf16 takes less");
    options.memory.packing = PACKING_BF16;
    plan = half;
    tap_ok(model_plan(&f->config, kernels, &options, &half) == ERR_OK &&
               half.total == plan.total,
           "packed to bf16 it is what it was");
    fixture_destroy(f);
}

int main(void)
{
    const struct kernels *kernels = NULL;
    if (!tap_ok(kernels_find("cuda", "emulated", &kernels) == ERR_OK &&
                    kernels->memory->device,
                "an emulated device"))
        return tap_done();
    test_reach(kernels);
    test_cases(kernels);
    test_leaves(kernels, DTYPE_F32);
    test_leaves(kernels, DTYPE_BF16);
    test_packed(kernels);
    test_failures(kernels);
    return tap_done();
}
