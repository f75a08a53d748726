/* Streaming's apply_weights(), get_sampling() and resample_streams().
 *
 * Which samples an epoch has, before any of them is shuffled. Weights become
 * whole numbers of samples for each stream, those of a stream become so many of
 * each shard (whole repeats of the shard, and for the rest a draw without
 * return), and each repeat of a shard is a unit of its own for the shuffle.
 * Sums and roundings are done in Streaming's order on doubles: one that rounds
 * otherwise would be another epoch. */
#include "src/data/set/streaming_sample.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/new.h"
#include "src/data/set/numpy_rng.h"

/* More samples in an epoch than this are nobody's intent, and doubles and
 * products with the number of nodes still hold them. */
#define STREAMING_SAMPLES_MAX ((int64_t)1 << 40)

/* As NumPy adds up less than 129 doubles: their rounding decides samples. */
static double sum_doubles(const double *values, int count)
{
    double part[8];
    double sum = 0.0;
    int i = 0;
    if (count >= 8) {
        memcpy(part, values, sizeof part);
        for (i = 8; i + 8 <= count; i += 8)
            for (int k = 0; k < 8; k++)
                part[k] += values[i + k];
        sum = ((part[0] + part[1]) + (part[2] + part[3])) +
              ((part[4] + part[5]) + (part[6] + part[7]));
    }
    for (; i < count; i++)
        sum += values[i];
    return sum;
}

/* Shares of `total`, of which rounding down leaves some, each for another
 * stream. */
static enum err share_out(int64_t total, int count, uint64_t seed,
                          int64_t *choose, double *proportion)
{
    struct numpy_rng rng;
    int64_t lucky[STREAMS_MAX];
    int64_t left = total;
    double sum = sum_doubles(proportion, count);
    for (int i = 0; i < count; i++) {
        proportion[i] /= sum;
        choose[i] = (int64_t)((double)total * proportion[i]);
        left -= choose[i];
    }
    assert(left >= 0 && left <= count);
    numpy_rng_seed(&rng, seed);
    TRY(numpy_rng_choice(&rng, count, left, lucky));
    for (int64_t i = 0; i < left; i++)
        choose[lucky[i]]++;
    return ERR_OK;
}

static enum err choose_absolute(const struct stream *streams, int count,
                                int64_t *choose, double *proportion)
{
    int64_t total = 0;
    for (int i = 0; i < count; i++) {
        const struct stream *stream = &streams[i];
        double amount = stream->weight == STREAM_ALL ? (double)stream->samples
                        : stream->weight == STREAM_CHOOSE
                            ? stream->amount
                            : stream->amount * (double)stream->samples;
        if (!(amount <= (double)STREAMING_SAMPLES_MAX))
            return err_set(ERR_USAGE, "an epoch of %g samples is too long",
                           amount);
        choose[i] =
            stream->weight == STREAM_ALL ? stream->samples : (int64_t)amount;
        total += choose[i];
    }
    for (int i = 0; i < count; i++)
        proportion[i] = (double)choose[i] / (double)total;
    return total > 0 ? ERR_OK
                     : err_set(ERR_USAGE, "the data sets of the mixture give "
                                          "no sample to an epoch");
}

enum err streaming_sample_weights(const struct stream *streams, int count,
                                  int64_t epoch_size, uint64_t seed,
                                  int64_t *choose, double *proportion)
{
    int64_t samples = 0;
    int relative = 0, absolute = 0;
    bool some = false;
    assert(count > 0 && count <= STREAMS_MAX);
    for (int i = 0; i < count; i++) {
        samples += streams[i].samples;
        relative += streams[i].weight == STREAM_PROPORTION;
        absolute += streams[i].weight == STREAM_REPEAT ||
                    streams[i].weight == STREAM_CHOOSE;
        proportion[i] = streams[i].weight == STREAM_PROPORTION
                            ? streams[i].amount
                            : (double)streams[i].samples;
        some = some || proportion[i] > 0;
    }
    if (relative > 0 && relative < count)
        return err_set(ERR_USAGE,
                       "a proportion is given for %d of %d data "
                       "sets: give one for all or for none",
                       relative, count);
    if (samples > STREAMING_SAMPLES_MAX || epoch_size > STREAMING_SAMPLES_MAX)
        return err_set(ERR_USAGE, "an epoch has too many samples for this "
                                  "order: use data.order = canonical");
    if (relative > 0 && !some)
        return err_set(ERR_USAGE, "all proportions are 0");
    if (absolute > 0 && epoch_size > 0)
        return err_set(ERR_USAGE, "repeat and choose say how long an epoch is, "
                                  "and so does data.epoch_size: give one");
    if (relative > 0 || epoch_size > 0)
        return share_out(epoch_size > 0 ? epoch_size : samples, count, seed,
                         choose, proportion);
    return choose_absolute(streams, count, choose, proportion);
}

