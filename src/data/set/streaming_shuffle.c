/* Streaming's shuffles, equal to the Streaming library's to the sample.
 *
 * A shuffle must be random enough to train on and near enough in order to
 * download little: shards are permuted once for the run and dealt to canonical
 * nodes; within a node samples are shuffled only among those of a few
 * neighbouring shards. The algorithms differ in what is a neighbourhood. Every
 * draw of NumPy's generators and its place among the others counts, so what
 * looks as if it could be left out cannot.
 *
 * Samples come in units: a shard, or what an epoch takes of it. py1s, py1br and
 * py1e order the units by the seed, cut them where one canonical node's part
 * ends, order the pieces of each node anew in every epoch, and mix samples
 * within a piece (py1s), within blocks of it (py1br), or move each by up to
 * half a block (py1e). py2s mixes samples once before they are cut and once
 * more in the epoch; naive mixes all. Sorting by moved places, py1e has equal
 * ones in their order; NumPy's sort there depends on the processor.
 *
 * Two generators are at work: `run`, seeded by the seed alone, orders what
 * stays for all epochs (which shards a node has), `epoch`, seeded by seed +
 * epoch, the rest. */
#include "src/data/set/streaming_shuffle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/new.h"
#include "src/data/set/numpy_rng.h"

struct span {
    int64_t begin, end; /* samples */
};

/* The spans of each canonical node. */
struct pieces {
    struct span *spans;
    int64_t *first; /* [nodes + 1] span of each node, and their count */
    int64_t samples;
};

struct shuffling {
    const struct streaming_shuffle *how;
    struct numpy_rng run, epoch;
    struct pieces pieces;
    int64_t *ids;
};

static void shuffle_spans(struct numpy_rng *rng, struct span *spans,
                          int64_t count)
{
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = numpy_rng_interval(rng, i);
        struct span span = spans[i];
        spans[i] = spans[j];
        spans[j] = span;
    }
}

/* Cut what the nodes share; node p ends at samples * (p + 1) / nodes. */
static void cut_spans(struct pieces *pieces, const struct span *units,
                      int64_t count, int64_t nodes)
{
    int64_t made = 0, unit = 0, done = 0;
    int64_t begin = count > 0 ? units[0].begin : 0;
    for (int64_t node = 0; node < nodes; node++) {
        int64_t whole = pieces->samples / nodes, rest = pieces->samples % nodes;
        int64_t end = whole * (node + 1) + rest * (node + 1) / nodes;
        pieces->first[node] = made;
        while (done < end) {
            int64_t room = end - done, left = units[unit].end - begin;
            int64_t taken = left < room ? left : room;
            pieces->spans[made++] = (struct span){ begin, begin + taken };
            begin += taken;
            done += taken;
            if (taken == left && ++unit < count)
                begin = units[unit].begin;
        }
    }
    pieces->first[nodes] = made;
}

/* Units in the run's order, if it is shuffled, cut for the nodes. */
static enum err make_pieces(struct shuffling *s, const int64_t *units,
                            int64_t count)
{
    enum err rc = ERR_OK;
    struct pieces *pieces = &s->pieces;
    int64_t nodes = s->how->nodes;
    struct span *all = NULL;
    TRY_OUT(new_zeroed(&all, (size_t)count + 1));
    TRY_OUT(new_zeroed(&pieces->spans, (size_t)(count + nodes)));
    TRY_OUT(new_zeroed(&pieces->first, (size_t)nodes + 1));
    pieces->samples = 0;
    for (int64_t i = 0; i < count; i++) {
        assert(units[i] > 0);
        all[i].begin = pieces->samples;
        pieces->samples += units[i];
        all[i].end = pieces->samples;
    }
    shuffle_spans(&s->run, all, count);
    if (s->how->algorithm == STREAMING_PY2S) {
        /* from here on a span is of places in ids, not of samples */
        int64_t at = 0;
        for (int64_t i = 0; i < count; i++) {
            int64_t size = all[i].end - all[i].begin;
            for (int64_t k = 0; k < size; k++)
                s->ids[at + k] = all[i].begin + k;
            numpy_rng_shuffle(&s->run, s->ids + at, size);
            all[i] = (struct span){ at, at + size };
            at += size;
        }
    }
    cut_spans(pieces, all, count, nodes);
out:
    free(all);
    return rc;
}

static struct span *node_spans(const struct shuffling *s, int64_t node,
                               int64_t *count)
{
    *count = s->pieces.first[node + 1] - s->pieces.first[node];
    return s->pieces.spans + s->pieces.first[node];
}

