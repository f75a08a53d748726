/* Files of a data set that is not in this machine's file systems, or whose
 * shards are compressed, in a private folder of a node.
 *
 * All processes of a user that use the same address in the same folder share
 * one cache: a shard is fetched by one of them while the others wait for it.
 * Whoever dies leaves no lock, and nothing that could be taken for a whole
 * file: a shard gets its name when its length and every known checksum of it,
 * packed and unpacked, are right. Names are not synced to the disk, so what was
 * there before the machine started again is thrown away, as is everything when
 * the index has become another one. What a cache has already is verified again
 * when it is first held after all who used it before have ended; damage there
 * is fetched anew.
 *
 * Who comes asks once for the index: nobody goes on with an older set because others
 * still do. Where the address does not answer, what is there is used, with a warning. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/base/fsio.h"
#include "src/data/codec/checksum.h"

struct cache;
struct store;

struct cache_options {
    /* "": tessera-cache-UID[-JOB] in $TMPDIR or /tmp, which the last process
     * removes that ends in order; another stays. */
    const char *folder;
    int64_t limit;     /* bytes of the shards of one address; 0: none */
    double deadline_s; /* of store_options */
    int threads;       /* that fetch ahead, > 0 */
    bool sizes_only;   /* what is there already is whole if it is as long */
    /* What makes the index, in place of fetching the first of the names, and what
     * it is of beside the address; NULL and NULL: it lies there. */
    enum err (*index)(void *arg, struct store *store, const char *to);
    void *arg;
    const char *of;
    bool (*ended)(void); /* of store_options */
    bool asked;          /* another of a node's ranks has asked for the index */
};

/* Where nothing else is said: no limit, 300 s. */
extern const struct cache_options cache_defaults;

struct cache_shard {
    struct file_entry raw;
    struct file_entry zip;   /* name "": the raw file is fetched */
    const char *compression; /* of the zip, as the index has it: "zstd:3" */
};

/* What tells of each shard, to any thread; lent to the cache until its end. */
struct cache_list {
    void (*shard)(const void *of, int64_t shard, struct cache_shard *out);
    const void *of;
    int64_t count;
};

struct cache_hold {
    char path[FSIO_PATH_MAX]; /* of the raw file */
    int fd;
};

/* Make or join the cache of an address, and fetch its files `names`, the first
 * of which is the index, unless another process has them there already; ERR_DATA where
 * it uses an older index than the address has now. The
 * first `needed` must be there, the others may be missing. ERR_SPACE where the
 * folder is not the user's own, or is reached by a link. */
enum err cache_open(const char *address, const struct cache_options *options,
                    const char *const *names, int needed, int count,
                    struct cache **out);
/* Let nothing be fetched any more, wait for the threads, forget the shards. */
void cache_end(struct cache *cache);
void cache_close(struct cache *cache);

/* Where its files lie. Lent. A user may give whole shards further names in CACHE_NAMES
 * there, which go when shards do because the index is another one. */
#define CACHE_NAMES "as"
const char *cache_folder(const struct cache *cache);
/* The same as a path for other programs and people. */
const char *cache_place(const struct cache *cache);

/* The shards, before any is held. ERR_USAGE when the limit is less than what
 * the largest needs: it says how much. */
enum err cache_describe(struct cache *cache, const struct cache_list *list);

/* Bytes of the raw files that are not there, as whole ones. */
int64_t cache_missing(const struct cache *cache);

/* How many raw files may stay open although they are no longer held and their
 * names may be gone, so that the limit is kept about. */
int64_t cache_open_max(const struct cache *cache, int64_t most);

/* A whole shard under a path, which stays there until the release. Any number
 * of threads may hold. */
enum err cache_hold(struct cache *cache, int64_t shard,
                    struct cache_hold *hold);
void cache_release(struct cache_hold *hold);

/* Fetch it soon, if there is time for it; who holds it later may not have to
 * wait, and meets the error if there is one. */
void cache_want(struct cache *cache, int64_t shard);

/* Let all that wait or fetch end soon, now and until `stop` is false. */
void cache_stop(struct cache *cache, bool stop);
