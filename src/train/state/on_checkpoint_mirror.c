/* Copies commits to an object store, checkpoint.mirror, behind the training, and
 * brings them back where the run directory has lost them.
 *
 * Each rank has a thread that puts its share of a committed folder's files; rank 0's
 * then waits until the store has all of them, and puts the manifest. Which step is
 * next rank 0 decides when the last one is done or given up: the newest commit, so
 * that an upload slower than the commits leaves out steps, and ends what it begins.
 * All hear it in the exchange that ends a step, as a number (ASK_MIRROR): twice the
 * step and one, and one less from a rank that could not put its share of it. Nothing waits
 * for any of this but the end of an attempt, for a while. */
#include "src/train/state/on_checkpoint_parts.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/files/ckpt_index.h"
#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/process.h"
#include "src/base/units.h"
#include "src/job/ledger.h"
#include "src/job/stop.h"
#include "src/mirror/mirror.h"
#include "src/train/start/start.h"

#define POLL_S 0.2    /* between looks for others' files; grows tenfold */
#define SIGNAL_S 30.0 /* that the end waits after a signal */

struct on_checkpoint_mirror {
    struct run *run;
    struct store *store;
    enum err (*may_commit)(void *arg);
    void *arg;
    bool looked;               /* for newer steps, at the start */
    bool fails;                /* the thread's last one has */
    struct mirror_known known; /* the thread's, rank 0's */
    struct mirror_owner owner;

    pthread_t thread;
    bool made;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    /* guarded; 0: none; the first two change in the training's thread alone */
    int64_t committed;      /* newest step in the run directory */
    int64_t begun;          /* last step that all were told to put */
    int64_t wanted, worked; /* the thread's step, and the last that has ended */
    int64_t failed;         /* here, or at another rank that has told so */
    double longest_s;
    bool quits;
};

static bool stays(struct on_checkpoint_mirror *m, int64_t step)
{
    pthread_mutex_lock(&m->mutex);
    bool goes_on = !m->quits && m->failed != step;
    pthread_mutex_unlock(&m->mutex);
    return goes_on;
}

/* --- in the thread --- */

/* Rank 0: until all files are there. A rank is given up when for the time of a file
 * no more have come. */
static enum err await_files(struct on_checkpoint_mirror *m,
                            const struct mirror_step *step)
{
    int count = 0, least = INT32_MAX;
    char file[CKPT_FILE_BYTES];
    double since = clock_now(), pause_s = POLL_S;
    double files = step->manifest->shard_count + 1;
    double most_s = 2 * (m->run->settings.data.remote_deadline +
                         (double)step->manifest->bytes / files / (1 << 20));
    for (;;) {
        TRY(mirror_missing(m->store, step, &count, file));
        if (count == 0)
            return ERR_OK;
        since = count < least ? clock_now() : since;
        least = count < least ? count : least;
        double until = clock_now() + pause_s;
        while (clock_now() < until && stays(m, step->step))
            clock_sleep(POLL_S / 4);
        if (!stays(m, step->step) || clock_now() - since > most_s)
            return err_set(ERR_IO,
                           "%d files are missing there, such as %s: the rank "
                           "that has it has said why, or hangs",
                           count, file);
        pause_s = fmin(pause_s * 1.5, POLL_S * 10);
    }
}

static enum err upload(struct on_checkpoint_mirror *m, int64_t number,
                       int64_t *bytes)
{
    enum err rc = ERR_OK;
    const struct train_settings *s = &m->run->settings;
    struct mirror_step step = { .step = -1 };
    char path[FSIO_PATH_MAX];
    TRY_OUT(ckpt_index_path(path, s->run.dir, number));
    TRY_OUT(mirror_step_of(path, &step));
    *bytes = step.manifest->bytes;
    if (m->run->rank == 0 && m->owner.name[0] == '\0')
        TRY_OUT(mirror_own(m->store, &step, s->run.dir, &m->owner));
    if (m->run->rank == 0)
        TRY_OUT(mirror_known_add(&m->known, &step, MIRROR_UNSEEN));
    TRY_OUT(mirror_files(m->store, &step, path, m->run->rank, m->run->ranks,
                         false));
    if (m->run->rank != 0)
        goto out;
    TRY_OUT(await_files(m, &step));
    TRY_OUT(m->may_commit(m->arg));
    TRY_OUT(mirror_still_own(m->store, s->run.dir, &m->owner));
    TRY_OUT(mirror_commit(m->store, &step));
    TRY_OUT(mirror_known_add(&m->known, &step, MIRROR_WHOLE));
    if (mirror_retain(m->store, &step, s->checkpoint.mirror_keep,
                      s->checkpoint.keep_every, m->looked, s->run.dir,
                      s->checkpoint.keep_best, &m->known) != ERR_OK)
        log_warn("checkpoint.mirror: old checkpoints stay: %s", err_text());
out:
    mirror_step_free(&step);
    return rc;
}

