/* What the fp64 reference expects of a fixture's leaf: losses, choices of the
 * experts, and of each tensor's gradient some probes, by differences. */
#pragma once

#include "tests/model_fixture.h"
#include "tests/model_reference.h"

#define PROBES 4 /* per tensor: one direction, then single elements */
#define TENSORS_MAX 64
#define EXPERTS_MAX 8
#define LAYERS_MAX 4

struct probe {
    int tensor;
    int64_t element; /* -1: along the random direction */
    double want;
    bool useless; /* a choice changes nearby */
};

/* The random direction, 1 or -1. */
static inline double sign_of(int tensor, int64_t element)
{
    return (rng_u64(6, (uint64_t)tensor, (uint64_t)element) & 1) ? 1.0 : -1.0;
}

static inline void move(const struct param *param, struct probe probe,
                        double step, double *w)
{
    w += param->offset;
    for (int64_t i = 0; probe.element < 0 && i < param->numel; i++)
        w[i] += step * sign_of(probe.tensor, i);
    if (probe.element >= 0)
        w[probe.element] += step;
}

/* Central difference; the weights come back with rounding errors only. */
static inline void differentiate(const struct model_reference *reference,
                                 uint64_t choices, double *w,
                                 struct probe *probe)
{
    const struct param *param = &reference->params->list[probe->tensor];
    double h = probe->element < 0 ? 1e-5 / sqrt((double)param->numel) : 1e-5;
    struct model_reference_loss up, down;
    move(param, *probe, h, w);
    up = model_reference_run(reference, w);
    move(param, *probe, -2.0 * h, w);
    down = model_reference_run(reference, w);
    move(param, *probe, h, w);
    probe->want =
        (up.cross_entropy + up.balance - down.cross_entropy - down.balance) /
        (2.0 * h);
    probe->useless = up.choices != choices || down.choices != choices;
}

struct expected {
    struct model_reference_loss train;
    struct model_reference_loss eval;
    int64_t counts[LAYERS_MAX * EXPERTS_MAX]; /* of eval */
    struct probe probes[TENSORS_MAX * PROBES];
    int probe_count;
};

/* Of the leaf in `chunks` pieces. */
static inline void expect(const struct model_fixture *f, int chunks,
                          struct expected *out)
{
    struct model_reference_rounding rounding = { 0 };
    struct model_reference reference = { .config = &f->config,
                                         .params = f->params,
                                         .leaf = &f->leaf,
                                         .seed = FIXTURE_SEED,
                                         .chunks = chunks,
                                         .lora = f->lora,
                                         .counts = out->counts };
    double *w = malloc((size_t)f->all * sizeof(double));
    if (w == NULL || f->params->count > TENSORS_MAX)
        abort();
    for (int64_t i = 0; i < f->all; i++)
        w[i] = (double)f->weights[i];
    out->eval = model_reference_run(&reference, w);
    reference.counts = NULL;
    reference.training = true;
    reference.rounding = &rounding;
    out->train = model_reference_run(&reference, w);
    rounding.replay = true;
    out->probe_count = f->params->count * PROBES;
    for (int i = 0; i < out->probe_count; i++) {
        struct probe *probe = &out->probes[i];
        int64_t numel = f->params->list[i / PROBES].numel;
        probe->tensor = i / PROBES;
        probe->element =
            i % PROBES == 0
                ? -1
                : (int64_t)(rng_u64(5, 0, (uint64_t)i) % (uint64_t)numel);
        differentiate(&reference, out->train.choices, w, probe);
    }
    free(rounding.offset);
    free(w);
}

/* Error of a probe, relative to the tensor's gradient, or to a size usual among
 * tensors where one nearly cancels: shifting all keys changes no softmax. */
static inline double probe_error(const struct model_fixture *f,
                                 struct probe probe)
{
    const struct param *param = &f->params->list[probe.tensor];
    const float *g = f->gradient + param->offset;
    double got = 0.0, scale = 0.0;
    for (int64_t i = 0; i < param->numel; i++) {
        double at = (double)g[i];
        got += probe.element < 0 ? at * sign_of(probe.tensor, i) : 0.0;
        scale = probe.element < 0 ? hypot(scale, at) : fmax(scale, fabs(at));
    }
    if (probe.element >= 0)
        got = (double)g[probe.element];
    double error = fabs(got - probe.want) / fmax(0.5, scale);
    return isnan(error) ? INFINITY : error;
}

static inline void check_loss(struct leaf_loss got,
                              struct model_reference_loss want,
                              double tolerance, const char *name,
                              const char *what)
{
    tap_is_close(got.cross_entropy, want.cross_entropy, tolerance,
                 "%s: cross entropy%s", name, what);
    tap_is_close(got.balance, want.balance, tolerance, "%s: balance%s", name,
                 what);
}

/* All that was gathered is released, and each block's gradient was done once. */
static inline bool balanced_access(const struct model_fixture *f)
{
    bool fine = !f->misused;
    for (int b = 0; b < f->params->block_count; b++)
        fine &= f->held[b] == 0 && f->done[b] == 1;
    return fine;
}
