/* A ring of chunks, counted by three numbers that only grow:
 *
 *   first <= next <= end
 *   [first, next)  taken by a thread, encoded or about to be
 *   [next, end)    wait for a thread
 *   the others     are free, to be filled and given
 *
 * Chunks are given at `end` and taken back at `first`, so they come out in the
 * order in which they went in, whichever thread was faster. A thread that fails
 * keeps its error with its chunk: it is told when that one's turn comes, and so
 * is the first in the text, not the first in time. There are two chunks for
 * each thread and two more, so that none waits while the caller writes. */
#include "src/data/prepare/tokenize_pool.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/new.h"

#define POOL_THREADS_DEFAULT_MAX 32
/* Text under way beyond which no further chunk is begun. */
#define POOL_BYTES_MAX ((size_t)512 << 20)
/* What a rare long document has made larger is given back. */
#define POOL_KEPT_BYTES ((size_t)4 << 20)

struct tokenize_pool {
    struct tokenize_marks marks;
    pthread_mutex_t lock;
    pthread_cond_t waiting, done;
    bool stop;
    struct tokenize_chunk *chunk; /* [size], a ring */
    size_t size;
    size_t first, next, end; /* counted: taken, begun, given before */
    size_t bytes;            /* of text under way */
    int threads;             /* that run */
    pthread_t *thread;
    struct tokenizer_encoder **encoder; /* [threads wanted] */
};

int tokenize_pool_threads(int wanted)
{
    cpu_set_t mask; /* too small for more than 1024 processors */
    if (wanted > 0)
        return wanted;
    long count = sched_getaffinity(0, sizeof mask, &mask) == 0
                     ? CPU_COUNT(&mask)
                     : sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1                          ? 1
           : count < POOL_THREADS_DEFAULT_MAX ? (int)count
                                              : POOL_THREADS_DEFAULT_MAX;
}

struct pool_thread {
    struct tokenize_pool *pool;
    struct tokenizer_encoder *encoder;
};

static enum err pool_encode(struct tokenizer_encoder *encoder,
                            struct tokenize_marks marks,
                            struct tokenize_chunk *chunk)
{
    size_t begin = 0;
    chunk->tokens.count = 0;
    for (size_t p = 0; p < chunk->parts; p++) {
        struct tokenize_part *part = &chunk->part[p];
        if (part->begins && marks.bos >= 0)
            TRY(token_list_add(&chunk->tokens, &marks.bos, 1));
        if (part->end > begin)
            TRY(tokenizer_encode(
                encoder, chunk->text + begin, part->end - begin,
                part->begins ? 0u : TOKENIZER_INSIDE, &chunk->tokens));
        if (part->ends && marks.eos >= 0)
            TRY(token_list_add(&chunk->tokens, &marks.eos, 1));
        part->tokens_end = chunk->tokens.count;
        begin = part->end;
    }
    return ERR_OK;
}

