/* Keeps the shards of a cache within its limit. Who needs room holds the lock
 * of the room; a file FETCHED.room is as long as what will come, without taking
 * space, until it is there.
 *
 * What goes first was not held for longest: each hold sets a file's time. What
 * somebody holds is locked shared, so the lone lock that removing takes fails
 * on it. Files on their way have to count before they are there, or every
 * process of the node would see the same free room. A .room file that a dead
 * process has left is known by its shard's byte, which is locked as long as
 * somebody fetches. */
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/array.h"
#include "src/base/globs.h"
#include "src/data/remote/cache_impl.h"

struct cache_entry {
    char name[256];
    int64_t used_ns; /* when last */
    int64_t bytes;
};

struct cache_listing {
    struct cache_entry *entries; /* shards that are there */
    size_t count, room;
    int64_t bytes; /* theirs, and of what is on its way */
};

int64_t cache_room_bytes(const struct cache *cache, int64_t shard)
{
    struct cache_shard info;
    cache->list.shard(cache->list.of, shard, &info);
    return info.raw.bytes + (info.zip.name[0] != '\0' ? info.zip.bytes : 0);
}

static enum err cache_add(struct cache_listing *list, const char *name,
                          const struct stat *status)
{
    TRY(array_room(&list->entries, &list->room, list->count + 1));
    struct cache_entry *entry = &list->entries[list->count++];
    snprintf(entry->name, sizeof entry->name, "%s", name);
    entry->used_ns =
        (int64_t)status->st_atim.tv_sec * 1000000000 + status->st_atim.tv_nsec;
    entry->bytes = (int64_t)status->st_size;
    return ERR_OK;
}

/* `locks`: the descriptor that has the lock of the room. The room of `shard`
 * is not counted, nor what a dead process kept. */
static enum err cache_list(const struct cache *cache, int locks, int64_t shard,
                           struct cache_listing *list)
{
    assert(locks >= 0 && shard >= 0);
    enum err rc = ERR_OK;
    struct dirent *entry = NULL;
    DIR *dir = opendir(cache->folder);
    list->count = 0;
    list->bytes = 0;
    if (dir == NULL)
        return err_errno("%s: open", cache->folder);
    while ((entry = readdir(dir)) != NULL) {
        struct stat status;
        const char *name = entry->d_name;
        if (name[0] < '0' || name[0] > '9' ||
            globs_match("*.part *.zip *.second", name) ||
            fstatat(dirfd(dir), name, &status, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (!globs_match("*.room", name)) {
            TRY_OUT(cache_add(list, name, &status));
            list->bytes += (int64_t)status.st_size;
        } else if (strtoll(name, NULL, 10) != shard) {
            if (cache_is_free(locks, strtoll(name, NULL, 10)))
                unlinkat(dirfd(dir), name, 0);
            else
                list->bytes += (int64_t)status.st_size;
        }
    }
out:
    closedir(dir);
    return rc;
}

static int cache_by_use(const void *a, const void *b)
{
    const struct cache_entry *x = a, *y = b;
    return (x->used_ns > y->used_ns) - (x->used_ns < y->used_ns);
}

/* Remove what is not held until `bytes` fit; *fit: they do. */
static enum err cache_evict(const struct cache *cache,
                            struct cache_listing *list, int64_t bytes,
                            bool *fit)
{
    char path[FSIO_PATH_MAX];
    assert(cache->options.limit > 0 && bytes >= 0);
    if (list->count > 0)
        qsort(list->entries, list->count, sizeof *list->entries, cache_by_use);
    for (size_t e = 0; e < list->count; e++) {
        if (list->bytes <= cache->options.limit - bytes)
            break;
        TRY(fsio_path(path, "%s/%s", cache->folder, list->entries[e].name));
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0)
            continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 && unlink(path) == 0)
            list->bytes -= list->entries[e].bytes;
        close(fd);
    }
    *fit = list->bytes <= cache->options.limit - bytes;
    return ERR_OK;
}

static enum err cache_room_make(const struct cache *cache, int64_t shard,
                                int64_t bytes)
{
    char path[FSIO_PATH_MAX];
    TRY(cache_path(cache, shard, ".room", path));
    int fd = open(
        path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0)
        return err_errno("%s: open", path);
    enum err rc =
        ftruncate(fd, bytes) == 0 ? ERR_OK : err_errno("%s: truncate", path);
    close(fd);
    return rc;
}

enum err cache_room_take(struct cache *cache, int64_t shard)
{
    int64_t bytes = cache_room_bytes(cache, shard);
    struct cache_listing list = { .entries = NULL };
    double begin = clock_now();
    enum err rc = ERR_OK;
    bool fit = cache->options.limit == 0;
    while (!fit) {
        int lock = -1;
        TRY_OUT(cache_lock(cache, CACHE_LOCK_ROOM, cache->folder, &lock));
        rc = cache_list(cache, lock, shard, &list);
        if (rc == ERR_OK)
            rc = cache_evict(cache, &list, bytes, &fit);
        if (rc == ERR_OK && fit)
            rc = cache_room_make(cache, shard, bytes);
        /* others may make room, or take it, until the next look */
        close(lock);
        if (rc == ERR_OK && !fit && atomic_load(&cache->stopped))
            rc = err_set(ERR_IO, "%s: given up, the program ends",
                         cache->folder);
        if (rc == ERR_OK && !fit &&
            clock_now() - begin > cache->options.deadline_s)
            rc = err_set(ERR_SPACE,
                         "%s: shards in use and on their way take %lld bytes, "
                         "and one of %lld does not fit into data.cache_limit = "
                         "%lld beside them: give at least %lld for each rank "
                         "of the node",
                         cache->folder, (long long)list.bytes, (long long)bytes,
                         (long long)cache->options.limit,
                         (long long)cache->largest);
        TRY_OUT(rc);
        if (!fit)
            clock_sleep(CACHE_POLL_S);
    }
out:
    free(list.entries);
    return rc;
}

void cache_room_give(struct cache *cache, int64_t shard)
{
    char path[FSIO_PATH_MAX];
    if (cache->options.limit > 0 &&
        cache_path(cache, shard, ".room", path) == ERR_OK)
        unlink(path);
}
