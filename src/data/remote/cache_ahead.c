/* Threads that fetch the shards that will be needed soon, in the order in which
 * they were asked for.
 *
 * To fetch ahead is to hold a shard and to let go of it at once: it stays by
 * its name, as long as nobody needs its room. So there is one way to fetch,
 * with one set of locks. A wish that finds the ring full is forgotten: whoever
 * needs the shard fetches it then. */
#include <assert.h>
#include <stdlib.h>

#include "src/data/remote/cache_impl.h"

#define CACHE_WANTED_MAX 64

struct cache_ahead {
    pthread_cond_t more;
    int64_t wanted[CACHE_WANTED_MAX]; /* a ring */
    int first, count, most;
    uint8_t *listed; /* [shards] wanted, or being fetched */
    bool ended;
    int threads;
    pthread_t thread[]; /* options.threads of them at most */
};

static void *cache_ahead_run(void *arg)
{
    struct cache *cache = arg;
    struct cache_ahead *ahead = cache->ahead;
    pthread_mutex_lock(&cache->mutex);
    while (!ahead->ended) {
        if (ahead->count == 0) {
            pthread_cond_wait(&ahead->more, &cache->mutex);
            continue;
        }
        int64_t shard = ahead->wanted[ahead->first];
        ahead->first = (ahead->first + 1) % CACHE_WANTED_MAX;
        ahead->count--;
        assert(ahead->count >= 0);
        pthread_mutex_unlock(&cache->mutex);
        struct cache_hold hold;
        /* a failure is met by who needs the shard */
        if (cache_hold(cache, shard, &hold) == ERR_OK)
            cache_release(&hold);
        pthread_mutex_lock(&cache->mutex);
        ahead->listed[shard] = 0;
    }
    pthread_mutex_unlock(&cache->mutex);
    return NULL;
}

/* Under the mutex. Without memory nothing is fetched ahead. */
static struct cache_ahead *cache_ahead_create(const struct cache *cache)
{
    assert(cache->options.threads > 0 && cache->list.count > 0);
    size_t threads = (size_t)cache->options.threads;
    struct cache_ahead *ahead =
        calloc(1, sizeof *ahead + threads * sizeof(pthread_t));
    if (ahead == NULL)
        return NULL;
    ahead->listed = calloc((size_t)cache->list.count, 1);
    if (ahead->listed == NULL) {
        free(ahead);
        return NULL;
    }
    pthread_cond_init(&ahead->more, NULL);
    /* what is fetched ahead must not push out what is needed before it */
    int64_t fit = cache->options.limit / (4 * (cache->largest + 1));
    ahead->most = cache->options.limit == 0 || fit > CACHE_WANTED_MAX
                      ? CACHE_WANTED_MAX
                      : (int)fit;
    return ahead;
}

void cache_want(struct cache *cache, int64_t shard)
{
    assert(shard >= 0 && shard < cache->list.count);
    pthread_mutex_lock(&cache->mutex);
    if (cache->ahead == NULL)
        cache->ahead = cache_ahead_create(cache);
    struct cache_ahead *ahead = cache->ahead;
    if (ahead != NULL && ahead->count < ahead->most && !ahead->listed[shard]) {
        int last = (ahead->first + ahead->count++) % CACHE_WANTED_MAX;
        ahead->wanted[last] = shard;
        ahead->listed[shard] = 1;
        if (ahead->threads < cache->options.threads &&
            pthread_create(&ahead->thread[ahead->threads], NULL,
                           cache_ahead_run, cache) == 0)
            ahead->threads++;
        pthread_cond_signal(&ahead->more);
    }
    pthread_mutex_unlock(&cache->mutex);
}

void cache_ahead_destroy(struct cache *cache)
{
    struct cache_ahead *ahead = cache->ahead;
    if (ahead == NULL)
        return;
    pthread_mutex_lock(&cache->mutex);
    ahead->ended = true;
    pthread_cond_broadcast(&ahead->more);
    pthread_mutex_unlock(&cache->mutex);
    for (int t = 0; t < ahead->threads; t++)
        pthread_join(ahead->thread[t], NULL);
    pthread_cond_destroy(&ahead->more);
    free(ahead->listed);
    free(ahead);
    cache->ahead = NULL;
}