static void *pool_work(void *context)
{
    struct pool_thread self = *(struct pool_thread *)context;
    struct tokenize_pool *pool = self.pool;
    free(context);
    pthread_mutex_lock(&pool->lock);
    while (!pool->stop) {
        if (pool->next == pool->end) {
            pthread_cond_wait(&pool->waiting, &pool->lock);
            continue;
        }
        /* it is this thread's until `done`: no lock while it is encoded */
        struct tokenize_chunk *chunk = &pool->chunk[pool->next++ % pool->size];
        pthread_mutex_unlock(&pool->lock);
        err_keep(&chunk->failure,
                 pool_encode(self.encoder, pool->marks, chunk));
        pthread_mutex_lock(&pool->lock);
        chunk->done = true;
        pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static enum err pool_start(struct tokenize_pool *pool,
                           const struct tokenizer *tokenizer, int threads)
{
    for (int t = 0; t < threads; t++) {
        TRY(tokenizer_encoder_create(tokenizer, &pool->encoder[t]));
        struct pool_thread *self = NULL;
        TRY(new_room(&self, 1));
        *self = (struct pool_thread){ pool, pool->encoder[t] };
        int failed = pthread_create(&pool->thread[t], NULL, pool_work, self);
        if (failed != 0) {
            free(self);
            return err_set(ERR_MEMORY, "thread %d of %d: %s", t + 1, threads,
                           strerror(failed));
        }
        pool->threads++;
    }
    return ERR_OK;
}

enum err tokenize_pool_create(const struct tokenizer *tokenizer,
                              struct tokenize_marks marks, int threads,
                              struct tokenize_pool **out)
{
    assert(threads > 0 && threads <= TOKENIZE_POOL_THREADS_MAX);
    enum err rc = ERR_OK;
    size_t size = 2 * (size_t)threads + 2;
    struct tokenize_pool *pool = NULL;
    TRY(new_zeroed(&pool, 1));
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->waiting, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->marks = marks;
    TRY_OUT(new_zeroed(&pool->chunk, size));
    pool->size = size;
    TRY_OUT(new_zeroed(&pool->thread, (size_t)threads));
    TRY_OUT(new_zeroed(&pool->encoder, (size_t)threads));
    TRY_OUT(pool_start(pool, tokenizer, threads));
out:
    return new_or_none(rc, pool, out, tokenize_pool_destroy);
}

void tokenize_pool_destroy(struct tokenize_pool *pool)
{
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->waiting);
    pthread_mutex_unlock(&pool->lock);
    for (int t = 0; t < pool->threads; t++)
        pthread_join(pool->thread[t], NULL);
    size_t encoders = pool->size > 0 ? (pool->size - 2) / 2 : 0;
    for (size_t e = 0; pool->encoder != NULL && e < encoders; e++)
        tokenizer_encoder_destroy(pool->encoder[e]);
    for (size_t p = 0; p < pool->size; p++) {
        free(pool->chunk[p].text);
        free(pool->chunk[p].part);
        free(pool->chunk[p].tokens.token);
    }
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->waiting);
    pthread_mutex_destroy(&pool->lock);
    free(pool->encoder);
    free(pool->thread);
    free(pool->chunk);
    free(pool);
}

uint64_t tokenize_pool_lost(const struct tokenize_pool *pool)
{
    uint64_t lost = 0;
    for (int t = 0; t < pool->threads; t++)
        lost += tokenizer_encoder_lost(pool->encoder[t]);
    return lost;
}

/* Only the thread that gives and takes changes first, end and bytes. */
struct tokenize_chunk *tokenize_pool_free(struct tokenize_pool *pool)
{
    bool full = pool->end - pool->first == pool->size;
    bool much = pool->end > pool->first && pool->bytes > POOL_BYTES_MAX;
    return full || much ? NULL : &pool->chunk[pool->end % pool->size];
}

void tokenize_pool_give(struct tokenize_pool *pool)
{
    struct tokenize_chunk *chunk = &pool->chunk[pool->end % pool->size];
    assert(!chunk->done && pool->end - pool->first < pool->size);
    pool->bytes += chunk->bytes;
    pthread_mutex_lock(&pool->lock);
    pool->end++;
    pthread_cond_signal(&pool->waiting);
    pthread_mutex_unlock(&pool->lock);
}

enum err tokenize_pool_take(struct tokenize_pool *pool,
                            struct tokenize_chunk **out)
{
    assert(pool != NULL && out != NULL && pool->first <= pool->end);
    *out = NULL;
    if (pool->first == pool->end)
        return ERR_OK;
    struct tokenize_chunk *chunk = &pool->chunk[pool->first % pool->size];
    pthread_mutex_lock(&pool->lock);
    while (!chunk->done)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    *out = chunk;
    return err_again(&chunk->failure);
}

void tokenize_pool_return(struct tokenize_pool *pool)
{
    struct tokenize_chunk *chunk = &pool->chunk[pool->first % pool->size];
    assert(pool->first < pool->end && chunk->done);
    pool->bytes -= chunk->bytes;
    /* buffers go round with the ring; just large ones are given back */
    if (chunk->capacity > POOL_KEPT_BYTES) {
        free(chunk->text);
        chunk->text = NULL;
        chunk->capacity = 0;
    }
    if (chunk->tokens.capacity > POOL_KEPT_BYTES) {
        free(chunk->tokens.token);
        chunk->tokens = (struct token_list){ .count = 0 };
    }
    chunk->bytes = chunk->parts = 0;
    chunk->done = false;
    pool->first++;
}
