/* Chooses tokens. What is kept is found in a heap, so that a few of many tokens
 * need no sorting of all.
 *
 * Penalty and temperature change the scores; top-k, top-p (nucleus sampling,
 * Holtzman et al. 2020) and min-p then keep a beginning of the tokens in
 * falling order of probability; of these one is drawn. Only how many are kept
 * is ever wanted in order, and that is few: a heap is built in one pass over
 * the vocabulary and gives the next token for its logarithm. */
#include "src/infer/sample.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/base/real.h"
#include "src/base/rng.h"

const struct sample_options sample_options_default = {
    .temperature = 1,
    .top_p = 1,
    .repetition_penalty = 1,
    .seed = 17,
};

struct sample {
    int64_t vocab;
    float *score;        /* [vocab] */
    double *probability; /* [vocab] */
    int32_t *heap;       /* [vocab] tokens; those taken off are behind it, the
                            first one last */
    int64_t left;        /* in the heap */
    bool *seen;          /* [vocab] penalised; all false between calls */
};

enum err sample_check(const struct sample_options *options)
{
    const struct {
        const char *name;
        double value, above, from, to;
    } rows[] = {
        { "temperature", options->temperature, 0, 0, 1e6 },
        { "top-p", options->top_p, 0, 0, 1 },
        { "min-p", options->min_p, -1, 0, 1 },
        { "repetition-penalty", options->repetition_penalty, 0, 0, 1e6 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!(rows[i].value > rows[i].above && rows[i].value >= rows[i].from &&
              rows[i].value <= rows[i].to))
            return err_set(ERR_USAGE, "%s is %g: it is %s 0 and at most %g",
                           rows[i].name, rows[i].value,
                           rows[i].above == 0 ? "above" : "at least",
                           rows[i].to);
    if (options->top_k < 0)
        return err_set(ERR_USAGE, "top-k is %" PRId64 ": it is 0, all, or more",
                       options->top_k);
    return ERR_OK;
}

void sample_describe(const struct sample_options *options, char *text,
                     size_t bytes)
{
    char penalty[48] = "", top_k[48] = "", top_p[48] = "", min_p[48] = "";
    if (options->repetition_penalty != 1)
        snprintf(penalty, sizeof penalty, ", repetition penalty %g",
                 options->repetition_penalty);
    if (options->greedy) {
        snprintf(text, bytes, "greedy%s", penalty);
        return;
    }
    if (options->top_k > 0)
        snprintf(top_k, sizeof top_k, ", top-k %" PRId64, options->top_k);
    if (options->top_p < 1)
        snprintf(top_p, sizeof top_p, ", top-p %g", options->top_p);
    if (options->min_p > 0)
        snprintf(min_p, sizeof min_p, ", min-p %g", options->min_p);
    snprintf(text, bytes, "temperature %g%s%s%s%s, seed %" PRIu64,
             options->temperature, top_k, top_p, min_p, penalty, options->seed);
}

enum err sample_create(int64_t vocab, struct sample **out)
{
    assert(vocab > 0 && vocab <= INT32_MAX);
    enum err rc = ERR_OK;
    struct sample *sample = NULL;
    TRY(new_zeroed(&sample, 1));
    sample->vocab = vocab;
    TRY_OUT(new_room(&sample->score, (size_t)vocab));
    TRY_OUT(new_room(&sample->probability, (size_t)vocab));
    TRY_OUT(new_room(&sample->heap, (size_t)vocab));
    TRY_OUT(new_zeroed(&sample->seen, (size_t)vocab));
out:
    return new_or_none(rc, sample, out, sample_destroy);
}

void sample_destroy(struct sample *sample)
{
    if (sample == NULL)
        return;
    free(sample->score);
    free(sample->probability);
    free(sample->heap);
    free(sample->seen);
    free(sample);
}

/* A token counts once, however often the text has it: `seen` remembers, and is
 * cleared by a second walk over the text and not over the vocabulary. A penalty
 * must make any score smaller, so it divides what is positive and multiplies what
 * is negative. */
static void sample_penalise(struct sample *sample, float penalty,
                            struct sample_history history)
{
    for (size_t i = 0; i < history.count; i++) {
        int32_t token = history.tokens[i];
        if (token < 0 || token >= sample->vocab || sample->seen[token])
            continue;
        float *score = &sample->score[token];
        *score = *score < 0 ? *score * penalty : *score / penalty;
        sample->seen[token] = true;
    }
    for (size_t i = 0; i < history.count; i++)
        if (history.tokens[i] >= 0 && history.tokens[i] < sample->vocab)
            sample->seen[history.tokens[i]] = false;
}

/* Scores with penalty and temperature, and the first of the largest. */
static enum err sample_scores(struct sample *sample,
                              const struct sample_options *options,
                              const float *logits,
                              struct sample_history history, int32_t *largest)
{
    memcpy(sample->score, logits,
           (size_t)sample->vocab * sizeof *sample->score);
    if (options->repetition_penalty != 1)
        sample_penalise(sample, (float)options->repetition_penalty, history);
    bool numbers = true;
    *largest = 0;
    for (int64_t i = 0; i < sample->vocab; i++) {
        if (!options->greedy)
            sample->score[i] /= (float)options->temperature;
        numbers &= !isnan(sample->score[i]);
        if (sample->score[i] > sample->score[*largest])
            *largest = (int32_t)i;
    }
    if (!numbers || !isfinite(sample->score[*largest]))
        return err_set(ERR_NUMERIC,
                       "the model's logits, with penalty and temperature, are "
                       "not all finite numbers: its weights are damaged, or "
                       "the temperature is too low");
    return ERR_OK;
}

/* Whether token a is taken before b. */
static bool sample_before(const struct sample *sample, int32_t a, int32_t b)
{
    float of_a = sample->score[a], of_b = sample->score[b];
    return of_a > of_b || (of_a == of_b && a > b);
}

static void sample_sink(struct sample *sample, int64_t at)
{
    int32_t *heap = sample->heap;
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= sample->left)
            return;
        if (child + 1 < sample->left &&
            sample_before(sample, heap[child + 1], heap[child]))
            child++;
        if (!sample_before(sample, heap[child], heap[at]))
            return;
        int32_t token = heap[at];
        heap[at] = heap[child];
        heap[child] = token;
        at = child;
    }
}

