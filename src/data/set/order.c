/* Finds the sample at a position, whatever the order is.
 *
 * A run must go on anywhere with exactly the samples that it would have had,
 * on other ranks and without a list of what was seen. So an order is a
 * function: position in the endless stream -> sample. The canonical one
 * computes it (a permutation by cipher) and has no state;
 * a mixture knows how many of each stream came before a batch
 * (order_mixture.c); Streaming's orders exist as whole epochs only, of which
 * the last two are kept. The position is all that a checkpoint has of it. */
#include "src/data/set/order.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/base/rng.h"

#define ORDER_EPOCHS 2 /* of Streaming's that are kept */

/* One epoch of a Streaming order. */
struct order_kept {
    int64_t epoch; /* -1: none */
    uint64_t used; /* when last */
    int64_t *ids;
};

struct order {
    enum order_kind kind;
    uint64_t seed;
    int64_t first, batch;
    int count;
    struct stream *streams; /* with shards of their own */
    uint64_t *keys;         /* of the streams of a mixture */
    int64_t *begin;
    int64_t epoch; /* samples of one */
    pthread_mutex_t lock;
    struct order_mixture *mixture;
    struct streaming_order *streaming;
    struct order_kept kept[ORDER_EPOCHS]; /* under the lock, as the mixture */
    uint64_t clock;
};

static bool is_streaming(enum order_kind kind)
{
    return kind > ORDER_CANONICAL && kind < ORDER_STRAIGHT;
}

static enum err copy_streams(struct order *order, const struct order_spec *spec)
{
    size_t count = (size_t)spec->count;
    TRY(new_zeroed(&order->streams, count));
    TRY(new_zeroed(&order->keys, count));
    TRY(new_zeroed(&order->begin, count));
    for (size_t i = 0; i < count; i++) {
        const struct stream *from = &spec->streams[i];
        size_t shards =
            is_streaming(spec->kind) ? (size_t)from->shard_count : 0;
        assert(from->samples > 0);
        order->streams[i] = *from;
        order->streams[i].shards = NULL;
        order->epoch += from->samples;
        if (spec->names != NULL)
            order->keys[i] = spec->seed ^ rng_stream(spec->names[i]);
        if (spec->begin != NULL)
            order->begin[i] = spec->begin[i];
        if (shards == 0)
            continue;
        int64_t *sizes = NULL;
        TRY(new_room(&sizes, shards));
        memcpy(sizes, from->shards, shards * sizeof *sizes);
        order->streams[i].shards = sizes;
    }
    return ERR_OK;
}

static enum err make_parts(struct order *order, const struct order_spec *spec)
{
    struct streaming_order_spec streaming = spec->streaming;
    TRY(copy_streams(order, spec));
    if (!is_streaming(spec->kind)) {
        assert(spec->curves != NULL || spec->count == 1);
        return spec->curves == NULL
                   ? ERR_OK
                   : order_mixture_create(
                         spec->curves, spec->count, spec->batch,
                         spec->first / spec->batch, &order->mixture);
    }
    streaming.algorithm =
        (enum streaming_algorithm)(spec->kind - ORDER_PY1E + STREAMING_PY1E);
    streaming.batch = spec->batch;
    TRY(streaming_order_create(&streaming, order->streams, order->count,
                               &order->streaming));
    order->epoch = streaming_order_batches(order->streaming) * spec->batch;
    return ERR_OK;
}

enum err order_create(const struct order_spec *spec, struct order **out)
{
    assert(spec->count > 0 && spec->count <= STREAMS_MAX && spec->first >= 0);
    struct order *order = NULL;
    TRY(new_zeroed(&order, 1));
    pthread_mutex_init(&order->lock, NULL);
    order->kind = spec->kind;
    order->seed = spec->seed;
    order->first = spec->first;
    order->batch = spec->batch;
    order->count = spec->count;
    for (int i = 0; i < ORDER_EPOCHS; i++)
        order->kept[i].epoch = -1;
    enum err rc = make_parts(order, spec);
    return new_or_none(rc, order, out, order_destroy);
}

