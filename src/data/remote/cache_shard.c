/* Fetches, unpacks and verifies a shard, which gets its name then, and holds
 * it.
 *
 *   its byte of `locks`   the first one takes it, others of the node wait
 *   room                  is kept (cache_room.c)
 *   NAME.zip, NAME.part   come from the store, are unpacked and summed up
 *   rename() to NAME      once every length and sum is right
 *
 * So a name is the proof of a whole file. Whoever finds it needs no byte: it
 * opens the file and locks it shared, which keeps it from being removed. Bytes
 * are locked for an open file (F_OFD_SETLK), since POSIX's older locks belong
 * to a process: they would let a second thread in, and end when the process
 * closes any descriptor of the file.
 *
 * What arrived damaged is fetched once more, for it may have been damaged on
 * its way. Damaged twice it is damaged where it comes from. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/data/remote/cache_impl.h"
#include "src/data/codec/codec.h"
#include "src/data/codec/checksum.h"

#define CACHE_PIECE_BYTES ((size_t)1 << 20)

enum err cache_path(const struct cache *cache, int64_t shard, const char *end,
                    char path[FSIO_PATH_MAX])
{
    assert(shard >= 0 && shard < cache->list.count);
    struct cache_shard info;
    cache->list.shard(cache->list.of, shard, &info);
    const char *name = info.raw.name;
    const char *slash = strrchr(name, '/');
    return fsio_path(path, "%s/%lld_%s%s", cache->folder, (long long)shard,
                     slash != NULL ? slash + 1 : name, end);
}

static struct flock cache_byte(int64_t at)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1
    };
}

bool cache_is_free(int locks, int64_t at)
{
    struct flock lock = cache_byte(at);
    return fcntl(locks, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

enum err cache_lock(struct cache *cache, int64_t at, const char *what, int *fd)
{
    assert(at >= 0 && cache->options.deadline_s > 0);
    char path[FSIO_PATH_MAX];
    double begin = clock_now(), most_s = cache->options.deadline_s;
    enum err rc = ERR_OK;
    if (at < cache->list.count) /* twice, as by who fetches it */
        most_s = 2 * (most_s + (double)cache_room_bytes(cache, at) / (1 << 20));
    TRY(fsio_path(path, "%s/locks", cache->folder));
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*fd < 0)
        return err_errno("%s: open", path);
    for (;;) {
        struct flock lock = cache_byte(at);
        if (fcntl(*fd, F_OFD_SETLK, &lock) == 0)
            return ERR_OK;
        if (errno != EAGAIN && errno != EACCES)
            rc = err_errno("%s: lock", path);
        else if (atomic_load(&cache->stopped) || store_ends(cache->store))
            rc = err_set(ERR_IO, "%s: given up, the program ends", what);
        else if (clock_now() - begin > most_s)
            rc = err_set(ERR_IO,
                         "%s: another process of this node has been at it for "
                         "%.0f s (data.remote_deadline = %g)",
                         what, clock_now() - begin, cache->options.deadline_s);
        if (rc != ERR_OK)
            break;
        clock_sleep(CACHE_POLL_S);
    }
    close(*fd);
    *fd = -1;
    return rc;
}

