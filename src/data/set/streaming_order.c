/* Streaming's get_partitions() and its batching methods, for one node with one
 * rank and one worker.
 *
 * An epoch is made in three steps, each of which draws with NumPy's generator
 * in Streaming's sequence: how many samples of which shards
 * (streaming_sample.c), their shuffle (streaming_shuffle.c), and here the
 * dealing. The shuffled samples are cut into as many equal parts as there are
 * canonical nodes, and the order takes one of each part in turn, which is what
 * makes a global batch the same set of samples on any number of real nodes.
 * What is one shuffle for "random" is one for each stream with the other two
 * methods, which then are put together batch by batch. All of an epoch is made
 * at once, since a shuffle has no shorter description than itself. */
#include "src/data/set/streaming_order.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/data/set/numpy_rng.h"

struct streaming_order {
    struct streaming_order_spec spec;
    const struct stream *streams;
    int count;
    int64_t choose[STREAMS_MAX];
    double proportion[STREAMS_MAX];
    int64_t portion[STREAMS_MAX]; /* of a stratified batch */
    int64_t batches;
};

/* Places that `samples` are dealt to: as many for each node. */
static int64_t dealt(const struct streaming_order *order, int64_t samples)
{
    int64_t nodes = order->spec.nodes;
    return samples == 0 ? 0 : (samples + nodes - 1) / nodes * nodes;
}

/* The place of the shuffled samples that comes k-th. */
static int64_t deal(const struct streaming_order *order, int64_t samples,
                    int64_t k)
{
    int64_t nodes = order->spec.nodes;
    int64_t node = k % nodes, at = k / nodes;
    /* too few for all nodes, which take them in turn */
    if (samples < nodes)
        return k % samples;
    int64_t whole = samples / nodes, rest = samples % nodes;
    int64_t begin = whole * node + rest * node / nodes;
    int64_t end = whole * (node + 1) + rest * (node + 1) / nodes;
    return begin + at < end ? begin + at : end - 1;
}

/* Rounded down, and one more for those that rounding took most from; of equal
 * ones the later stream, where Streaming leaves it to the processor. */
static void share_batch(struct streaming_order *order)
{
    double lost[STREAMS_MAX];
    int64_t batch = order->spec.batch, left = batch;
    for (int i = 0; i < order->count; i++) {
        double share = (double)batch * order->proportion[i];
        order->portion[i] = (int64_t)share;
        lost[i] = share - (double)order->portion[i];
        left -= order->portion[i];
    }
    for (; left > 0; left--) {
        int best = 0;
        for (int i = 1; i < order->count; i++)
            if (lost[i] >= lost[best])
                best = i;
        order->portion[best]++;
        lost[best] = -1.0;
    }
}

static enum err too_few(const struct streaming_order *order, int stream,
                        int64_t have)
{
    return err_set(ERR_USAGE,
                   "data set %d of the mixture gives %lld samples to an epoch, "
                   "not enough for a batch of %lld: use a smaller "
                   "train.global_batch, or take more of it",
                   stream + 1, (long long)have, (long long)order->spec.batch);
}

static enum err count_stratified(struct streaming_order *order)
{
    order->batches = INT64_MAX;
    share_batch(order);
    for (int i = 0; i < order->count; i++) {
        int64_t has = dealt(order, order->choose[i]);
        if (order->portion[i] == 0)
            return err_set(ERR_USAGE,
                           "data set %d of the mixture would have no sample in "
                           "a batch of %lld (data.batching = stratified): "
                           "raise its share, or train.global_batch",
                           i + 1, (long long)order->spec.batch);
        if (has < order->portion[i])
            return too_few(order, i, order->choose[i]);
        if (has / order->portion[i] < order->batches)
            order->batches = has / order->portion[i];
    }
    return ERR_OK;
}