/* What has come of a step, for the log and, by rank 0, the ledger. */
static void tell(const struct on_checkpoint_mirror *m, int64_t step,
                 const struct err_kept *kept, int64_t bytes, double seconds)
{
    const struct run *run = m->run;
    char size[32];
    units_bytes((double)bytes, size, sizeof size);
    if (kept->code != ERR_OK && (run->rank == 0 || !m->fails))
        log_warn("checkpoint.mirror: step %lld is not there: %s; the run "
                 "directory has it, and the next commit is tried again",
                 (long long)step, kept->text);
    else if (kept->code == ERR_OK && run->rank == 0)
        log_info("step %lld is in %s: %s in %.2fs", (long long)step,
                 store_address(m->store), size, seconds);
    if (run->rank != 0)
        return;
    json_t *fields =
        kept->code == ERR_OK
            ? json_pack("{s:I, s:I, s:f}", "step", (json_int_t)step, "bytes",
                        (json_int_t)bytes, "seconds", seconds)
            : json_pack("{s:I, s:s, s:s}", "step", (json_int_t)step, "error",
                        err_name(kept->code), "reason", kept->text);
    if (ledger_append(run->settings.run.dir,
                      kept->code == ERR_OK ? "mirror" : "mirror-failed",
                      run->attempt, fields) != ERR_OK)
        log_warn("step %lld: no line in the ledger: %s", (long long)step,
                 err_text());
}

static void *work(void *arg)
{
    struct on_checkpoint_mirror *m = arg;
    pthread_mutex_lock(&m->mutex);
    while (!m->quits) {
        int64_t step = m->wanted, bytes = 0;
        struct err_kept kept;
        if (step == m->worked) {
            pthread_cond_wait(&m->wake, &m->mutex);
            continue;
        }
        pthread_mutex_unlock(&m->mutex);
        double begin = clock_now();
        err_keep(&kept, upload(m, step, &bytes));
        double seconds = clock_now() - begin;
        if (kept.code == ERR_OK || stays(m, -1))
            tell(m, step, &kept, bytes, seconds);
        m->fails = kept.code != ERR_OK;
        pthread_mutex_lock(&m->mutex);
        m->worked = step;
        if (kept.code != ERR_OK)
            m->failed = step;
        else
            m->longest_s = fmax(m->longest_s, seconds);
    }
    pthread_mutex_unlock(&m->mutex);
    return NULL;
}

/* --- in the training's thread --- */

enum err on_checkpoint_mirror_create(struct run *run,
                                     enum err (*may_commit)(void *arg),
                                     void *arg,
                                     struct on_checkpoint_mirror **out)
{
    enum err rc = ERR_OK;
    struct on_checkpoint_mirror *m = NULL;
    const struct train_settings *s = &run->settings;
    const struct store_options options = { .deadline_s =
                                               s->data.remote_deadline };
    *out = NULL;
    if (s->checkpoint.mirror[0] == '\0')
        return ERR_OK;
    TRY(new_zeroed(&m, 1));
    m->run = run;
    m->may_commit = may_commit;
    m->arg = arg;
    pthread_mutex_init(&m->mutex, NULL);
    pthread_cond_init(&m->wake, NULL);
    TRY_OUT(store_open(s->checkpoint.mirror, &options, &m->store));
    TRY_OUT(store_writable(m->store));
    m->made = process_thread(&m->thread, 0, work, m) == 0;
    if (!m->made)
        rc = err_set(ERR_MEMORY, "no thread for checkpoint.mirror");
out:
    if (rc != ERR_OK)
        on_checkpoint_mirror_destroy(m);
    else
        *out = m;
    return err_prefix(rc, "checkpoint.mirror");
}

void on_checkpoint_mirror_stop(struct on_checkpoint_mirror *m)
{
    if (m == NULL || m->store == NULL)
        return;
    pthread_mutex_lock(&m->mutex);
    m->quits = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->mutex);
    store_stop(m->store, true);
}

void on_checkpoint_mirror_destroy(struct on_checkpoint_mirror *m)
{
    if (m == NULL)
        return;
    on_checkpoint_mirror_stop(m);
    if (m->made)
        pthread_join(m->thread, NULL);
    store_close(m->store);
    mirror_known_free(&m->known);
    store_names_free(&m->owner.before);
    pthread_cond_destroy(&m->wake);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}

void on_checkpoint_mirror_committed(struct on_checkpoint_mirror *m,
                                    int64_t step)
{
    if (m == NULL)
        return;
    pthread_mutex_lock(&m->mutex);
    m->committed = step > 0 ? step : 0;
    pthread_mutex_unlock(&m->mutex);
}

