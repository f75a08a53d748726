/* Makes, joins and leaves the folder of a cache, and fetches its index.
 *
 * FOLDER/ADDRESS-HASH has index.json, tessera.json, shards as NUMBER_NAME and
 *     users     locked shared by each process that uses it, alone by the first
 *               one while it fetches the index
 *     locks     one byte for each shard, locked by who fetches it, one for room
 *     boot      when the machine started
 *     verified  one byte for each shard, 1: since the first of its users came
 *     NUMBER_NAME.part, .zip   what is being fetched; .room keeps its space
 *
 * A shard file is locked shared while it is held.
 *
 * Locks of files are all that processes agree by: the kernel lets them go
 * however a process ends, so nobody is in charge, and nothing has to be mended
 * before the next one goes on. Who gets `users` alone is the first process or
 * the last one. Nobody else relies on the folder then: the first may fetch the
 * index anew and throw shards away, the last may remove all of it. Between
 * open() and flock() the folder may have gone, so whoever has a lock looks
 * whether its file still has its name. */
#include "src/data/remote/cache.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/digest.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/data/remote/cache_impl.h"

#define CACHE_NAME "tessera-cache-"
#define CACHE_BOOT "/proc/sys/kernel/random/boot_id"
#define CACHE_HEDGE 3.0 /* store_options */
#define CACHE_STALE_S 3600.0

const struct cache_options cache_defaults = {
    .folder = "", .limit = 0, .deadline_s = 300.0, .threads = 4
};

static enum err cache_default_root(char root[FSIO_PATH_MAX])
{
    const char *base = getenv("TMPDIR"), *job = getenv("SLURM_JOB_ID");
    bool is_job = job != NULL && job[0] != '\0' &&
                  strspn(job, "0123456789_") == strlen(job);
    return fsio_path(root, "%s/" CACHE_NAME "%lu%s%s",
                     base != NULL && base[0] == '/' ? base : "/tmp",
                     (unsigned long)geteuid(), is_job ? "-" : "",
                     is_job ? job : "");
}

/* What is asked for; what it is comes from cache_enter(). */
static enum err cache_name(struct cache *cache, const char *address)
{
    char hex[65], here[FSIO_PATH_MAX], what[3 * FSIO_PATH_MAX];
    cache->temporary = cache->options.folder[0] == '\0';
    if (cache->temporary)
        TRY(cache_default_root(cache->wanted));
    else if (cache->options.folder[0] == '/')
        TRY(fsio_path(cache->wanted, "%s", cache->options.folder));
    else if (getcwd(here, sizeof here) == NULL)
        return err_errno("getcwd");
    else
        TRY(fsio_path(cache->wanted, "%s/%s", here, cache->options.folder));
    const char *of = cache->options.of, *service = store_service(cache->store);
    snprintf(what, sizeof what, "%s%s%s%s%s", address, of != NULL ? "\n" : "",
             of != NULL ? of : "", service[0] != '\0' ? "\n\n" : "", service);
    TRY(digest_bytes(what, strlen(what), hex));
    snprintf(cache->name, sizeof cache->name, "%.16s", hex);
    return ERR_OK;
}

static void cache_go_out(struct cache *cache)
{
    own_close(&cache->in);
    own_close(&cache->root);
}

/* Folders of the user's own, into which nobody else can put anything. The last
 * user may have removed them meanwhile. */
static enum err cache_enter(struct cache *cache)
{
    cache_go_out(cache);
    enum err rc = own_open(cache->wanted, &cache->root);
    if (rc == ERR_OK)
        rc = own_open_in(&cache->root, cache->name, &cache->in);
    if (rc == ERR_SPACE)
        return err_prefix(rc, "data.cache");
    TRY(rc);
    if (cache->root.strangers > 0 && !cache->told)
        log_warn("%s: the name is not ours: %s is used", cache->wanted,
                 cache->root.path);
    cache->told = true;
    cache->folder = cache->in.at;
    return ERR_OK;
}

static void cache_remove(const char *folder, const char *name)
{
    char path[FSIO_PATH_MAX];
    if (fsio_path(path, "%s/%s", folder, name) == ERR_OK)
        unlink(path);
}

/* Remove shards, with their second names, what is said of them, and what is not whole,
 * or only the latter. */