void order_destroy(struct order *order)
{
    if (order == NULL)
        return;
    order_mixture_destroy(order->mixture);
    streaming_order_destroy(order->streaming);
    for (int i = 0; i < ORDER_EPOCHS; i++)
        free(order->kept[i].ids);
    for (int i = 0; order->streams != NULL && i < order->count; i++)
        free((void *)(uintptr_t)order->streams[i].shards);
    free(order->streams);
    free(order->keys);
    free(order->begin);
    pthread_mutex_destroy(&order->lock);
    free(order);
}

int64_t order_first(const struct order *order)
{
    return order->first;
}

int64_t order_samples(const struct order *order, int stream)
{
    assert(stream >= 0 && stream < order->count);
    return order->streams[stream].samples;
}

int64_t order_epoch(const struct order *order)
{
    return order->epoch;
}

size_t order_bytes(const struct order *order)
{
    return order->streaming == NULL
               ? 0
               : ORDER_EPOCHS * (size_t)order->epoch * sizeof(int64_t) +
                     streaming_order_bytes(order->streaming);
}

/* Which stream the slot of a step belongs to, and its how many-th sample: a
 * step's slots are those of the first stream, then those of the second, and so
 * on. sample_mixture() has permuted them before, so that a rank's part of the
 * batch is not all of one stream. */
static enum err find_slot(struct order *order, int64_t step, int64_t slot,
                          int *stream, int64_t *number)
{
    const struct mixture_counts *counts = NULL;
    pthread_mutex_lock(&order->lock);
    enum err rc = order_mixture_at(order->mixture, step, &counts);
    for (int i = 0; rc == ERR_OK && i < order->count; i++) {
        if (slot < counts->now[i]) {
            *stream = i;
            *number = order->begin[i] + counts->before[i] + slot;
            break;
        }
        slot -= counts->now[i];
    }
    pthread_mutex_unlock(&order->lock);
    return rc;
}

static enum err sample_mixture(struct order *order, int64_t place, int *stream,
                               int64_t *sample)
{
    uint64_t slots = order->seed ^ rng_stream("slots of a mixture's step");
    int64_t slot = order_canonical(slots, order->batch, place);
    int64_t number = 0;
    TRY(find_slot(order, place / order->batch, slot, stream, &number));
    *sample = order_canonical(order->keys[*stream],
                              order->streams[*stream].samples, number);
    return ERR_OK;
}

/* The epoch's samples, made if they are not kept; under the lock. */
static enum err find_epoch(struct order *order, int64_t epoch,
                           const int64_t **out)
{
    struct order_kept *oldest = &order->kept[0];
    for (int i = 0; i < ORDER_EPOCHS; i++) {
        struct order_kept *kept = &order->kept[i];
        if (kept->used < oldest->used)
            oldest = kept;
        if (kept->epoch != epoch)
            continue;
        kept->used = ++order->clock;
        *out = kept->ids;
        return ERR_OK;
    }
    oldest->epoch = -1;
    if (oldest->ids == NULL)
        oldest->ids = malloc((size_t)order->epoch * sizeof *oldest->ids);
    if (oldest->ids == NULL)
        return err_set(ERR_MEMORY,
                       "no memory for an epoch's order of %lld samples; "
                       "data.order = canonical needs none",
                       (long long)order->epoch);
    TRY(streaming_order_epoch(order->streaming, epoch, oldest->ids));
    oldest->epoch = epoch;
    oldest->used = ++order->clock;
    *out = oldest->ids;
    return ERR_OK;
}