static enum err count_batches(struct streaming_order *order)
{
    int64_t samples = 0, batch = order->spec.batch;
    if (order->spec.batching == BATCHING_STRATIFIED)
        return count_stratified(order);
    for (int i = 0; i < order->count; i++) {
        int64_t has = dealt(order, order->choose[i]);
        if (order->spec.batching == BATCHING_PER_STREAM && has < batch)
            return too_few(order, i, order->choose[i]);
        order->batches += has / batch;
        samples += order->choose[i];
    }
    if (order->spec.batching == BATCHING_RANDOM)
        order->batches = dealt(order, samples) / batch;
    if (order->batches == 0)
        return err_set(ERR_USAGE,
                       "an epoch has %lld samples, not enough for a batch of "
                       "%lld: use a smaller train.global_batch, or data.order "
                       "= canonical, where a batch may go on in the next epoch",
                       (long long)samples, (long long)batch);
    return ERR_OK;
}

/* Streams that are shuffled apart share the block. */
static int64_t shuffle_block(const struct streaming_order *order, int stream)
{
    double share = order->spec.batching == BATCHING_RANDOM
                       ? 1.0
                       : order->proportion[stream];
    return (int64_t)((double)order->spec.block * share);
}

/* What Streaming's shuffles cannot do is said at the start, not when an epoch
 * begins. */
static enum err check_shuffle(const struct streaming_order *order)
{
    const struct streaming_order_spec *spec = &order->spec;
    bool together = spec->batching == BATCHING_RANDOM;
    int64_t least = spec->algorithm == STREAMING_PY1BR  ? 2
                    : spec->algorithm == STREAMING_PY1E ? 1
                                                        : 0;
    int64_t samples = 0;
    for (int i = 0; i < order->count; i++) {
        int64_t block = shuffle_block(order, i);
        samples = order->choose[i] + (together ? samples : 0);
        if (block < least)
            return err_set(ERR_USAGE,
                           "data.shuffle_block = %lld leaves blocks of %lld "
                           "samples for data set %d of the mixture: raise it",
                           (long long)spec->block, (long long)block, i + 1);
        if ((!together || i == order->count - 1) &&
            spec->algorithm == STREAMING_PY1E && samples < spec->nodes)
            return err_set(ERR_USAGE,
                           "py1e needs a sample for each of %lld canonical "
                           "nodes, there are %lld: lower data.canonical_nodes",
                           (long long)spec->nodes, (long long)samples);
    }
    return ERR_OK;
}

enum err streaming_order_create(const struct streaming_order_spec *spec,
                                const struct stream *streams, int count,
                                struct streaming_order **out)
{
    enum err rc = ERR_OK;
    struct streaming_order *order = NULL;
    TRY(new_zeroed(&order, 1));
    assert(spec->nodes > 0 && spec->batch > 0 && spec->block >= 0);
    order->spec = *spec;
    order->streams = streams;
    order->count = count;
    if (spec->block == 0) {
        int64_t block = 4000000 / spec->nodes;
        order->spec.block = block > 1 << 18 ? block : 1 << 18;
    }
    TRY_OUT(streaming_sample_weights(streams, count, spec->epoch_size,
                                     spec->seed, order->choose,
                                     order->proportion));
    TRY_OUT(count_batches(order));
    TRY_OUT(check_shuffle(order));
out:
    return new_or_none(rc, order, out, streaming_order_destroy);
}

void streaming_order_destroy(struct streaming_order *order)
{
    free(order);
}

int64_t streaming_order_batches(const struct streaming_order *order)
{
    return order->batches;
}

/* Samples that are taken and their shuffled places, and what the algorithm
 * needs to shuffle them. */
size_t streaming_order_bytes(const struct streaming_order *order)
{
    int64_t samples = 0, of_sample = 2, of_node = 0;
    bool together = order->spec.batching == BATCHING_RANDOM;
    for (int i = 0; i < order->count; i++) {
        int64_t own = order->choose[i];
        samples = together ? samples + own : own > samples ? own : samples;
    }
    if (order->spec.algorithm == STREAMING_PY1E)
        of_node = 4;
    if (order->spec.algorithm == STREAMING_PY2S)
        of_sample++;
    return sizeof(int64_t) * ((size_t)(samples * of_sample) +
                              (size_t)(samples / order->spec.nodes * of_node));
}

/* What an epoch takes of some streams, shuffled: sample ids. */
struct epoch_part {
    int64_t *ids;
    int64_t samples;
};

