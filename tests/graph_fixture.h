/* What the tests of leaves as graphs share: a fixture on the emulated device
 * (cuda_emulator_memory.h), leaves of several kinds, and what a model makes of
 * them. */
#pragma once

#include "src/model/model.h"
#include "tests/cuda_emulator_memory.h"
#include "tests/model_fixture.h"

#define SUMS 2 /* gradients of leaves with even and odd `fixed` */
#define LEAVES 16
#define EXPERTS_MAX 8

/* --- the script --- */

struct step {
    int64_t samples, seq_len, fixed;
    bool documents;
    int ignored; /* labels without a loss, of the first ones */
};

/* Kinds meet again after others. */
static const struct step script[] = {
    { 2, 7, 0, true, 0 },  { 2, 7, 0, true, 0 },  { 2, 7, 0, true, 0 },
    { 1, 7, 0, true, 0 },  { 2, 7, 1, true, 0 },  { 2, 7, 1, true, 0 },
    { 2, 7, 0, true, 0 },  { 2, 7, 0, false, 0 }, { 2, 5, 0, false, 0 },
    { 2, 7, 0, false, 0 }, { 2, 7, 0, true, 3 },  { 1, 7, 0, true, 0 },
    { 2, 7, 0, true, 3 },  { 2, 7, 0, true, 3 },  { 2, 7, 0, true, 0 },
};
#define STEPS (int)(sizeof script / sizeof script[0])

/* --- the device --- */

/* A fixture whose weights and gradients are tensors. */
struct device {
    struct model_fixture *f;
    struct kernels kernels; /* the table's, or with something changed */
    struct kernel_memory memory;
    enum dtype dtype;
    void *stream;
    struct arena tensors;
    char *weights;
    float *gradient;        /* [SUMS][elements] */
    struct leaf_loss *loss; /* [LEAVES] */
    int64_t fixed;          /* what the access says */
    int steps;              /* of the script */
};

static inline enum err device_gather(void *arg, int block, const void **weights)
{
    struct device *d = arg;
    const void *host;
    enum err rc = fixture_gather(d->f, block, &host);
    *weights = d->weights + (size_t)d->f->params->blocks[block].offset *
                                dtype_bytes(d->dtype);
    return rc;
}

static inline enum err device_release(void *arg, int block)
{
    return fixture_release(((struct device *)arg)->f, block);
}

static inline enum err device_gradient(void *arg, int block, float **gradient)
{
    struct device *d = arg;
    enum err rc = fixture_gradient(d->f, block, gradient);
    *gradient = d->gradient + d->fixed % SUMS * d->f->params->elements +
                d->f->params->blocks[block].offset;
    return rc;
}

static inline enum err device_done(void *arg, int block)
{
    return fixture_done(((struct device *)arg)->f, block);
}

static int64_t device_fixed(void *arg)
{
    return ((struct device *)arg)->fixed;
}

static inline struct param_access device_access(struct device *d)
{
    return (struct param_access){ .arg = d,
                                  .gather = device_gather,
                                  .release = device_release,
                                  .gradient = device_gradient,
                                  .gradient_done = device_done,
                                  .fixed = device_fixed };
}

static inline void device_open(struct device *d, struct model_fixture *f,
                               const struct kernels *kernels, enum dtype dtype)
{
    size_t bytes = fixture_bytes(f);
    uint16_t *half = malloc(bytes);
    *d = (struct device){
        .f = f, .kernels = *kernels, .dtype = dtype, .steps = STEPS
    };
    d->memory = *kernels->memory;
    d->kernels.memory = &d->memory;
    if (half == NULL || d->memory.stream_create(false, &d->stream) != ERR_OK ||
        d->memory.tensors_create((1 + SUMS) * bytes + 1024, &d->tensors) !=
            ERR_OK)
        abort();
    d->weights = arena_take(&d->tensors, bytes);
    d->gradient = arena_take(&d->tensors, SUMS * bytes);
    d->loss = arena_take(&d->tensors, LEAVES * sizeof d->loss[0]);
    for (int64_t i = 0; i < f->params->elements; i++) {
        uint32_t bits;
        memcpy(&bits, &f->weights[i], sizeof bits);
        half[i] = (uint16_t)(bits >> 16);
    }
    if (d->memory.upload(d->stream,
                         (size_t)f->params->elements * dtype_bytes(dtype),
                         dtype == DTYPE_BF16 ? (void *)half : f->weights,
                         d->weights) != ERR_OK)
        abort();
    free(half);
}

static inline void device_close(struct device *d)
{
    d->memory.tensors_destroy(&d->tensors);
    d->memory.stream_destroy(d->stream);
}

/* --- leaves --- */

static inline bool same_step(const struct step *a, const struct step *b,
                             bool experts)
{
    return a->samples == b->samples && a->seq_len == b->seq_len &&
           a->fixed == b->fixed && a->documents == b->documents &&
           (!experts || a->ignored == b->ignored);
}

