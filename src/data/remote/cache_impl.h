/* What the files of the cache share. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "src/base/own.h"
#include "src/data/remote/cache.h"
#include "src/data/remote/store.h"

#define CACHE_POLL_S 0.01 /* between looks at what another process does */

struct cache {
    char wanted[FSIO_PATH_MAX]; /* root, as it is named */
    char name[20];              /* of the address, in it */
    struct own root, in;
    const char *folder; /* the way into the latter */
    bool told;
    struct cache_options options;
    bool temporary; /* the root is the default's */
    struct store *store;
    int users; /* the lock's file */
    int verified;
    struct cache_list list; /* .shard NULL: not yet, or no more */
    int64_t largest; /* bytes that a shard needs at most, packed and not */
    atomic_bool stopped;
    atomic_int stops; /* how often; what it ended has not failed */

    pthread_mutex_t mutex; /* of all below */
    /* the last failure of a fetch */
    struct err_kept failed;
    int64_t failed_shard;
    double failed_s;
    struct cache_ahead *ahead; /* NULL until something is wanted */
};

/* An exclusive lock of byte `at` of the file `locks`, in a file description of
 * its own, which closing ends; ERR_IO after the deadline. */
enum err cache_lock(struct cache *cache, int64_t at, const char *what, int *fd);
/* Nobody has it. */
bool cache_is_free(int locks, int64_t at);
/* The byte behind those of shards. */
#define CACHE_LOCK_ROOM ((int64_t)1 << 40)

/* FOLDER/NUMBER_NAME with `end` behind it. */
enum err cache_path(const struct cache *cache, int64_t shard, const char *end,
                    char path[FSIO_PATH_MAX]);

/* What a shard takes while it is fetched, packed and not. */
int64_t cache_room_bytes(const struct cache *cache, int64_t shard);
/* Keep room for a shard that is fetched, by removing others that are not held,
 * those first that were not held for longest. */
enum err cache_room_take(struct cache *cache, int64_t shard);
/* It is not needed any more. */
void cache_room_give(struct cache *cache, int64_t shard);

/* Before an index is fetched, and after it with false: where one is there already its
 * store is asked for a shorter time. */
void cache_ask_begin(struct cache *cache, bool there);
/* Whether it failed because the store does not answer; then it is warned of. */
bool cache_ask_away(const struct cache *cache, enum err rc);
/* By a user whom others have fetched the index for. ERR_DATA: the address has another
 * now. A store that does not answer is warned of. */
enum err cache_ask(struct cache *cache, const char *index);

/* Ends the threads. */
void cache_ahead_destroy(struct cache *cache);
