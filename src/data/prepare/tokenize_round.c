/* A round has some chunks for each thread, so that none waits long for another,
 * and ends early where documents that cannot be cut have made chunks long. A
 * failure stays with its chunk: it is told when that one's turn comes, and so is
 * the first in the text, not the first in time. */
#include "src/data/prepare/tokenize_round.h"

#include <assert.h>
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/array.h"
#include "src/base/new.h"

#define ROUND_CHUNKS 4 /* for each thread */
#define ROUND_THREADS_DEFAULT_MAX 32
/* Text beyond which no further chunk is begun. */
#define ROUND_BYTES_MAX ((size_t)512 << 20)
/* What a rare long document has made larger is given back. */
#define ROUND_KEPT_BYTES ((size_t)4 << 20)

static int round_threads(int wanted)
{
    cpu_set_t mask; /* too small for more than 1024 processors */
    if (wanted > 0)
        return wanted;
    long count = sched_getaffinity(0, sizeof mask, &mask) == 0
                     ? CPU_COUNT(&mask)
                     : sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1                           ? 1
           : count < ROUND_THREADS_DEFAULT_MAX ? (int)count
                                               : ROUND_THREADS_DEFAULT_MAX;
}

enum err tokenize_round_create(int threads, struct tokenize_round *round)
{
    *round = (struct tokenize_round){ .threads = round_threads(threads) };
    if (threads < 0 || round->threads > TOKENIZE_THREADS_MAX)
        return err_set(ERR_USAGE, "--threads has to be in [1, %d], not %d",
                       TOKENIZE_THREADS_MAX, threads);
    TRY(new_zeroed(&round->chunk, (size_t)round->threads * ROUND_CHUNKS));
    round->size = round->threads * ROUND_CHUNKS;
    return ERR_OK;
}

void tokenize_round_release(struct tokenize_round *round)
{
    for (int c = 0; c < round->size; c++) {
        free(round->chunk[c].text);
        free(round->chunk[c].part);
        free(round->chunk[c].tokens.token);
    }
    free(round->chunk);
    *round = (struct tokenize_round){ .chunk = NULL };
}

/* Buffers serve every round; just large ones are given back. */
static void round_empty(struct tokenize_chunk *chunk)
{
    if (chunk->capacity > ROUND_KEPT_BYTES) {
        free(chunk->text);
        chunk->text = NULL;
        chunk->capacity = 0;
    }
    if (chunk->tokens.capacity > ROUND_KEPT_BYTES) {
        free(chunk->tokens.token);
        chunk->tokens = (struct token_list){ .count = 0 };
    }
    chunk->bytes = chunk->parts = 0;
}

enum err tokenize_round_fill(struct tokenize_round *round,
                             struct tokenize_feed *feed, bool *more)
{
    size_t bytes = 0;
    *more = true;
    for (round->filled = 0;
         round->filled < round->size && bytes <= ROUND_BYTES_MAX;
         round->filled++) {
        struct tokenize_chunk *chunk = &round->chunk[round->filled];
        round_empty(chunk);
        TRY(tokenize_feed_fill(feed, chunk, more));
        if (!*more)
            break;
        bytes += chunk->bytes;
    }
    return ERR_OK;
}

void tokenize_round_each(struct tokenize_round *round,
                         enum err (*work)(void *arg, int thread,
                                          struct tokenize_chunk *chunk),
                         void *arg)
{
    assert(round->filled <= round->size);
#pragma omp parallel for schedule(dynamic, 1) num_threads(round->threads)
    for (int c = 0; c < round->filled; c++)
        err_keep(&round->chunk[c].failure,
                 work(arg, omp_get_thread_num(), &round->chunk[c]));
}

/* --- chunks: whole documents while there is room ---
 *
 * A chunk is what one thread encodes by itself, so it may only end where the
 * tokens of both sides are those of the whole: between documents, or in one
 * where tokenizer_cut() finds a place. What is behind the cut is carried into
 * the next chunk. A tokenizer may find none for long (a word of a megabyte);
 * then twice as much is read before it is asked again, so that looking stays
 * linear, up to a limit on what is held in memory. */

#define FEED_CHUNK_BYTES ((size_t)1 << 20)
#define FEED_PARTS_MAX ((size_t)1 << 14)

struct tokenize_feed {
    struct documents *documents;
    const struct tokenizer *tokenizer;
    struct text_span span; /* what is being taken */
    size_t taken;          /* of it */
    bool open;             /* it is not taken whole */
    uint8_t *carry;        /* cut off from the last chunk */
    size_t carried, capacity;
    struct text_place place; /* of it */
};

enum err tokenize_feed_create(struct documents *documents,
                              const struct tokenizer *tokenizer,
                              struct tokenize_feed **out)
{
    assert(documents != NULL && tokenizer != NULL && out != NULL);
    struct tokenize_feed *feed = NULL;
    TRY(new_zeroed(&feed, 1));
    feed->documents = documents;
    feed->tokenizer = tokenizer;
    *out = feed;
    return ERR_OK;
}

