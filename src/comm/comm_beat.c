/* Signs of life: who is gone, stopped or lost in its work is named in seconds, whatever
 * the others do meanwhile and however long their steps are.
 *
 * A deadline has to be as long as the longest thing that any rank may do while the others
 * wait: minutes, since storage may stand. But that is the patience with the rank's
 * work, not with its process. So each has a thread that sends the next rank a word now and
 * then, which costs two messages a second at any number of ranks; who hears nothing from
 * the one before it for lost_s tells all. And the rank says when its main thread begins
 * what can't take long (comm_work()): its own thread looks whether it goes on, and tells
 * on it otherwise. A wait for others is never held against a rank.
 *
 * Time in which this process did not run does not count: neither the silence that it did
 * not hear nor the work that it did not do. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/process.h"
#include "src/comm/comm_impl.h"

#define TICK_S 0.1  /* of the thread */
#define SAY_S 0.5   /* between two signs of life */
#define LEAVE_S 5.0 /* for the main thread, until it has seen a verdict */
/* This process did not run: a thread that sleeps a tick is not that late. */
#define STOPPED_S 1.0
#define STACK_BYTES ((size_t)256 << 10)

struct comm_beat {
    struct comm *words; /* a duplicate on which nothing but words travel */
    double lost_s;
    double heard_s, said_s, tick_s; /* the thread's */
    bool left;                      /* the rank before this one */
    bool runs;
    pthread_t thread;
    atomic_bool ends;
    pthread_mutex_t mutex; /* of the text, which stays when it is sealed */
    atomic_bool sealed;
    char text[COMM_TEXT_BYTES]; /* the verdict */
    atomic_bool known;          /* to the main thread */
    /* What the main thread is at. */
    atomic_int waits;    /* for others, one in another */
    double wait_since_s; /* the main thread's, as the sum is */
    double waited_s;
    _Atomic double since_s, limit_s;
    _Atomic int64_t step;
};

/* The first verdict counts. */
static bool seal(struct comm_beat *beat, const char *text)
{
    pthread_mutex_lock(&beat->mutex);
    bool first = !atomic_load(&beat->sealed);
    if (first)
        snprintf(beat->text, sizeof beat->text, "%s", text);
    atomic_store(&beat->sealed, true);
    pthread_mutex_unlock(&beat->mutex);
    return first;
}

static void tell(struct comm_beat *beat, const char *text)
{
    struct comm *words = beat->words;
    if (!seal(beat, text))
        return;
    snprintf(words->failure, sizeof words->failure, "%s", text);
    comm_roll_tell(words);
}

static void hear(struct comm_beat *beat)
{
    struct comm *words = beat->words;
    char text[COMM_TEXT_BYTES];
    enum comm_word word;
    int peer, number;
    while (words->transport->hear(words, &peer, &word, &number, text)) {
        if (word == COMM_VERDICT)
            (void)seal(beat, text);
        else if (peer == comm_peer(words, -1)) {
            beat->heard_s = beat->tick_s;
            beat->left |= word == COMM_BEHIND;
        }
    }
}

/* The rank before this one. */
static void judge_peer(struct comm_beat *beat)
{
    const struct comm *words = beat->words;
    char text[COMM_TEXT_BYTES];
    int peer = comm_peer(words, -1);
    if (beat->left || beat->tick_s - beat->heard_s < beat->lost_s)
        return;
    snprintf(text, sizeof text,
             "no answer for %.3g s from rank %d (%s), whatever it is at; look "
             "there for a dead or stopped process, or a node off the network",
             beat->lost_s, peer, words->hosts[peer]);
    tell(beat, text);
}

static void judge_work(struct comm_beat *beat)
{
    const struct comm *words = beat->words;
    char text[COMM_TEXT_BYTES];
    double limit_s = atomic_load(&beat->limit_s);
    double work_s = beat->tick_s - atomic_load(&beat->since_s);
    if (limit_s <= 0.0 || atomic_load(&beat->waits) > 0 || work_s < limit_s)
        return;
    snprintf(text, sizeof text,
             "no answer from rank %d (%s), which has computed step %lld for "
             "%.3g s without a pause; the steps before allow it %.3g s; look "
             "there for a dead or hanging process",
             words->rank, words->hosts[words->rank],
             (long long)atomic_load(&beat->step), work_s, limit_s);
    tell(beat, text);
}

