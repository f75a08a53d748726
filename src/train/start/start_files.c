/* Checks the files of the data sets before training, each copy once, shared by
 * the ranks. How one shard is checked is src/data/mds/mds.c.
 *
 * Which ranks read one copy is found by what their index file is: path, inode,
 * size and times. Ranks with the same deal its shards out, one after the other in
 * turn. While they read they meet once a second, for a signal or a damaged file of
 * one must end the others' reading; a rank that is done keeps meeting until all
 * are, so that every meeting has all ranks in it. */
#include "src/train/start/run_data.h"
#include "src/train/start/start.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/lines.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/data/set/dataset.h"
#include "src/job/stop.h"

#define ROUND_S 1.0
#define BEAT_S 5.0

/* This rank's share of the shards: `first`, `first + ranks`, ... */
struct share {
    int64_t first, ranks;
};

struct watch {
    const struct run *run;
    double round_at; /* when the ranks last met */
    double beat_at;
    bool ended;   /* agreed: a failure, a signal, or all are done */
    bool stopped; /* agreed: by a signal */
    enum err rc;  /* of the meetings */
};

/* A node's ranks are those of its host name, if they are as many as they should
 * be; else a rank does not rely on another. */
static struct share find_share(const struct run *run,
                               const struct dataset_copy *all)
{
    const struct comm *comm = run->comm;
    const struct dataset_copy *own = &all[run->rank];
    struct share everywhere = { 0, 0 }, here = { 0, 0 };
    int neighbours = 0;
    for (int r = 0; r < run->ranks; r++) {
        bool same = memcmp(&all[r], own, sizeof *own) == 0;
        bool near = comm_same_host(comm, r, run->rank);
        everywhere.first += same && r < run->rank;
        everywhere.ranks += same;
        here.first += same && near && r < run->rank;
        here.ranks += same && near;
        neighbours += near;
    }
    if (everywhere.ranks == run->ranks)
        return everywhere;
    if (neighbours == comm_local_size(comm))
        return here;
    return (struct share){ 0, 1 };
}

static enum err agree_on_share(const struct run *run,
                               const struct dataset *data, struct share *out)
{
    enum err rc = ERR_OK;
    struct dataset_copy *all = NULL;
    rc = new_zeroed(&all, (size_t)run->ranks);
    if (rc == ERR_OK)
        rc = dataset_copy(data, &all[run->rank]);
    TRY_OUT(comm_agree(run->comm, rc));
    TRY_OUT(comm_gather_rows(run->comm, all, sizeof *all));
    *out = find_share(run, all);
out:
    free(all);
    return rc;
}

/* Rank 0's sign of life. What cannot be written here is an error as soon as
 * there are metrics to write. */
static void beat(struct watch *watch)
{
    char path[FSIO_PATH_MAX];
    int fd = -1;
    if (watch->run->rank != 0 || clock_now() - watch->beat_at < BEAT_S)
        return;
    watch->beat_at = clock_now();
    if (lines_open(watch->run->settings.run.dir, "metrics.jsonl", path, &fd) !=
        ERR_OK)
        return;
    (void)futimens(fd, NULL);
    close(fd);
}

/* All ranks meet. */
static enum err meet(struct watch *watch, bool failed, bool busy)
{
    enum { FAILED, STOP, BUSY, WORDS };
    int64_t words[WORDS] = { failed, stop_requested() != 0, busy };
    TRY(comm_all_reduce_i64(watch->run->comm, words, WORDS, COMM_MAX));
    watch->stopped = words[STOP] != 0 && words[BUSY] != 0;
    watch->ended = words[FAILED] != 0 || words[STOP] != 0 || words[BUSY] == 0;
    watch->round_at = clock_now();
    beat(watch);
    return ERR_OK;
}

static bool go_on(void *self)
{
    struct watch *watch = self;
    if (watch->rc == ERR_OK && !watch->ended &&
        (stop_requested() != 0 || clock_now() - watch->round_at >= ROUND_S))
        watch->rc = meet(watch, false, true);
    return watch->rc == ERR_OK && !watch->ended;
}

/* Look at all before reading any: that is quick. */
static enum err check_share(struct watch *watch, struct dataset *data,
                            struct share share, bool bytes)
{
    struct dataset_watch reading = { go_on, watch };
    assert(share.first >= 0 && share.first < share.ranks);
    int64_t shards = dataset_contents(data)->shards;
    for (int64_t s = share.first; s < shards && go_on(watch); s += share.ranks)
        TRY(dataset_look(data, s));
    if (!bytes)
        return ERR_OK;
    for (int64_t s = share.first; s < shards && go_on(watch); s += share.ranks)
        if (!dataset_shard_is_cached(data, s))
            TRY(dataset_verify_shard(data, s, &reading));
    return ERR_OK;
}

