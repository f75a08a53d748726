/* Which sample of which data set is at a position of a run's endless stream of
 * samples. An order is made of a specification and nothing else, so the same
 * one gives the same samples on every rank, topology and resume.
 *
 * A data set of the run is a stream of it. Orders:
 *
 *   canonical  our own: each stream has its permutation of every epoch
 *              (order_canonical() below), computed and not stored. Of a
 *              mixture, each step has whole samples of each stream
 *              (src/data/set/order_mixture.h), which a permutation keyed by (seed,
 *              step) deals to the places of the batch.
 *   py1e ... unshuffled
 *              the Streaming library's (src/data/set/streaming_order.h). The epochs
 *              that were last asked for are kept, two of 8 bytes a sample.
 *   straight   0, 1, 2, ... in every epoch, for evaluation. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/set/order_mixture.h"
#include "src/data/set/streaming_order.h"

struct order;

enum order_kind {
    ORDER_CANONICAL,
    ORDER_PY1E,
    ORDER_PY1S,
    ORDER_PY1BR,
    ORDER_PY2S,
    ORDER_NAIVE,
    ORDER_UNSHUFFLED,
    ORDER_STRAIGHT
};

/* Names of those that users choose from. */
static const char *const order_kind_names[] = { "canonical",  "py1e", "py1s",
                                                "py1br",      "py2s", "naive",
                                                "unshuffled", NULL };

struct order_spec {
    enum order_kind kind;
    uint64_t seed; /* canonical */
    int64_t first; /* the position at which it begins */
    int64_t batch; /* samples of a step; of mixtures and Streaming's orders */
    int count;     /* of streams, > 0 */
    const struct stream *streams; /* shards for Streaming's orders only */
    /* For a canonical mixture, else NULL: [count] weights by the run's step,
     * names, and samples of each that were read before it. */
    const struct mixture_curve *curves;
    const char *const *names;
    const int64_t *begin;
    struct streaming_order_spec streaming; /* of its algorithm and batch, the
                                            * order's own count */
};

/* The specification need not outlive the call. ERR_USAGE where there is no such
 * order. */
enum err order_create(const struct order_spec *spec, struct order **out);
/* NULL is fine. */
void order_destroy(struct order *order);

/* The position at which it begins. */
int64_t order_first(const struct order *order);
int64_t order_samples(const struct order *order, int stream);
/* Samples from one epoch's beginning to the next; of a canonical mixture all of
 * its streams, each once. */
int64_t order_epoch(const struct order *order);
/* That it may take: Streaming's epochs, and what makes one. */
size_t order_bytes(const struct order *order);

/* The stream and the sample in it at position >= first. Several threads may ask
 * one order, at any positions. ERR_MEMORY, or ERR_USAGE. */
enum err order_sample(struct order *order, int64_t position, int *stream,
                      int64_t *sample);

/* Samples of each stream before the step that begins at a position, those read
 * before the order began counted in; false: this order does not count. For
 * several threads likewise. */
bool order_read(struct order *order, int64_t position,
                int64_t counts[STREAMS_MAX]);

/* Our own order of one data set: a pure function of (seed, samples, position).
 *
 * Position p of the endless stream lies in epoch p / samples; within an epoch
 * samples come in the order of a permutation that is computed (order.c), O(1) a
 * sample, without a state.
 *
 * Sample index in [0, samples) at stream position >= 0; samples > 0. */
int64_t order_canonical(uint64_t seed, int64_t samples, int64_t position);