static void shuffle_nodes(struct shuffling *s)
{
    for (int64_t node = 0; node < s->how->nodes; node++) {
        int64_t count = 0;
        struct span *spans = node_spans(s, node, &count);
        shuffle_spans(&s->epoch, spans, count);
    }
}

/* The samples of a span, in order. */
static int64_t lay_out(struct span span, int64_t *out)
{
    for (int64_t k = span.begin; k < span.end; k++)
        *out++ = k;
    return span.end - span.begin;
}

static enum err shuffle_py1s(struct shuffling *s)
{
    int64_t at = 0;
    shuffle_nodes(s);
    for (int64_t i = 0; i < s->pieces.first[s->how->nodes]; i++) {
        int64_t size = lay_out(s->pieces.spans[i], s->ids + at);
        numpy_rng_shuffle(&s->epoch, s->ids + at, size);
        at += size;
    }
    return ERR_OK;
}

static enum err shuffle_py2s(struct shuffling *s)
{
    size_t bytes = (size_t)s->pieces.samples * sizeof s->ids[0];
    int64_t *from = NULL, at = 0;
    TRY(new_room(&from, (size_t)s->pieces.samples + 1));
    memcpy(from, s->ids, bytes);
    for (int64_t node = 0; node < s->how->nodes; node++) {
        int64_t count = 0;
        struct span *spans = node_spans(s, node, &count);
        shuffle_spans(&s->epoch, spans, count);
        for (int64_t i = 0; i < count; i++) {
            int64_t size = spans[i].end - spans[i].begin;
            memcpy(s->ids + at, from + spans[i].begin,
                   (size_t)size * sizeof from[0]);
            numpy_rng_shuffle(&s->epoch, s->ids + at, size);
            at += size;
        }
    }
    free(from);
    return ERR_OK;
}

/* The limits of a block's size; a block is drawn below the second. */
static int64_t block_low(const struct shuffling *s)
{
    return (int64_t)(0.75 * (double)s->how->block);
}

static int64_t draw_block(struct shuffling *s)
{
    return numpy_rng_integers(&s->epoch, block_low(s),
                              (int64_t)(1.25 * (double)s->how->block));
}

/* Blocks of a node's places, which begin `stagger` before its first. All are
 * drawn before one is mixed. */
static enum err mix_blocks(struct shuffling *s, struct span node,
                           int64_t stagger)
{
    enum err rc = ERR_OK;
    int64_t count = 0, room = 0;
    struct span *blocks = NULL;
    for (int64_t end = node.begin; end < node.end;) {
        int64_t size = draw_block(s);
        int64_t begin = end - stagger, stop = end + size - stagger;
        begin = begin > node.begin ? begin : node.begin;
        stop = stop < node.end ? stop : node.end;
        TRY_OUT(array_room(&blocks, &room, count + 1));
        blocks[count++] = (struct span){ begin, stop };
        end += stop - begin;
    }
    for (int64_t i = 0; i < count; i++)
        numpy_rng_shuffle(&s->epoch, s->ids + blocks[i].begin,
                          blocks[i].end - blocks[i].begin);
out:
    free(blocks);
    return rc;
}

static enum err shuffle_py1br(struct shuffling *s)
{
    enum err rc = ERR_OK;
    int64_t nodes = s->how->nodes;
    int64_t *stagger = NULL;
    int64_t at = 0;
    TRY(new_zeroed(&stagger, (size_t)nodes));
    assert(block_low(s) > 0);
    shuffle_nodes(s);
    for (int64_t node = 0; node < nodes; node++)
        stagger[node] = numpy_rng_integers(&s->epoch, 0, block_low(s));
    for (int64_t node = 0; node < nodes; node++) {
        int64_t count = 0;
        struct span *spans = node_spans(s, node, &count);
        struct span places = { at, at };
        for (int64_t i = 0; i < count; i++)
            at += lay_out(spans[i], s->ids + at);
        places.end = at;
        TRY_OUT(mix_blocks(s, places, stagger[node]));
    }
out:
    free(stagger);
    return rc;
}

/* What py1e sorts in a node. */
struct sorting {
    double *place;
    int64_t *sample, *sorted, *begin; /* begin: of the places k <= x < k + 1 */
};

/* Places are spread about evenly: after a counting sort by their whole parts a
 * few are left to exchange. */