static void cache_sweep(const struct cache *cache, bool shards)
{
    DIR *dir = opendir(cache->folder);
    struct dirent *entry = NULL;
    char path[FSIO_PATH_MAX];
    if (shards && fsio_path(path, "%s/" CACHE_NAMES, cache->folder) == ERR_OK)
        (void)fsio_remove_tree(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;
        const char *end = strrchr(name, '.');
        bool part = end != NULL &&
                    (strcmp(end, ".part") == 0 || strcmp(end, ".zip") == 0 ||
                     strcmp(end, ".second") == 0 || strcmp(end, ".room") == 0);
        bool says = end != NULL && strcmp(end, ".json") == 0;
        if (part || (shards && (says || (name[0] >= '0' && name[0] <= '9'))))
            cache_remove(cache->folder, name);
    }
    if (dir != NULL)
        closedir(dir);
}

/* Whether the file has these bytes. */
static bool cache_has(const struct cache *cache, const char *name,
                      const char *text, size_t bytes)
{
    char path[FSIO_PATH_MAX], *data = NULL;
    size_t got = 0;
    bool same = fsio_path(path, "%s/%s", cache->folder, name) == ERR_OK &&
                fsio_exists(path) &&
                fsio_read_file(path, STORE_BYTES_MAX, &data, &got) == ERR_OK &&
                got == bytes && memcmp(data, text, bytes) == 0;
    free(data);
    return same;
}

/* What was written before the machine started may have the right length and no
 * contents. */
static enum err cache_check_boot(const struct cache *cache)
{
    char path[FSIO_PATH_MAX], *boot = NULL;
    size_t bytes = 0;
    TRY(fsio_read_file(CACHE_BOOT, 4096, &boot, &bytes));
    enum err rc = ERR_OK;
    if (!cache_has(cache, "boot", boot, bytes)) {
        cache_sweep(cache, true);
        rc = fsio_path(path, "%s/boot", cache->folder);
        if (rc == ERR_OK)
            rc = fsio_write_hint(path, boot, bytes);
    }
    free(boot);
    return rc;
}

/* One file of the address as it is now. Shards stay if it is the same index.
 */
static enum err cache_renew(struct cache *cache, const char *name,
                            bool is_index)
{
    char path[FSIO_PATH_MAX], new[FSIO_PATH_MAX], *data = NULL;
    int64_t bytes = 0;
    size_t read = 0;
    TRY(fsio_path(path, "%s/%s", cache->folder, name));
    TRY(fsio_path(new, "%s.new", path));
    enum err rc =
        is_index && cache->options.index != NULL
            ? cache->options.index(cache->options.arg, cache->store, new)
            : store_get(cache->store, name, new, -1, &bytes);
    if (rc == ERR_OK && is_index)
        rc = fsio_read_file(new, STORE_BYTES_MAX, &data, &read);
    if (rc == ERR_OK && is_index && !cache_has(cache, name, data, read))
        cache_sweep(cache, true);
    free(data);
    if (rc == ERR_OK && rename(new, path) != 0)
        rc = err_errno("%s: rename", new);
    if (rc != ERR_OK)
        unlink(new);
    return rc;
}

static bool cache_is_there(const struct cache *cache, const char *const *names,
                           int count)
{
    char path[FSIO_PATH_MAX];
    for (int n = 0; n < count; n++)
        if (fsio_path(path, "%s/%s", cache->folder, names[n]) != ERR_OK ||
            !fsio_exists(path))
            return false;
    return true;
}

/* By the first process: what the address has now, nothing of it verified. */
static enum err cache_refresh(struct cache *cache, const char *const *names,
                              int needed, int count)
{
    enum err rc = ERR_OK;
    if (ftruncate(cache->verified, 0) != 0)
        return err_errno("%s/verified: truncate", cache->folder);
    TRY(cache_check_boot(cache));
    cache_sweep(cache, false);
    bool there =
        cache->options.index == NULL && cache_is_there(cache, names, needed);
    cache_ask_begin(cache, there);
    int n = 0;
    for (; n < count && rc == ERR_OK; n++) {
        if (n > 0)
            cache_remove(cache->folder, names[n]);
        rc = cache_renew(cache, names[n], n == 0);
        cache_ask_begin(cache, false);
        if (n == 0 && there && cache_ask_away(cache, rc))
            return ERR_OK;
        if (rc == ERR_DATA && n >= needed)
            rc = ERR_OK;
    }
    /* where the first was refused, all that is there is of the one before */
    if (rc != ERR_OK && !(there && n == 1))
        cache_remove(cache->folder, names[0]);
    return rc;
}