static void sample_heap(struct sample *sample)
{
    sample->left = sample->vocab;
    for (int64_t i = 0; i < sample->vocab; i++)
        sample->heap[i] = (int32_t)i;
    for (int64_t i = sample->vocab / 2 - 1; i >= 0; i--)
        sample_sink(sample, i);
}

/* Takes the first one off the heap. */
static int32_t sample_pop(struct sample *sample)
{
    int32_t token = sample->heap[0];
    sample->heap[0] = sample->heap[--sample->left];
    sample->heap[sample->left] = token;
    sample_sink(sample, 0);
    return token;
}

/* Weights of the k largest and of those that equal the last of them; the
 * others' become 0. */
static void sample_top_k(struct sample *sample, int64_t k)
{
    float last = 0;
    sample_heap(sample);
    while (sample->left > 0 && (sample->vocab - sample->left < k ||
                                sample->score[sample->heap[0]] == last))
        last = sample->score[sample_pop(sample)];
    for (int64_t i = 0; i < sample->left; i++)
        sample->probability[sample->heap[i]] = 0;
}

static double sample_sum(const struct sample *sample)
{
    double sum = 0;
    for (int64_t i = 0; i < sample->vocab; i++)
        sum += sample->probability[i];
    return sum;
}

/* The token that passes the limit still belongs to those that are kept, so there
 * is always one. The share is of what top-k has left. */
static void sample_top_p(struct sample *sample, double share)
{
    double limit = share * sample_sum(sample), before = 0;
    sample_heap(sample);
    while (sample->left > 0 && before < limit)
        before += sample->probability[sample_pop(sample)];
    for (int64_t i = 0; i < sample->left; i++)
        sample->probability[sample->heap[i]] = 0;
}

enum err sample_distribution(struct sample *sample,
                             const struct sample_options *options,
                             const float *logits, struct sample_history history,
                             const double **probability)
{
    int32_t largest;
    double *weight = sample->probability;
    TRY(sample_scores(sample, options, logits, history, &largest));
    double most = sample->score[largest];
    for (int64_t i = 0; i < sample->vocab; i++)
        weight[i] =
            options->greedy ? i == largest : real_exp(sample->score[i] - most);
    *probability = weight;
    if (options->greedy)
        return ERR_OK;
    if (options->top_k > 0 && options->top_k < sample->vocab)
        sample_top_k(sample, options->top_k);
    if (options->top_p < 1)
        sample_top_p(sample, options->top_p);
    for (int64_t i = 0; i < sample->vocab; i++)
        if (weight[i] < options->min_p) /* the largest one's weight is 1 */
            weight[i] = 0;
    double sum = sample_sum(sample);
    for (int64_t i = 0; i < sample->vocab; i++)
        weight[i] /= sum;
    return ERR_OK;
}

enum err sample_next(struct sample *sample,
                     const struct sample_options *options, const float *logits,
                     struct sample_history history, uint64_t prompt,
                     uint64_t position, int32_t *token)
{
    const double *probability;
    if (options->greedy)
        return sample_scores(sample, options, logits, history, token);
    TRY(sample_distribution(sample, options, logits, history, &probability));
    /* the first token at which the sum of probabilities is beyond the draw; where
     * rounding leaves the whole sum below it, the last one that may come */
    double draw =
        rng_uniform(options->seed, rng_stream("sample") + prompt, position);
    double sum = 0;
    *token = -1;
    for (int64_t i = 0; i < sample->vocab && !(sum > draw); i++) {
        sum += probability[i];
        if (probability[i] > 0)
            *token = (int32_t)i;
    }
    return ERR_OK;
}