void tokenize_feed_destroy(struct tokenize_feed *feed)
{
    if (feed == NULL)
        return;
    free(feed->carry);
    free(feed);
}

/* The part that ends where the chunk does. */
static enum err feed_part(const struct tokenize_feed *feed,
                          struct tokenize_chunk *chunk, bool begins, bool ends)
{
    TRY(array_room(&chunk->part, &chunk->parts_capacity, chunk->parts + 1));
    chunk->part[chunk->parts++] =
        (struct tokenize_part){ .end = chunk->bytes,
                                .begins = begins,
                                .ends = ends,
                                .held = feed->span.place.held };
    return ERR_OK;
}

static enum err feed_append(struct tokenize_chunk *chunk, const uint8_t *text,
                            size_t bytes)
{
    TRY(array_room(&chunk->text, &chunk->capacity, chunk->bytes + bytes));
    if (bytes > 0)
        memcpy(chunk->text + chunk->bytes, text, bytes);
    chunk->bytes += bytes;
    return ERR_OK;
}

/* The document that begins, in the chunk, at `begin` goes on: cut it off. *cut
 * false: that is possible nowhere. */
static enum err feed_cut(struct tokenize_feed *feed,
                         struct tokenize_chunk *chunk, size_t begin,
                         bool begins, bool *cut)
{
    size_t bytes = chunk->bytes - begin;
    size_t kept = tokenizer_cut(feed->tokenizer, chunk->text + begin, bytes);
    assert(kept <= bytes);
    *cut = kept > 0;
    if (kept == 0)
        return ERR_OK;
    size_t carried = bytes - kept;
    TRY(array_room(&feed->carry, &feed->capacity, carried));
    if (carried > 0)
        memcpy(feed->carry, chunk->text + begin + kept, carried);
    feed->carried = carried;
    /* the carried bytes begin in the document's place less their number */
    feed->place =
        documents_back(feed->documents,
                       documents_at(feed->documents, &feed->span, feed->taken),
                       carried, chunk->text[begin + kept - 1]);
    chunk->bytes -= carried;
    return feed_part(feed, chunk, begins, false);
}

static enum err feed_too_long(const struct tokenize_feed *feed)
{
    char name[512];
    documents_name(feed->documents, &feed->span.place, name, sizeof name);
    return err_set(ERR_DATA,
                   "%s: more than %zu MiB of text that can't be cut, such as "
                   "one word; divide it",
                   name, TOKENIZE_FEED_UNCUT_MAX >> 20);
}

/* The next span, if there is none. *more false: the end. */
static enum err feed_span(struct tokenize_feed *feed, bool *more)
{
    *more = feed->open;
    if (feed->open)
        return ERR_OK;
    TRY(documents_next(feed->documents, &feed->span, more));
    feed->taken = 0;
    feed->open = *more;
    return ERR_OK;
}

/* Take of the span what a chunk that is to be `limit` long has room for. */
static enum err feed_take(struct tokenize_feed *feed,
                          struct tokenize_chunk *chunk, size_t limit)
{
    assert(feed->open && feed->taken <= feed->span.bytes);
    size_t rest = feed->span.bytes - feed->taken;
    size_t room = limit > chunk->bytes ? limit - chunk->bytes : 0;
    size_t part = rest < room ? rest : room;
    TRY(feed_append(chunk, feed->span.text + feed->taken, part));
    feed->taken += part;
    feed->open = feed->taken < feed->span.bytes;
    return ERR_OK;
}

enum err tokenize_feed_fill(struct tokenize_feed *feed,
                            struct tokenize_chunk *chunk, bool *more)
{
    size_t limit = FEED_CHUNK_BYTES, begin = 0;
    bool begins = false, any = feed->carried > 0;
    assert(chunk->bytes == 0 && chunk->parts == 0);
    chunk->place = feed->place;
    TRY(feed_append(chunk, feed->carry, feed->carried));
    if (limit < 2 * chunk->bytes)
        limit = 2 * chunk->bytes; /* so that looking for a cut stays linear */
    feed->carried = 0;
    for (;;) {
        TRY(feed_span(feed, more));
        if (!*more)
            break;
        if (!any)
            chunk->place =
                documents_at(feed->documents, &feed->span, feed->taken);
        any = true;
        begins = begins || (feed->span.begins && feed->taken == 0);
        TRY(feed_take(feed, chunk, limit));
        if (!feed->open && feed->span.ends) {
            TRY(feed_part(feed, chunk, begins, true));
            begin = chunk->bytes;
            begins = false;
            if (chunk->bytes < limit && chunk->parts < FEED_PARTS_MAX)
                continue;
            break;
        }
        if (chunk->bytes < limit)
            continue;
        bool cut = false;
        TRY(feed_cut(feed, chunk, begin, begins, &cut));
        if (cut)
            break;
        if (chunk->bytes - begin > TOKENIZE_FEED_UNCUT_MAX)
            return feed_too_long(feed);
        limit = 2 * chunk->bytes;
    }
    *more = any;
    assert(*more == (chunk->parts > 0));
    return ERR_OK;
}