/* The file that was opened still has its name. */
static bool cache_is_linked(int fd, const char *path)
{
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && lstat(path, &named) == 0 &&
           opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

static enum err cache_open_verified(struct cache *cache)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s/verified", cache->folder));
    fsio_close(cache->verified);
    cache->verified =
        open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return cache->verified >= 0 ? ERR_OK : err_errno("%s: open", path);
}

/* *done: this process is one of the users, and the index is there; *asked: it is
 * what the address has. */
static enum err cache_join(struct cache *cache, const char *const *names,
                           int needed, int count, bool *asked, bool *done)
{
    char path[FSIO_PATH_MAX];
    TRY(cache_enter(cache));
    if (cache->in.fd < 0)
        return ERR_OK;
    TRY(fsio_path(path, "%s/users", cache->folder));
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == ENOENT)
        return ERR_OK; /* the last user has just removed the folder */
    if (fd < 0)
        return err_errno("%s: open", path);
    enum err rc = ERR_OK;
    bool first = flock(fd, LOCK_EX | LOCK_NB) == 0;
    bool joined = first || flock(fd, LOCK_SH | LOCK_NB) == 0;
    joined = joined && cache_is_linked(fd, path);
    if (joined)
        rc = cache_open_verified(cache);
    if (joined && first && rc == ERR_OK) {
        rc = cache_refresh(cache, names, needed, count);
        /* the lone lock is given up before the shared one is there: somebody
         * may slip in between, so all is looked at once more below */
        joined = rc == ERR_OK && flock(fd, LOCK_SH) == 0;
        *asked = true;
    }
    if (rc != ERR_OK) {
        cache->users = fd; /* who leaves removes what it has made */
        return rc;
    }
    *done = joined && cache_is_linked(fd, path) &&
            cache_is_there(cache, names, needed);
    if (!*done) {
        close(fd);
        return ERR_OK;
    }
    cache->users = fd;
    (void)futimens(fd, NULL); /* how old an abandoned cache is: its last user */
    return ERR_OK;
}

/* Caches that nobody has, and for an hour nobody had, `but` for one. */
static void cache_sweep_root(int root, const char *but)
{
    char users[NAME_MAX + 16];
    struct stat status;
    const struct dirent *set;
    DIR *sets = fdopendir(root);
    while (sets != NULL && (set = readdir(sets)) != NULL) {
        if (set->d_name[0] == '.' || strcmp(set->d_name, but) == 0)
            continue;
        snprintf(users, sizeof users, "%s/users", set->d_name);
        int fd = openat(root, users, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
            fstat(fd, &status) == 0 &&
            clock_wall() - (double)status.st_mtime > CACHE_STALE_S)
            (void)own_remove(root, "a cache", set->d_name);
        fsio_close(fd);
    }
    if (sets != NULL)
        closedir(sets);
}

/* Caches of jobs of this user that were killed. Only where they are named by
 * us. */
static void cache_sweep_stale(const struct cache *cache)
{
    char mine[64], parent[FSIO_PATH_MAX];
    struct stat status, own;
    const struct dirent *entry;
    snprintf(mine, sizeof mine, CACHE_NAME "%lu-", (unsigned long)geteuid());
    int here = fcntl(cache->root.fd, F_DUPFD_CLOEXEC, 0);
    if (here >= 0)
        cache_sweep_root(here, cache->name);
    if (fsio_parent(cache->root.path, parent) != ERR_OK ||
        fstat(cache->root.fd, &own) != 0)
        return;
    DIR *dir = opendir(parent);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, mine, strlen(mine)) != 0)
            continue;
        int fd = openat(dirfd(dir), entry->d_name,
                        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (fstat(fd, &status) != 0 || status.st_uid != geteuid() ||
            (status.st_mode & (S_IWGRP | S_IWOTH)) != 0 ||
            status.st_ino == own.st_ino) {
            close(fd);
            continue;
        }
        cache_sweep_root(fd, "");
        /* if it is empty now */
        (void)unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
    }
    if (dir != NULL)
        closedir(dir);
}