static enum err sample_streaming(struct order *order, int64_t place,
                                 int *stream, int64_t *sample)
{
    const int64_t *ids = NULL;
    int64_t id = 0;
    pthread_mutex_lock(&order->lock);
    enum err rc = find_epoch(order, place / order->epoch, &ids);
    if (rc == ERR_OK)
        id = ids[place % order->epoch];
    pthread_mutex_unlock(&order->lock);
    if (rc != ERR_OK)
        return rc;
    *stream = 0; /* ids are numbered through all streams */
    while (id >= order->streams[*stream].samples)
        id -= order->streams[(*stream)++].samples;
    *sample = id;
    return ERR_OK;
}

enum err order_sample(struct order *order, int64_t position, int *stream,
                      int64_t *sample)
{
    assert(position >= order->first);
    int64_t place = position - order->first;
    if (order->mixture != NULL)
        return sample_mixture(order, place, stream, sample);
    if (order->streaming != NULL)
        return sample_streaming(order, place, stream, sample);
    int64_t samples = order->streams[0].samples;
    *stream = 0;
    *sample = order->kind == ORDER_STRAIGHT
                  ? place % samples
                  : order_canonical(order->seed, samples, place);
    return ERR_OK;
}

bool order_read(struct order *order, int64_t position,
                int64_t counts[STREAMS_MAX])
{
    const struct mixture_counts *mixture = NULL;
    int64_t place = position - order->first;
    assert(place >= 0);
    if (order->mixture == NULL) {
        counts[0] = place;
        return order->count == 1;
    }
    pthread_mutex_lock(&order->lock);
    enum err rc =
        order_mixture_at(order->mixture, place / order->batch, &mixture);
    for (int i = 0; rc == ERR_OK && i < order->count; i++)
        counts[i] = order->begin[i] + mixture->before[i];
    pthread_mutex_unlock(&order->lock);
    return rc == ERR_OK;
}

/* The canonical order is computed and not stored: a permutation of 10^9 samples
 * would be 8 GB on every rank, and a resume would have to make it again. A
 * Feistel network (Luby and Rackoff 1988) of a few rounds over the bits of the
 * position is a permutation of [0, 2^2h) whatever its round function is; here
 * that is Philox, keyed by the seed and counted by the epoch. Positions beyond
 * the number of samples are sent through once more until they land below it,
 * which keeps it a permutation (cycle walking: Black and Rogaway 2002). */
#define ORDER_CANONICAL_ROUNDS 8

/* Bits of half a block: the smallest h with 2^2h >= samples. */
static unsigned order_canonical_half_bits(uint64_t samples)
{
    unsigned half = 0;
    while (half < 32 && (samples - 1) >> (2 * half) != 0)
        half++;
    return half;
}

static uint64_t order_canonical_feistel(uint64_t seed, uint64_t epoch,
                                        unsigned half, uint64_t value)
{
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    const uint32_t mask = (uint32_t)(((uint64_t)1 << half) - 1);
    uint32_t left = (uint32_t)(value >> half);
    uint32_t right = (uint32_t)value & mask;
    for (uint32_t round = 0; round < ORDER_CANONICAL_ROUNDS; round++) {
        const uint32_t counter[4] = { right, round, (uint32_t)epoch,
                                      (uint32_t)(epoch >> 32) };
        uint32_t random[4];
        rng_philox(key, counter, random);
        uint32_t next = left ^ (random[0] & mask);
        left = right;
        right = next;
    }
    return (uint64_t)left << half | right;
}

int64_t order_canonical(uint64_t seed, int64_t samples, int64_t position)
{
    assert(samples > 0 && position >= 0);
    uint64_t count = (uint64_t)samples;
    uint64_t epoch = (uint64_t)position / count;
    uint64_t value = (uint64_t)position % count;
    unsigned half = order_canonical_half_bits(count);
    /* A permutation of the larger domain, walked along its cycle until it
     * returns below `samples`, is one of the smaller. The domain is less than
     * four times as large, so this takes less than four turns on average. */
    do
        value = order_canonical_feistel(seed, epoch, half, value);
    while (value >= count);
    return (int64_t)value;
}