static enum err make_part(const struct streaming_order *order, int64_t epoch,
                          int first, int count, struct epoch_part *out)
{
    enum err rc = ERR_OK;
    const struct streaming_order_spec *spec = &order->spec;
    bool unshuffled = spec->algorithm == STREAMING_UNSHUFFLED;
    struct streaming_sample how = { spec->seed, (uint64_t)epoch, spec->fixed,
                                    !unshuffled };
    struct streaming_shuffle shuffle = { spec->algorithm, spec->nodes,
                                         shuffle_block(order, first),
                                         spec->seed, (uint64_t)epoch };
    struct streaming_taken taken;
    TRY(streaming_sample(&how, order->streams, first, count, order->choose,
                         &taken));
    out->samples = taken.samples;
    rc = new_room(&out->ids, (size_t)taken.samples + 1);
    if (rc == ERR_OK)
        rc = streaming_shuffle(&shuffle, taken.units, taken.unit_count,
                               out->ids);
    for (int64_t i = 0; rc == ERR_OK && i < taken.samples; i++)
        out->ids[i] = taken.places[out->ids[i]];
    streaming_sample_release(&taken);
    if (rc != ERR_OK) {
        free(out->ids);
        out->ids = NULL;
    }
    return rc;
}

static enum err epoch_random(const struct streaming_order *order, int64_t epoch,
                             int64_t *out)
{
    struct epoch_part part = { NULL, 0 };
    TRY(make_part(order, epoch, 0, order->count, &part));
    for (int64_t k = 0; k < order->batches * order->spec.batch; k++)
        out[k] = part.ids[deal(order, part.samples, k)];
    free(part.ids);
    return ERR_OK;
}

static enum err epoch_stratified(const struct streaming_order *order,
                                 int64_t epoch, int64_t *out)
{
    int64_t at = 0;
    for (int i = 0; i < order->count; i++) {
        int64_t own = order->portion[i];
        struct epoch_part part = { NULL, 0 };
        TRY(make_part(order, epoch, i, 1, &part));
        for (int64_t k = 0; k < order->batches * own; k++)
            out[k / own * order->spec.batch + at + k % own] =
                part.ids[deal(order, part.samples, k)];
        free(part.ids);
        at += own;
    }
    return ERR_OK;
}

/* Which stream each batch is of. */
static enum err shuffle_batches(const struct streaming_order *order,
                                int64_t epoch, int64_t **out)
{
    struct numpy_rng rng;
    const struct streaming_order_spec *spec = &order->spec;
    int64_t *origin = NULL;
    int64_t at = 0;
    TRY(new_room(&origin, (size_t)order->batches));
    for (int i = 0; i < order->count; i++)
        for (int64_t b = dealt(order, order->choose[i]) / spec->batch; b > 0;
             b--)
            origin[at++] = i;
    numpy_rng_seed(&rng, spec->fixed || spec->algorithm == STREAMING_UNSHUFFLED
                             ? spec->seed
                             : spec->seed + (uint64_t)epoch);
    numpy_rng_shuffle(&rng, origin, order->batches);
    *out = origin;
    return ERR_OK;
}

static enum err epoch_per_stream(const struct streaming_order *order,
                                 int64_t epoch, int64_t *out)
{
    enum err rc = ERR_OK;
    int64_t batch = order->spec.batch;
    int64_t *origin = NULL;
    TRY(shuffle_batches(order, epoch, &origin));
    for (int i = 0; i < order->count; i++) {
        struct epoch_part part = { NULL, 0 };
        TRY_OUT(make_part(order, epoch, i, 1, &part));
        for (int64_t b = 0, k = 0; b < order->batches; b++)
            for (int64_t r = 0; origin[b] == i && r < batch; r++)
                out[b * batch + r] = part.ids[deal(order, part.samples, k++)];
        free(part.ids);
    }
out:
    free(origin);
    return rc;
}

enum err streaming_order_epoch(const struct streaming_order *order,
                               int64_t epoch, int64_t *out)
{
    static enum err (*const batchings[])(const struct streaming_order *,
                                         int64_t, int64_t *) = {
        [BATCHING_RANDOM] = epoch_random,
        [BATCHING_STRATIFIED] = epoch_stratified,
        [BATCHING_PER_STREAM] = epoch_per_stream,
    };
    assert(epoch >= 0);
    return batchings[order->spec.batching](order, epoch, out);
}