enum err cache_open(const char *address, const struct cache_options *options,
                    const char *const *names, int needed, int count,
                    struct cache **out)
{
    assert(needed > 0 && needed <= count && options->threads > 0);
    enum err rc = ERR_OK;
    bool done = false, asked = options->asked || options->index != NULL;
    double begin = clock_now();
    struct store_options store = { options->deadline_s, CACHE_HEDGE,
                                   options->ended };
    struct cache *cache = NULL;
    TRY(new_zeroed(&cache, 1));
    cache->users = cache->verified = cache->root.fd = cache->in.fd = -1;
    cache->options = *options;
    cache->failed_shard = -1;
    pthread_mutex_init(&cache->mutex, NULL);
    TRY_OUT(store_open(address, &store, &cache->store));
    TRY_OUT(cache_name(cache, address));
    TRY_OUT(cache_enter(cache));
    if (cache->temporary)
        cache_sweep_stale(cache);
    /* who is not the first waits until the first has the index, or is gone */
    while (!done) {
        TRY_OUT(cache_join(cache, names, needed, count, &asked, &done));
        if (!done && clock_now() - begin > options->deadline_s)
            TRY_OUT(err_set(ERR_IO,
                            "%s/%s: another process of this node has been "
                            "fetching it for %.0f s (data.remote_deadline)",
                            address, names[0], clock_now() - begin));
        if (done)
            break;
        clock_sleep(CACHE_POLL_S);
        asked = true; /* by who had the lone lock meanwhile */
    }
    if (!asked)
        rc = cache_ask(cache, names[0]);
out:
    return new_or_none(rc, cache, out, cache_close);
}

/* Its name in what it lies in, if that still is its name. */
static void cache_remove_root(const struct cache *cache)
{
    struct stat mine, named;
    char parent[FSIO_PATH_MAX];
    const char *name = strrchr(cache->root.path, '/');
    if (fsio_parent(cache->root.path, parent) != ERR_OK)
        return;
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && fstat(cache->root.fd, &mine) == 0 &&
        fstatat(fd, name + 1, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        mine.st_ino == named.st_ino && mine.st_dev == named.st_dev)
        (void)unlinkat(fd, name + 1, AT_REMOVEDIR);
    fsio_close(fd);
}

/* The last user of a temporary cache removes it. */
static void cache_leave(struct cache *cache)
{
    if (cache->users < 0)
        return;
    (void)futimens(cache->users, NULL);
    if (cache->temporary && flock(cache->users, LOCK_EX | LOCK_NB) == 0) {
        (void)own_remove(cache->root.fd, cache->root.path, cache->name);
        /* another address may have a cache there */
        cache_remove_root(cache);
    }
    close(cache->users);
}

void cache_end(struct cache *cache)
{
    cache_stop(cache, true);
    cache_ahead_destroy(cache);
    cache->list = (struct cache_list){ 0 };
}

void cache_close(struct cache *cache)
{
    if (cache == NULL)
        return;
    if (cache->store != NULL)
        cache_end(cache);
    cache_leave(cache);
    fsio_close(cache->verified);
    cache_go_out(cache);
    store_close(cache->store);
    pthread_mutex_destroy(&cache->mutex);
    free(cache);
}

const char *cache_folder(const struct cache *cache)
{
    return cache->folder;
}

const char *cache_place(const struct cache *cache)
{
    return cache->in.path;
}

void cache_stop(struct cache *cache, bool stop)
{
    atomic_store(&cache->stopped, stop);
    cache->stops += stop;
    store_stop(cache->store, stop);
}

enum err cache_describe(struct cache *cache, const struct cache_list *list)
{
    assert(list->shard != NULL && list->count >= 0);
    cache->list = *list;
    for (int64_t s = 0; s < list->count; s++) {
        int64_t bytes = cache_room_bytes(cache, s);
        if (bytes > cache->largest)
            cache->largest = bytes;
    }
    if (cache->options.limit == 0 || cache->largest <= cache->options.limit)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "data.cache_limit = %lld is less than the largest shard of "
                   "%s needs, %lld bytes; give that much for each rank of a "
                   "node at least",
                   (long long)cache->options.limit, store_address(cache->store),
                   (long long)cache->largest);
}

int64_t cache_open_max(const struct cache *cache, int64_t most)
{
    /* files that are open although evicted take space that no listing shows: an
     * eighth of the limit for them */
    int64_t fit = cache->options.limit / (8 * (cache->largest + 1));
    return cache->options.limit == 0 || fit > most ? most : fit < 1 ? 1 : fit;
}