/* How many of `choose` samples come from each shard: whole repeats, and of the
 * rest as many as a shuffle of all samples puts first. */
static enum err share_shards(const struct streaming_sample *how,
                             const struct stream *stream, int64_t choose,
                             int64_t *of_shard)
{
    enum err rc = ERR_OK;
    struct numpy_rng rng;
    int64_t repeats = choose / stream->samples;
    int64_t rest = choose % stream->samples;
    for (int64_t s = 0; s < stream->shard_count; s++)
        of_shard[s] = stream->shards[s] * repeats;
    if (rest == 0)
        return ERR_OK;
    int64_t *order = NULL, *first = NULL;
    TRY_OUT(new_room(&order, (size_t)stream->samples));
    TRY_OUT(new_zeroed(&first, (size_t)stream->samples));
    numpy_rng_seed(&rng, how->fixed || !how->shuffled ? how->seed
                                                      : how->seed + how->epoch);
    numpy_rng_permutation(&rng, stream->samples, order);
    for (int64_t i = 0; i < rest; i++)
        first[order[i]] = 1;
    for (int64_t s = 0, at = 0; s < stream->shard_count; s++)
        for (int64_t k = 0; k < stream->shards[s]; k++)
            of_shard[s] += first[at++];
out:
    free(order);
    free(first);
    return rc;
}

/* The samples of a shard so often, `taken` of them in all. */
static enum err take_shard(struct numpy_rng *rng, int64_t first,
                           int64_t samples, int64_t taken,
                           struct streaming_taken *out)
{
    int64_t rest = samples > 0 ? taken % samples : 0;
    int64_t *places = out->places + out->samples;
    for (int64_t left = taken; left > 0; left -= samples)
        out->units[out->unit_count++] = left < samples ? left : samples;
    for (int64_t i = 0; i < taken - rest; i++)
        places[i] = first + i % samples;
    places += taken - rest;
    out->samples += taken;
    if (rest == 0)
        return ERR_OK;
    /* which ones is drawn, but they stay in the shard's order */
    TRY(numpy_rng_choice(rng, samples, rest, places));
    for (int64_t i = 0; i < rest; i++)
        places[i] += first;
    qsort(places, (size_t)rest, sizeof *places, array_order_i64);
    return ERR_OK;
}

static enum err take_stream(const struct streaming_sample *how,
                            struct numpy_rng *rng, const struct stream *stream,
                            int64_t first, int64_t choose,
                            struct streaming_taken *out)
{
    enum err rc = ERR_OK;
    int64_t *of_shard = NULL;
    TRY(new_zeroed(&of_shard, (size_t)stream->shard_count + 1));
    TRY_OUT(share_shards(how, stream, choose, of_shard));
    for (int64_t s = 0; s < stream->shard_count; s++) {
        TRY_OUT(take_shard(rng, first, stream->shards[s], of_shard[s], out));
        first += stream->shards[s];
    }
out:
    free(of_shard);
    return rc;
}

/* Room for all that is taken; units are shards so often as they are repeated,
 * and once more for a part. */
static enum err make_room(const struct stream *streams, int first, int count,
                          const int64_t *choose, struct streaming_taken *out)
{
    int64_t units = 1, samples = 1;
    for (int i = first; i < first + count; i++) {
        units += streams[i].shard_count * (choose[i] / streams[i].samples + 1);
        samples += choose[i];
    }
    out->units =
        calloc((size_t)(units < samples ? units : samples), sizeof *out->units);
    out->places = malloc((size_t)samples * sizeof *out->places);
    return out->units != NULL && out->places != NULL
               ? ERR_OK
               : err_set(ERR_MEMORY,
                         "no memory for an epoch's order of %lld samples "
                         "(%.1f GiB); data.order = canonical needs none",
                         (long long)samples,
                         (double)samples * 8.0 / (double)(1 << 30));
}

enum err streaming_sample(const struct streaming_sample *how,
                          const struct stream *streams, int first, int count,
                          const int64_t *choose, struct streaming_taken *out)
{
    enum err rc = ERR_OK;
    struct numpy_rng rng;
    int64_t at = 0;
    memset(out, 0, sizeof *out);
    numpy_rng_seed(&rng, how->fixed ? how->seed : how->seed + how->epoch);
    TRY_OUT(make_room(streams, first, count, choose, out));
    for (int i = 0; i < first + count; i++) {
        if (i >= first)
            TRY_OUT(take_stream(how, &rng, &streams[i], at, choose[i], out));
        at += streams[i].samples;
    }
out:
    if (rc != ERR_OK)
        streaming_sample_release(out);
    return rc;
}

void streaming_sample_release(struct streaming_taken *taken)
{
    free(taken->units);
    free(taken->places);
    memset(taken, 0, sizeof *taken);
}
