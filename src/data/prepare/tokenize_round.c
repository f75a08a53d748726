/* A round has some chunks for each thread, so that none waits long for another,
 * and ends early where documents that cannot be cut have made chunks long. A
 * failure stays with its chunk: it is told when that one's turn comes, and so is
 * the first in the text, not the first in time. */
#include "src/data/prepare/tokenize_round.h"

#include <assert.h>
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

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