static void tick(struct comm_beat *beat)
{
    struct comm *words = beat->words;
    double now = clock_now(), gap_s = now - beat->tick_s;
    if (gap_s > STOPPED_S) {
        beat->heard_s += gap_s;
        atomic_store(&beat->since_s, now);
    }
    beat->tick_s = now;
    if (now - beat->said_s >= SAY_S) {
        beat->said_s = now;
        words->transport->say(words, comm_peer(words, 1), COMM_HERE, 0);
    }
    hear(beat);
    judge_peer(beat);
    judge_work(beat);
}

/* The transport does not come back from a call. If that is not the main thread's, this
 * hears of it at its next one, and leaves with the reason; else nobody is left to. */
static void *leave(struct comm_beat *beat)
{
    (void)seal(beat, err_text());
    for (int i = 0; i < (int)(LEAVE_S / TICK_S); i++) {
        if (atomic_load(&beat->known) || atomic_load(&beat->ends))
            return NULL;
        clock_sleep(TICK_S);
    }
    log_error("%s", beat->text);
    _Exit(err_exit_code(ERR_COMM));
}

static void *beat_main(void *arg)
{
    struct comm_beat *beat = arg;
    while (!atomic_load(&beat->ends)) {
        if (beat->words->transport->held(beat->lost_s) != ERR_OK)
            return leave(beat);
        tick(beat);
        clock_sleep(TICK_S);
    }
    beat->words->transport->say(beat->words, comm_peer(beat->words, 1),
                                COMM_BEHIND, 0);
    return NULL;
}

/* Where there is no thread the verdicts of roll calls are kept all the same. */
static enum err start(struct comm *comm, struct comm_beat *beat)
{
    enum err rc = ERR_OK;
    beat->heard_s = beat->tick_s = clock_now();
    if (process_thread(&beat->thread, STACK_BYTES, beat_main, beat) != 0)
        rc = err_set(ERR_MEMORY, "there is no thread for signs of life");
    beat->runs = rc == ERR_OK;
    return comm_agree(comm, rc);
}

enum err comm_beat_start(struct comm *comm, double lost_s)
{
    struct comm_beat *beat = NULL;
    assert(comm->parent == NULL && comm->duplicates == 0);
    if (comm->size == 1)
        return ERR_OK;
    TRY(comm_agree(comm, new_zeroed(&beat, 1)));
    pthread_mutex_init(&beat->mutex, NULL);
    beat->lost_s = lost_s;
    comm->beat = beat;
    if (lost_s <= 0.0)
        return ERR_OK;
    TRY(comm_duplicate_words(comm, &beat->words));
    return start(comm, beat);
}

void comm_beat_stop(struct comm *comm)
{
    struct comm_beat *beat = comm->beat;
    if (beat == NULL || comm->parent != NULL)
        return;
    atomic_store(&beat->ends, true);
    /* a thread that does not come back stays until the process ends */
    if (beat->runs && beat->words->transport->held(beat->lost_s) != ERR_OK)
        return;
    if (beat->runs)
        pthread_join(beat->thread, NULL);
    comm_destroy(beat->words);
    pthread_mutex_destroy(&beat->mutex);
    free(beat);
    comm->beat = NULL;
}

void comm_beat_seal(struct comm *comm)
{
    if (comm->beat == NULL)
        return;
    (void)seal(comm->beat, comm->failure);
    atomic_store(&comm->beat->known, true);
}

bool comm_told(struct comm *comm)
{
    struct comm_beat *beat = comm->beat;
    if (comm->told || beat == NULL || !atomic_load(&beat->sealed))
        return comm->told;
    atomic_store(&beat->known, true);
    if (!comm->broken)
        snprintf(comm->failure, sizeof comm->failure, "%s", beat->text);
    comm->told_s = clock_now();
    comm->broken = comm->told = true;
    return true;
}

void comm_work(struct comm *comm, int64_t step, double limit_s)
{
    struct comm_beat *beat = comm->beat;
    if (beat == NULL)
        return;
    atomic_store(&beat->limit_s, 0.0);
    atomic_store(&beat->step, step);
    atomic_store(&beat->since_s, clock_now());
    atomic_store(&beat->limit_s, limit_s);
}

void comm_beat_waits(struct comm *comm, bool begins)
{
    struct comm_beat *beat = comm->beat;
    if (beat == NULL)
        return;
    double now = clock_now();
    if (!begins)
        atomic_store(&beat->since_s, now);
    int waits = atomic_fetch_add(&beat->waits, begins ? 1 : -1);
    if (begins && waits == 0)
        beat->wait_since_s = now;
    if (!begins && waits == 1)
        beat->waited_s += now - beat->wait_since_s;
}

double comm_waited_s(const struct comm *comm)
{
    return comm->beat != NULL ? comm->beat->waited_s : 0.0;
}