int64_t on_checkpoint_mirror_spared(struct on_checkpoint_mirror *m)
{
    if (m == NULL)
        return 0;
    pthread_mutex_lock(&m->mutex);
    int64_t step = m->wanted != m->worked    ? m->wanted
                   : m->committed > m->begun ? m->committed
                                             : 0;
    pthread_mutex_unlock(&m->mutex);
    return step;
}

/* Whether the thread has ended what it was told. */
static bool is_idle(struct on_checkpoint_mirror *m)
{
    pthread_mutex_lock(&m->mutex);
    bool idle = m->wanted == m->worked;
    pthread_mutex_unlock(&m->mutex);
    return idle;
}

void on_checkpoint_mirror_ask(struct on_checkpoint_mirror *m, struct asks *asks)
{
    if (m == NULL)
        return;
    bool idle = is_idle(m);
    pthread_mutex_lock(&m->mutex);
    if (m->begun > 0 && m->failed == m->begun)
        events_ask(asks, ASK_MIRROR, 2 * m->begun);
    asks->end_s +=
        fmin(2 * m->longest_s, m->run->settings.checkpoint.mirror_wait_s);
    pthread_mutex_unlock(&m->mutex);
    if (m->run->rank == 0 && idle && m->committed > m->begun)
        events_ask(asks, ASK_MIRROR, 2 * m->committed + 1);
}

void on_checkpoint_mirror_hear(struct on_checkpoint_mirror *m, int64_t agreed)
{
    if (m == NULL || agreed < 2)
        return;
    pthread_mutex_lock(&m->mutex);
    if (agreed % 2 == 0) {
        m->failed = agreed / 2;
    } else {
        m->begun = m->wanted = agreed / 2;
        m->failed = m->worked = 0;
        pthread_cond_signal(&m->wake);
    }
    pthread_mutex_unlock(&m->mutex);
}

/* Rank 0: what the newest has come to. */
static bool is_settled(struct on_checkpoint_mirror *m, bool *failed)
{
    pthread_mutex_lock(&m->mutex);
    bool settled = m->wanted == m->worked && m->begun == m->committed;
    *failed = settled && m->begun > 0 && m->failed == m->begun;
    pthread_mutex_unlock(&m->mutex);
    return settled;
}

/* Seconds that it is waited for. */
static double wait_most_s(struct on_checkpoint_mirror *m)
{
    int now = m->run->now.stop_signal;
    int reason = now != 0 ? now : stop_requested();
    double least_s = reason != 0 ? SIGNAL_S : INFINITY;
    pthread_mutex_lock(&m->mutex);
    if (reason == STOP_BY_TIME)
        least_s = fmax(SIGNAL_S, 2 * m->longest_s);
    pthread_mutex_unlock(&m->mutex);
    return fmin(m->run->settings.checkpoint.mirror_wait_s, least_s);
}

/* The newest, which no commit will follow, is tried twice, as the commit itself. */
enum err on_checkpoint_mirror_finish(struct on_checkpoint_mirror *m)
{
    double begin = clock_now();
    bool failed = false, again = false;
    if (m == NULL)
        return ERR_OK;
    for (int64_t say[2] = { 0, 1 }; say[1] != 0;) {
        struct asks asks = { 0 };
        on_checkpoint_mirror_ask(m, &asks);
        if (m->run->rank != 0)
            say[1] = 0;
        else if (!is_settled(m, &failed))
            say[1] = clock_now() - begin <= wait_most_s(m);
        else
            say[1] = failed && !again && stop_requested() == 0;
        if (m->run->rank == 0 && failed && say[1] != 0) {
            asks.of[ASK_MIRROR] = 2 * m->begun + 1;
            again = true;
        }
        say[0] = asks.of[ASK_MIRROR];
        TRY(comm_all_reduce_i64(m->run->comm, say, 2, COMM_MAX));
        on_checkpoint_mirror_hear(m, say[0]);
        for (double end = clock_now() + POLL_S;
             say[1] != 0 && clock_now() < end && !is_idle(m);)
            clock_sleep(POLL_S / 20);
    }
    if (is_settled(m, &failed) && !failed)
        m->run->mirrored = m->begun;
    if (m->run->rank == 0 && !is_idle(m))
        log_warn("checkpoint.mirror: step %lld is not there after %.0f s, and "
                 "is not waited for: the run directory has it, and the next "
                 "attempt goes on with it",
                 (long long)m->committed, clock_now() - begin);
    return ERR_OK;
}

/* --- at the start --- */

struct fetch {
    struct on_checkpoint_mirror *m;
    struct store *store; /* which a signal ends */
    struct found {
        int64_t here; /* newest step of the run directory; -1: none */
        int64_t step; /* the newest there, and below the one before; -1: none */
        char folder[64], tmp[FSIO_PATH_MAX];
    } found;
};