/* If it is there, whole. */
static enum err cache_try(const struct cache *cache, int64_t shard,
                          struct cache_hold *hold, bool *held)
{
    /* it is used; that it was written is another time, by which readers see a change */
    const struct timespec used[2] = { { .tv_nsec = UTIME_NOW },
                                      { .tv_nsec = UTIME_OMIT } };
    struct stat status;
    struct cache_shard info;
    cache->list.shard(cache->list.of, shard, &info);
    *held = false;
    TRY(cache_path(cache, shard, "", hold->path));
    hold->fd = open(hold->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (hold->fd < 0)
        return errno == ENOENT || errno == ELOOP /* a link goes */
                   ? ERR_OK
                   : err_errno("%s: open", hold->path);
    /* who removes it has it alone, and then it has no name */
    *held = flock(hold->fd, LOCK_SH | LOCK_NB) == 0 &&
            fstat(hold->fd, &status) == 0 && status.st_nlink > 0 &&
            S_ISREG(status.st_mode) && status.st_size == info.raw.bytes;
    if (*held)
        (void)futimens(hold->fd, used);
    else
        cache_release(hold);
    return ERR_OK;
}

int64_t cache_missing(const struct cache *cache)
{
    int64_t bytes = 0;
    char path[FSIO_PATH_MAX];
    struct stat status;
    struct cache_shard info;
    for (int64_t i = 0; i < cache->list.count; i++) {
        cache->list.shard(cache->list.of, i, &info);
        if (cache_path(cache, i, "", path) != ERR_OK ||
            stat(path, &status) != 0 || status.st_size != info.raw.bytes)
            bytes += info.raw.bytes < INT64_MAX - bytes ? info.raw.bytes
                                                        : INT64_MAX - bytes;
    }
    return bytes;
}

void cache_release(struct cache_hold *hold)
{
    fsio_close(hold->fd);
    hold->fd = -1;
}

static enum err cache_sum(const char *path, int fd, struct file_sums *sums,
                          int64_t bytes)
{
    enum err rc = ERR_OK;
    if (file_sums_is_empty(sums))
        return ERR_OK;
    uint8_t *piece = NULL;
    TRY(new_room(&piece, CACHE_PIECE_BYTES));
    for (int64_t at = 0; at < bytes; at += (int64_t)CACHE_PIECE_BYTES) {
        size_t count = bytes - at < (int64_t)CACHE_PIECE_BYTES
                           ? (size_t)(bytes - at)
                           : CACHE_PIECE_BYTES;
        TRY_OUT(fsio_pread(fd, piece, count, at, path));
        TRY_OUT(file_sums_update(sums, piece, count));
    }
    rc = file_sums_compare(sums);
out:
    free(piece);
    return rc;
}

/* Length and all checksums that are known here. */
static enum err cache_verify(const char *path, const struct file_entry *file)
{
    enum err rc = ERR_OK;
    struct stat status;
    struct file_sums *sums = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &status) != 0)
        TRY_OUT(err_errno("%s: open", path));
    if (status.st_size != file->bytes)
        TRY_OUT(err_set(ERR_DATA, "has %lld bytes, but the index says %lld",
                        (long long)status.st_size, (long long)file->bytes));
    TRY_OUT(file_sums_create(file->hash, file->hashes, &sums));
    TRY_OUT(cache_sum(path, fd, sums, file->bytes));
out:
    file_sums_destroy(sums);
    fsio_close(fd);
    return rc;
}

/* The raw file's bytes are verified while they are made: its length is what
 * unpacking ensures. */
static enum err cache_unpack(const struct cache_shard *info, const char *from,
                             const char *part)
{
    enum err rc = ERR_OK;
    struct file_sums *sums = NULL;
    TRY(file_sums_create(info->raw.hash, info->raw.hashes, &sums));
    TRY_OUT(codec_unpack_file(info->compression, from, part, info->raw.bytes,
                              sums));
    rc = file_sums_compare(sums);
out:
    file_sums_destroy(sums);
    return rc;
}

/* The raw file to `part`. */
static enum err cache_bring(struct cache *cache, int64_t shard,
                            const char *part, const char *packed)
{
    char local[FSIO_PATH_MAX];
    int64_t bytes = 0;
    struct cache_shard info;
    cache->list.shard(cache->list.of, shard, &info);
    unlink(part);
    if (info.zip.name[0] == '\0') {
        TRY(store_get(cache->store, info.raw.name, part, info.raw.bytes,
                      &bytes));
        return cache_verify(part, &info.raw);
    }
    /* what lies in a folder here is unpacked from there, without a copy */
    const char *from = packed;
    if (store_local(cache->store, info.zip.name, local))
        from = local;
    else
        TRY(store_get(cache->store, info.zip.name, packed, info.zip.bytes,
                      &bytes));
    TRY(cache_verify(from, &info.zip));
    return cache_unpack(&info, from, part);
}