/* Whether the bytes are checked; the same on all ranks. */
static enum err settle_bytes(const struct run *run, const struct dataset *data,
                             struct share share, bool *bytes)
{
    enum data_verify how = run->settings.data.verify;
    const struct dataset_contents *has = dataset_contents(data);
    assert(share.ranks > 0 && share.ranks <= run->ranks);
    int64_t shards = (has->shards + share.ranks - 1) / share.ranks;
    int64_t most = shards * has->largest;
    TRY(comm_all_reduce_i64(run->comm, &most, 1, COMM_MAX));
    *bytes = how == VERIFY_BYTES ||
             (how == VERIFY_AUTO && most <= START_FILES_BYTES);
    if (run->rank != 0)
        return ERR_OK;
    int64_t limit = run->settings.data.cache_limit;
    if (dataset_is_cached(data))
        log_info("%s: shards that are fetched or unpacked are checked then, "
                 "those that the cache has already %s",
                 dataset_path(data),
                 how == VERIFY_SIZES ? "by their sizes (data.verify = sizes)"
                                     : "when they are first read");
    if (dataset_is_cached(data) && has->unchecked > 0)
        log_warn("%s: %lld of %lld shards have no checksum that is known here, "
                 "so that what comes damaged is trained on: tessera-data "
                 "adopt, where it lies, adds some",
                 dataset_path(data), (long long)has->unchecked,
                 (long long)has->shards);
    if (dataset_is_cached(data) && limit > 0 && limit < has->bytes)
        log_warn("%s: data.cache_limit = %lld is less than its %lld bytes, so "
                 "shards that are needed again are fetched again; the "
                 "canonical order draws every batch from all of them",
                 dataset_path(data), (long long)limit, (long long)has->bytes);
    if (dataset_is_cached(data))
        return ERR_OK;
    if (!*bytes)
        log_info("%s: the bytes of all %lld shards (%.1f GiB) are not checked "
                 "(data.verify = %s), only sizes: tessera-data verify does it",
                 dataset_path(data), (long long)has->shards,
                 (double)has->bytes / (1 << 30), data_verify_names[how]);
    else if (has->unchecked > 0)
        log_info("%s: %lld of %lld shards have no checksum that is known here",
                 dataset_path(data), (long long)has->unchecked,
                 (long long)has->shards);
    return ERR_OK;
}

static enum err verify_one(struct run *run, struct dataset *data)
{
    enum err rc = ERR_OK;
    double now = clock_now();
    bool bytes = false;
    struct share share = { 0, 1 };
    struct watch watch = { .run = run, .round_at = now, .beat_at = now };
    TRY(agree_on_share(run, data, &share));
    TRY(settle_bytes(run, data, share, &bytes));
    rc = check_share(&watch, data, share, bytes);
    while (watch.rc == ERR_OK && !watch.ended)
        watch.rc = meet(&watch, rc != ERR_OK, false);
    if (watch.rc != ERR_OK)
        return watch.rc;
    TRY(comm_agree(run->comm, rc));
    if (watch.stopped && run->rank == 0)
        log_info("%s: the checks end unfinished, by a signal",
                 dataset_path(data));
    return rc;
}

/* Rank 0: nothing is fetched or unpacked, but it was said where to. */
static void warn_of_no_cache(const struct run *run)
{
    const struct train_settings *s = &run->settings;
    bool cached = run->inputs.eval_data != NULL &&
                  dataset_is_cached(run->inputs.eval_data);
    bool given = s->data.cache[0] != '\0' || s->data.cache_limit > 0;
    for (int i = 0; i < run->inputs.train_count; i++)
        cached = cached || dataset_is_cached(run->inputs.train_data[i]);
    if (given && !cached && run->rank == 0)
        log_warn("data.cache and data.cache_limit change nothing: all shards "
                 "are files here, and not compressed");
}

enum err start_files(struct run *run)
{
    const struct run_data *sets = run->inputs.eval_sets;
    for (int i = 0; i < run->inputs.train_count; i++)
        TRY(verify_one(run, run->inputs.train_data[i]));
    for (int i = 0; sets != NULL && i < sets->count; i++)
        TRY(verify_one(run, sets->sets[i]));
    warn_of_no_cache(run);
    return ERR_OK;
}
