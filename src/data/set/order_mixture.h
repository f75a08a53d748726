/* How many samples of each stream are in each step's batch, when weights follow
 * a schedule: a pure function of the step.
 *
 * A stream's weight is a line through points, or a jump; its share is that by
 * the sum of all. Counts are right within a sample or two at every step; a
 * stream of no weight gets none. How they are dealt is told in
 * order_mixture.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/set/streaming_sample.h"

#define MIXTURE_POINTS_MAX 16
#define MIXTURE_WEIGHT_MAX 1e12

struct mixture_point {
    int64_t step;  /* the first one's is 0; never less than the one before */
    double weight; /* 0 <= weight <= MIXTURE_WEIGHT_MAX */
    bool jump;     /* the weight before stays until this step */
};

struct mixture_curve {
    int count; /* > 0 */
    struct mixture_point points[MIXTURE_POINTS_MAX];
};

struct mixture_counts {
    int64_t before[STREAMS_MAX]; /* samples in all steps before */
    int64_t now[STREAMS_MAX];    /* in this one */
};

struct order_mixture;

/* batch: samples of a step. Steps are counted from `first` on, which is 0 for
 * it, though the curves' are not. ERR_USAGE: at some step all weights are 0. */
enum err order_mixture_create(const struct mixture_curve *curves, int count,
                              int64_t batch, int64_t first,
                              struct order_mixture **out);
void order_mixture_destroy(struct order_mixture *mixture);

/* For one thread at a time; *out is lent until the next call. ERR_MEMORY. */
enum err order_mixture_at(struct order_mixture *mixture, int64_t step,
                          const struct mixture_counts **out);