struct results {
    struct leaf_loss loss[LEAVES];
    float *gradient; /* [SUMS][elements] */
    int64_t experts[EXPERTS_MAX];
    int calls; /* of the access */
    struct cuda_emulator_memory_counts counts;
    int64_t launches; /* as the model has counted them */
};

static inline void results_close(struct results *r)
{
    free(r->gradient);
}

/* With numbers of its own; the caller's memory is another leaf's at once. */
static inline enum err train_one(struct device *d, struct model *model,
                                 int number, const struct step *step)
{
    struct model_fixture *f = d->f;
    struct param_access access = device_access(d);
    int32_t tokens[64], labels[64], ids[64];
    int64_t n = step->samples * step->seq_len;
    for (int64_t i = 0; i < n; i++) {
        int32_t vocab = (int32_t)f->config.vocab_size;
        tokens[i] = (int32_t)((i * 5 + number * 11) % vocab);
        labels[i] =
            i < step->ignored ? -100 : (int32_t)((i * 3 + number * 7) % vocab);
        ids[i] = (int32_t)(i % step->seq_len > 1 + number % 3);
    }
    struct leaf leaf = { .samples = step->samples,
                         .seq_len = step->seq_len,
                         .tokens = tokens,
                         .labels = labels,
                         .sequence_ids = step->documents ? ids : NULL,
                         .first_sample = 3 * number };
    d->fixed = step->fixed;
    memset(f->done, 0, sizeof f->done);
    enum err rc =
        model_train_leaf(model, &access, &leaf, d->loss + number % LEAVES);
    memset(tokens, 0xff, sizeof tokens);
    memset(labels, 0xff, sizeof labels);
    memset(ids, 0xff, sizeof ids);
    return rc;
}

static inline enum err device_zero(struct device *d)
{
    struct kernel_ctx ctx = { .threads = 1, .stream = d->stream };
    return d->kernels.zero(&ctx, DTYPE_F32, SUMS * d->f->params->elements,
                           d->gradient);
}

static inline enum err device_read(struct device *d, struct model *model,
                                   struct results *out)
{
    size_t bytes = SUMS * fixture_bytes(d->f);
    out->gradient = malloc(bytes);
    if (out->gradient == NULL)
        abort();
    TRY(d->memory.download(d->stream, bytes, d->gradient, out->gradient));
    TRY(d->memory.download(d->stream, sizeof out->loss - sizeof out->loss[0],
                           d->loss, out->loss));
    TRY(fixture_counts(model, &d->kernels, &d->f->config, out->experts));
    return d->memory.wait(d->stream);
}

static inline enum err model_open(struct device *d, bool graphs,
                                  struct model **model)
{
    struct model_options options = fixture_options(d->f, 1);
    options.stream = d->stream;
    options.dtype = d->dtype;
    options.graphs = graphs;
    return model_create(&d->f->config, d->f->params, &d->kernels, &options,
                        model);
}

static inline struct cuda_emulator_memory_counts
counts_since(struct cuda_emulator_memory_counts before)
{
    struct cuda_emulator_memory_counts now = cuda_emulator_memory_counts();
    now.waits -= before.waits;
    now.enqueued -= before.enqueued;
    now.captures -= before.captures;
    now.launches -= before.launches;
    return now;
}

/* The script; an evaluation in the middle changes nothing. */
static inline bool run(struct device *d, bool graphs, struct results *out)
{
    enum err rc = ERR_OK;
    struct model *model = NULL;
    struct param_access access = device_access(d);
    *out = (struct results){ .calls = 0 };
    TRY_OUT(model_open(d, graphs, &model));
    TRY_OUT(device_zero(d));
    TRY_OUT(model_expert_counts_clear(model));
    struct cuda_emulator_memory_counts before = cuda_emulator_memory_counts();
    d->f->calls = 0;
    for (int i = 0; i < d->steps; i++) {
        TRY_OUT(train_one(d, model, i, &script[i]));
        if (i == STEPS / 2) {
            int calls = d->f->calls;
            TRY_OUT(model_eval_leaf(model, &access, &d->f->leaf,
                                    d->loss + LEAVES - 1));
            d->f->calls = calls;
        }
    }
    out->calls = d->f->calls;
    out->counts = counts_since(before);
    out->launches = model_graph_launches(model);
    TRY_OUT(device_read(d, model, out));
out:
    if (rc != ERR_OK)
        tap_note("%s", err_text());
    model_destroy(model);
    return rc == ERR_OK;
}

static inline bool same_results(const struct device *d, const struct results *a,
                                const struct results *b)
{
    return memcmp(a->loss, b->loss, sizeof a->loss) == 0 &&
           memcmp(a->experts, b->experts, sizeof a->experts) == 0 &&
           memcmp(a->gradient, b->gradient, SUMS * fixture_bytes(d->f)) == 0 &&
           a->loss[0].cross_entropy > 0.0 &&
           a->loss[0].cross_entropy != a->loss[1].cross_entropy;
}