static void sort_places(const struct sorting *sorting, int64_t count,
                        int64_t *ids)
{
    int64_t *begin = sorting->begin, *sorted = sorting->sorted;
    const double *place = sorting->place;
    memset(begin, 0, ((size_t)count + 2) * sizeof *begin);
    for (int64_t i = 0; i < count; i++) {
        assert(place[i] >= 0 && place[i] < (double)count + 1);
        begin[(int64_t)place[i] + 1]++;
    }
    for (int64_t k = 0; k <= count; k++)
        begin[k + 1] += begin[k];
    for (int64_t i = 0; i < count; i++)
        sorted[begin[(int64_t)place[i]]++] = i;
    /* insertion sort; stable, as equal places keep their order */
    for (int64_t i = 1; i < count; i++) {
        int64_t one = sorted[i], k = i;
        for (; k > 0 && place[sorted[k - 1]] > place[one]; k--)
            sorted[k] = sorted[k - 1];
        sorted[k] = one;
    }
    for (int64_t i = 0; i < count; i++)
        ids[i] = sorting->sample[sorted[i]];
}

/* Moves each sample of the node by a part of a block to both sides. */
static void expand_node(struct shuffling *s, const struct span *spans,
                        int64_t count, int64_t samples,
                        const struct sorting *sorting, int64_t *ids)
{
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t size = lay_out(spans[i], sorting->sample + at);
        numpy_rng_shuffle(&s->epoch, sorting->sample + at, size);
        at += size;
    }
    at = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t size = spans[i].end - spans[i].begin;
        double most = (double)(draw_block(s) - size) / 2;
        double low = (double)-at, high = (double)(samples - at - size);
        most = most > 0 ? most : 0;
        low = -most > low ? -most : low;
        high = most < high ? most : high;
        for (int64_t k = at; k < at + size; k++)
            sorting->place[k] =
                (double)k + numpy_rng_uniform(&s->epoch, low, high);
        at += size;
    }
    sort_places(sorting, samples, ids);
}

static enum err shuffle_py1e(struct shuffling *s)
{
    enum err rc = ERR_OK;
    int64_t nodes = s->how->nodes, done = 0;
    size_t most = (size_t)(s->pieces.samples / nodes + 1);
    struct sorting sorting = { .place = NULL };
    TRY_OUT(new_zeroed(&sorting.place, most));
    TRY_OUT(new_zeroed(&sorting.sample, most));
    TRY_OUT(new_zeroed(&sorting.sorted, most));
    TRY_OUT(new_zeroed(&sorting.begin, most + 2));
    shuffle_nodes(s);
    for (int64_t node = 0; node < nodes; node++) {
        int64_t count = 0, samples = 0;
        struct span *spans = node_spans(s, node, &count);
        for (int64_t i = 0; i < count; i++)
            samples += spans[i].end - spans[i].begin;
        assert(samples > 0);
        expand_node(s, spans, count, samples, &sorting, s->ids + done);
        done += samples;
    }
out:
    free(sorting.place);
    free(sorting.sample);
    free(sorting.sorted);
    free(sorting.begin);
    return rc;
}

static enum err no_shuffle(const int64_t *units, int64_t count,
                           struct shuffling *s)
{
    struct span all = { 0, 0 };
    for (int64_t i = 0; i < count; i++)
        all.end += units[i];
    if (s->how->algorithm == STREAMING_NAIVE)
        numpy_rng_permutation(&s->epoch, all.end, s->ids);
    else
        lay_out(all, s->ids);
    return ERR_OK;
}

enum err streaming_shuffle(const struct streaming_shuffle *shuffle,
                           const int64_t *units, int64_t count, int64_t *ids)
{
    static enum err (*const algorithms[])(struct shuffling *) = {
        [STREAMING_PY1E] = shuffle_py1e,
        [STREAMING_PY1S] = shuffle_py1s,
        [STREAMING_PY1BR] = shuffle_py1br,
        [STREAMING_PY2S] = shuffle_py2s,
    };
    struct shuffling s = { .how = shuffle, .ids = ids };
    assert(shuffle->nodes > 0);
    numpy_rng_seed(&s.run, shuffle->seed);
    numpy_rng_seed(&s.epoch, shuffle->seed + shuffle->epoch);
    if (shuffle->algorithm >= STREAMING_NAIVE)
        return no_shuffle(units, count, &s);
    enum err rc = make_pieces(&s, units, count);
    if (rc == ERR_OK)
        rc = algorithms[shuffle->algorithm](&s);
    free(s.pieces.spans);
    free(s.pieces.first);
    return rc;
}
