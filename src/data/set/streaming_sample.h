/* How many samples of a data set an epoch of the Streaming library takes, and
 * which: each once, or in proportion, repeated, or chosen. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"

/* What the amount of a stream means. */
enum stream_weight {
    STREAM_ALL,        /* each sample once; no amount */
    STREAM_PROPORTION, /* of the epoch, relative to the others' */
    STREAM_REPEAT,     /* so often as many samples as it has */
    STREAM_CHOOSE      /* so many samples */
};

#define STREAMS_MAX 64

/* A data set of a run. */
struct stream {
    int64_t samples;       /* > 0 */
    const int64_t *shards; /* [shard_count] samples of each; NULL: not known */
    int64_t shard_count;
    enum stream_weight weight;
    double amount; /* >= 0 */
};

/* Samples that each of `count` streams gives to an epoch, and their share of
 * it. `epoch_size` 0: as many as there are, or as the amounts say. ERR_USAGE
 * where proportions and other weights are mixed, or nothing is left. */
enum err streaming_sample_weights(const struct stream *streams, int count,
                                  int64_t epoch_size, uint64_t seed,
                                  int64_t *choose, double *proportion);

struct streaming_sample {
    uint64_t seed, epoch;
    bool fixed;    /* the same samples in every epoch */
    bool shuffled; /* else shards are drawn from alike in every epoch */
};

/* What an epoch takes: units[unit_count] for the shuffle, and the sample behind
 * each place of the units laid end to end, places[samples]. */
struct streaming_taken {
    int64_t *units;
    int64_t unit_count;
    int64_t *places;
    int64_t samples;
};

/* For streams first .. first + count - 1, of which each has its shards; samples
 * are numbered through `streams` from its beginning. */
enum err streaming_sample(const struct streaming_sample *how,
                          const struct stream *streams, int first, int count,
                          const int64_t *choose, struct streaming_taken *out);
void streaming_sample_release(struct streaming_taken *taken);
