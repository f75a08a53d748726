/* The next token, of a model's logits: the largest one, or one drawn.
 *
 * Scores are made of logits in the order of the transformers library, each step
 * of what the one before has left:
 *
 *   repetition_penalty r  the score s of each token that is in the text so far
 *                         becomes s / r, or s r where s < 0, once
 *   temperature t         s / t
 *   top_k k               those below the k-th largest go; equal ones stay
 *   top_p p               from the largest on (of equal ones the last token
 *                         first) until those before have a share of at least p
 *                         of the softmax; the others go
 *   min_p m               those go whose probability is below m times the
 *                         largest one
 *
 * and the token is drawn by the softmax of what is left. Greedy, only the
 * penalty counts, and of equal scores the first is taken. Penalty and
 * temperature are in fp32, as there; the softmax and what is summed of it in
 * fp64 by real.h, so that the same logits give the same token on every machine.
 *
 * A draw is a function of seed, prompt and position (rng.h), of nothing else.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

struct sample_options {
    bool greedy;
    double temperature;        /* above 0; 1: as they are */
    int64_t top_k;             /* 0: all */
    double top_p;              /* above 0; 1: all */
    double min_p;              /* from 0, all, to 1, the largest alone */
    double repetition_penalty; /* above 0; 1: none */
    uint64_t seed;
};

/* All tokens may come, by temperature 1 and seed 17. */
extern const struct sample_options sample_options_default;

/* ERR_USAGE names what is out of range. */
enum err sample_check(const struct sample_options *options);
/* For people: "temperature 0.7, top-p 0.9, seed 17", "greedy". */
void sample_describe(const struct sample_options *options, char *text,
                     size_t bytes);

struct sample;

/* Room for one choice at a time among the first `vocab` tokens. */
enum err sample_create(int64_t vocab, struct sample **out);
void sample_destroy(struct sample *sample);

/* The text so far, which the penalty looks at. */
struct sample_history {
    const int32_t *tokens; /* those outside [0, vocab) count for nothing */
    size_t count;
};

/* Probabilities of the tokens, [vocab], lent until the next call; greedy, 1 for
 * one of them. logits: [vocab] or more. ERR_NUMERIC: they are not numbers, or
 * too large. */
enum err sample_distribution(struct sample *sample,
                             const struct sample_options *options,
                             const float *logits, struct sample_history history,
                             const double **probability);

/* The token that takes place `position` in the text of this prompt. */
enum err sample_next(struct sample *sample,
                     const struct sample_options *options, const float *logits,
                     struct sample_history history, uint64_t prompt,
                     uint64_t position, int32_t *token);