/* Give it its name, held. */
static enum err cache_publish(const struct cache *cache, int64_t shard,
                              const char *part, struct cache_hold *hold)
{
    TRY(cache_path(cache, shard, "", hold->path));
    hold->fd = open(part, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (hold->fd < 0)
        return err_errno("%s: open", part);
    enum err rc = ERR_OK;
    if (flock(hold->fd, LOCK_SH | LOCK_NB) != 0)
        rc = err_errno("%s: lock", part);
    else if (rename(part, hold->path) != 0)
        rc = err_errno("%s: rename", part);
    if (rc != ERR_OK)
        cache_release(hold);
    return rc;
}

/* By who has its lock. What arrived damaged is fetched once more. */
static enum err cache_fetch(struct cache *cache, int64_t shard,
                            struct cache_hold *hold)
{
    char part[FSIO_PATH_MAX], packed[FSIO_PATH_MAX];
    struct cache_shard info;
    cache->list.shard(cache->list.of, shard, &info);
    const char *name = info.zip.name[0] != '\0' ? info.zip.name : info.raw.name;
    TRY(cache_path(cache, shard, ".part", part));
    TRY(cache_path(cache, shard, ".zip", packed));
    TRY(cache_room_take(cache, shard));
    enum err rc = cache_bring(cache, shard, part, packed);
    if (rc == ERR_DATA && strstr(err_text(), " should be ") != NULL) {
        log_warn("%s/%s: %s; it is fetched again", store_address(cache->store),
                 name, err_text());
        rc = cache_bring(cache, shard, part, packed);
        if (rc == ERR_DATA)
            rc = err_set(ERR_DATA,
                         "%s/%s: %s; it is damaged there: copy the data set "
                         "there again",
                         store_address(cache->store), name, err_text());
    }
    if (rc == ERR_OK)
        rc = cache_publish(cache, shard, part, hold);
    if (rc == ERR_FULL || rc == ERR_SPACE)
        rc = err_set(rc, "%s; make room there, %s", err_text(),
                     cache->options.index != NULL
                         ? "or set TMPDIR to another place"
                         : "name another folder with data.cache, or bound it "
                           "with data.cache_limit");
    unlink(packed);
    if (rc != ERR_OK)
        unlink(part);
    cache_room_give(cache, shard);
    return rc;
}

/* Whether what is there needs no look at its bytes. */
static bool cache_is_trusted(const struct cache *cache, int64_t shard)
{
    char mark = 0;
    return cache->options.sizes_only ||
           (pread(cache->verified, &mark, 1, shard) == 1 && mark == 1);
}

/* What can't be marked is verified again. */
static void cache_trust(const struct cache *cache, int64_t shard)
{
    ssize_t written = pwrite(cache->verified, "\1", 1, shard);
    (void)written;
}

/* By who has its lock: what is there and held is let go of if it is damaged. */
static void cache_look(const struct cache *cache, int64_t shard,
                       struct cache_hold *hold, bool *held)
{
    if (!*held || cache_is_trusted(cache, shard))
        return;
    struct cache_shard info;
    cache->list.shard(cache->list.of, shard, &info);
    if (cache_verify(hold->path, &info.raw) == ERR_OK) {
        cache_trust(cache, shard);
        return;
    }
    log_warn("%s: %s; damaged in the cache, it is fetched again", hold->path,
             err_text());
    unlink(hold->path);
    cache_release(hold);
    *held = false;
}

/* A failure since `begin` of another thread that fetched the same: it has
 * waited for as long as anybody may, and who waited behind it need not wait
 * once more. */
static enum err cache_failed(struct cache *cache, int64_t shard, double begin)
{
    enum err rc = ERR_OK;
    pthread_mutex_lock(&cache->mutex);
    if (cache->failed_shard == shard && cache->failed_s > begin)
        rc = err_again(&cache->failed);
    pthread_mutex_unlock(&cache->mutex);
    return rc;
}

enum err cache_hold(struct cache *cache, int64_t shard, struct cache_hold *hold)
{
    assert(shard >= 0 && shard < cache->list.count);
    int lock = -1;
    bool held = false;
    double begin = clock_now();
    int stops = cache->stops;
    hold->fd = -1;
    TRY(cache_try(cache, shard, hold, &held));
    /* most holds end here; else whoever has the byte fetches or verifies */
    if (held && cache_is_trusted(cache, shard))
        return ERR_OK;
    cache_release(hold);
    struct cache_shard info;
    cache->list.shard(cache->list.of, shard, &info);
    TRY(cache_lock(cache, shard, info.raw.name, &lock));
    enum err rc = cache_failed(cache, shard, begin);
    if (rc == ERR_OK)
        rc = cache_try(cache, shard, hold, &held);
    if (rc == ERR_OK)
        cache_look(cache, shard, hold, &held);
    if (rc == ERR_OK && !held) {
        rc = cache_fetch(cache, shard, hold);
        if (rc == ERR_OK)
            cache_trust(cache, shard);
        else if (cache->stops == stops) {
            pthread_mutex_lock(&cache->mutex);
            err_keep(&cache->failed, rc);
            cache->failed_shard = shard;
            cache->failed_s = clock_now();
            pthread_mutex_unlock(&cache->mutex);
        }
    }
    close(lock);
    assert((rc == ERR_OK) == (hold->fd >= 0));
    return rc;
}
