/* What the tests of leaves as graphs share: a fixture on the emulated device
 * (cuda_emulator_memory.h), leaves of several kinds, and what a model makes of
 * them. */
#pragma once

#include "src/model/model.h"
#include "tests/cuda_emulator_memory.h"
#include "tests/model_device.h"

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

/* --- leaves --- */

static inline bool same_step(const struct step *a, const struct step *b,
                             bool experts)
{
    return a->samples == b->samples && a->seq_len == b->seq_len &&
           a->fixed == b->fixed && a->documents == b->documents &&
           (!experts || a->ignored == b->ignored);
}

struct results {
    struct leaf_loss loss[DEVICE_LOSSES];
    float *gradient; /* [DEVICE_SUMS][elements] */
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
    d->fixes = true;
    d->fixed = step->fixed;
    struct param_access access = device_access(d);
    memset(f->done, 0, sizeof f->done);
    enum err rc = model_train_leaf(model, &access, &leaf,
                                   d->loss + number % DEVICE_LOSSES);
    memset(tokens, 0xff, sizeof tokens);
    memset(labels, 0xff, sizeof labels);
    memset(ids, 0xff, sizeof ids);
    return rc;
}

static inline enum err read_results(struct device *d, struct model *model,
                                    struct results *out)
{
    size_t bytes = DEVICE_SUMS * fixture_bytes(d->f);
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
    struct model_options options = device_options(d, NULL);
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

/* The script's first steps; an evaluation in the middle changes nothing. */
static inline bool run(struct device *d, bool graphs, int steps,
                       struct results *out)
{
    enum err rc = ERR_OK;
    struct model *model = NULL;
    *out = (struct results){ .calls = 0 };
    TRY_OUT(model_open(d, graphs, &model));
    TRY_OUT(device_zero(d) ? ERR_OK : ERR_INTERNAL);
    TRY_OUT(model_expert_counts_clear(model));
    struct cuda_emulator_memory_counts before = cuda_emulator_memory_counts();
    d->f->calls = 0;
    for (int i = 0; i < steps; i++) {
        TRY_OUT(train_one(d, model, i, &script[i]));
        if (i == STEPS / 2) {
            int calls = d->f->calls;
            struct param_access access = device_access(d);
            TRY_OUT(model_eval_leaf(model, &access, &d->f->leaf,
                                    d->loss + DEVICE_LOSSES - 1));
            d->f->calls = calls;
        }
    }
    out->calls = d->f->calls;
    out->counts = counts_since(before);
    out->launches = model_graph_launches(model);
    TRY_OUT(read_results(d, model, out));
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
           memcmp(a->gradient, b->gradient,
                  DEVICE_SUMS * fixture_bytes(d->f)) == 0 &&
           a->loss[0].cross_entropy > 0.0 &&
           a->loss[0].cross_entropy != a->loss[1].cross_entropy;
}