/* Rank 0: what is newer there than what is here, and a folder with its manifest. */
static enum err look(void *arg)
{
    const struct on_checkpoint_mirror *m = ((struct fetch *)arg)->m;
    struct store *store = ((struct fetch *)arg)->store;
    struct found *out = &((struct fetch *)arg)->found;
    const char *dir = m->run->settings.run.dir;
    struct mirror_step newest;
    int64_t below = out->step;
    char uuid[CKPT_UUID_BYTES], name[40], path[FSIO_PATH_MAX];
    *out = (struct found){ .here = -1, .step = -1 };
    enum err rc = ckpt_index_newest(path, dir);
    if (rc == ERR_OK)
        out->here = ckpt_manifest_step_of(path);
    else if (rc != ERR_CHECKPOINT)
        return rc;
    TRY(ckpt_index_uuid_read(dir, uuid));
    TRY(mirror_newest(store, out->here, below, uuid, &newest));
    out->step = newest.step;
    if (newest.step < 0)
        return ERR_OK;
    memcpy(out->folder, newest.folder, sizeof out->folder);
    snprintf(name, sizeof name, "mirror.%d", m->run->attempt);
    log_info("the run directory has %s: step %lld comes from %s/%s",
             out->here < 0 ? "no checkpoint" : "an older checkpoint",
             (long long)newest.step, store_address(m->store), newest.folder);
    TRY(ckpt_index_tmp_path(out->tmp, dir, newest.step, name));
    TRY(ckpt_index_begin(dir, out->tmp, name));
    return mirror_get_manifest(store, newest.folder, out->tmp);
}

/* Each rank: its share. */
static enum err get(void *arg)
{
    const struct fetch *f = arg;
    const struct run *run = f->m->run;
    struct mirror_step step;
    TRY(mirror_step_of(f->found.tmp, &step));
    enum err rc =
        strcmp(step.folder, f->found.folder) == 0
            ? mirror_files(f->store, &step, f->found.tmp, run->rank, run->ranks,
                           true)
            : err_set(ERR_CHECKPOINT, "%s/%s holds the manifest of %s",
                      store_address(f->m->store), f->found.folder, step.folder);
    mirror_step_free(&step);
    return rc;
}

/* One checkpoint. Whoever waits hears that others are at it, however long. */
static enum err fetch(struct fetch *f)
{
    struct comm *comm = f->m->run->comm;
    const char *dir = f->m->run->settings.run.dir;
    struct found *found = &f->found;
    struct err_kept kept;
    enum err rc = start_alone(comm, look, f);
    if (rc != ERR_COMM)
        TRY(comm_broadcast(comm, found, sizeof *found, 0));
    if (rc == ERR_OK && found->step >= 0)
        rc = start_each(comm, get, f);
    if (f->m->run->rank == 0 && found->tmp[0] != '\0') {
        if (rc == ERR_OK)
            rc = ckpt_index_commit(dir, found->step, found->tmp, true, NULL);
        err_keep(&kept, rc);
        if (rc != ERR_OK)
            (void)ckpt_index_discard(dir, found->tmp);
        err_again(&kept);
    }
    return comm_agree(comm, rc);
}

enum err on_checkpoint_mirror_fetch(struct on_checkpoint_mirror *m)
{
    struct fetch f = { .m = m, .found.step = INT64_MAX };
    struct err_kept bad = { ERR_OK, "" };
    enum err rc;
    if (m == NULL)
        return ERR_OK;
    m->looked = m->run->position.came_back.asked;
    if (m->looked)
        return ERR_OK;
    const struct store_options options = {
        m->run->settings.data.remote_deadline, 0.0, stop_is_requested
    };
    TRY(comm_agree(m->run->comm,
                   store_open(store_address(m->store), &options, &f.store)));
    while (((rc = fetch(&f)) == ERR_DATA || rc == ERR_CHECKPOINT) &&
           f.found.step >= 0) {
        err_keep(&bad, rc);
        if (m->run->rank == 0)
            log_warn("checkpoint.mirror: step %lld is passed over: %s",
                     (long long)f.found.step, bad.text);
    }
    if (rc == ERR_OK && f.found.step < 0)
        rc = err_again(&bad);
    store_close(f.store);
    m->looked = rc == ERR_OK;
    if (rc == ERR_OK || rc == ERR_COMM || f.found.here < 0)
        return err_prefix(rc, "checkpoint.mirror");
    if (m->run->rank == 0)
        log_warn("checkpoint.mirror: what it has newer than step %lld, from "
                 "which the run goes on, does not come: %s",
                 (long long)f.found.here, err_text());
    return ERR_OK;
}
