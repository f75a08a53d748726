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
#include <unistd.h>

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
#define PLACES_S 1.0 /* for the others' places */
#define ASK_S 0.01   /* between two looks for them */
#define STACK_BYTES ((size_t)256 << 10)

struct comm_beat {
    struct comm *words; /* a duplicate on which nothing but words travel */
    double lost_s;
    int peer_pid;                   /* of the rank before this one */
    struct comm_place peer_place;   /* by its last sign of life */
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
    struct timeline_here here;
    _Atomic uint64_t ops[COMM_PLACE_OPS]; /* round and round */
    _Atomic unsigned begun;
    pthread_t main;
    unsigned moves; /* of the place, as the thread has seen them */
    double moved_s;
    /* All ranks' places, when somebody is missed. */
    pthread_mutex_t turn;      /* of all here that is the thread's */
    struct comm_place *places; /* [size] made when they are asked for */
    bool gathers;
    int placed;
    double asked_s; /* by a rank before this one; 0: not yet */
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

/* With the stack of one that others wait for and that has not moved for `still_s`. */
static struct comm_place own_place(struct comm_beat *beat, double still_s)
{
    struct comm_place place = { .state = COMM_RESTS,
                                .step = atomic_load(&beat->step) };
    if (atomic_load(&beat->waits) > 0)
        place.state = COMM_WAITS;
    else if (atomic_load(&beat->limit_s) > 0.0)
        place.state = COMM_WORKS;
    place.since_s = clock_now() - beat->moved_s;
    for (int i = 0; i < COMM_PLACE_OPS; i++)
        place.ops[i] = atomic_load(&beat->ops[i]);
    comm_place_spans(&beat->here, place.at);
    if (place.state != COMM_WAITS && place.since_s >= still_s)
        comm_place_stack(beat->main);
    return place;
}

static void hear_place(struct comm_beat *beat, int peer, enum comm_word word,
                       const char *text)
{
    struct comm *words = beat->words;
    if (word == COMM_WHERE) {
        if (peer < words->rank)
            beat->asked_s = clock_now();
        words->place = own_place(beat, beat->lost_s);
        words->transport->say(words, peer, COMM_PLACE, 0);
    } else if (beat->gathers) {
        beat->placed += beat->places[peer].state == COMM_SILENT;
        memcpy(&beat->places[peer], text, sizeof beat->places[peer]);
    }
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
        else if (word == COMM_WHERE || word == COMM_PLACE)
            hear_place(beat, peer, word, text);
        else if (peer == comm_peer(words, -1)) {
            beat->heard_s = beat->tick_s;
            if (word == COMM_HERE)
                memcpy(&beat->peer_place, text, sizeof beat->peer_place);
            beat->left |= word == COMM_BEHIND;
        }
    }
}

/* Asks all but the suspect, and returns how many; answers are kept as they come. */
static int ask(struct comm_beat *beat, int suspect)
{
    struct comm *words = beat->words;
    int asked = 0;
    if (beat->places == NULL &&
        new_zeroed(&beat->places, (size_t)words->size) != ERR_OK)
        return 0;
    memset(beat->places, 0, (size_t)words->size * sizeof beat->places[0]);
    beat->places[words->rank] =
        own_place(beat, suspect < 0 ? 0.0 : beat->lost_s);
    beat->placed = 0;
    beat->gathers = true;
    for (int i = 1; i < words->size; i++)
        if (comm_peer(words, i) != suspect) {
            words->transport->say(words, comm_peer(words, i), COMM_WHERE, 0);
            asked++;
        }
    return asked;
}

/* Waits for the answers; the suspect is heard if it gives a sign. False: another rank
 * asks, and will tell, or all are told already. */
static bool gather(struct comm_beat *beat, int suspect)
{
    double now = clock_now(), end_s = now + PLACES_S;
    bool asks = beat->asked_s == 0.0 || now - beat->asked_s >= beat->lost_s;
    int asked = asks ? ask(beat, suspect) : 0;
    while ((!asks || beat->placed < asked) && !atomic_load(&beat->sealed) &&
           clock_now() < end_s) {
        clock_sleep(ASK_S);
        hear(beat);
    }
    asks = asks && beat->gathers && !atomic_load(&beat->sealed);
    beat->gathers = false;
    if (asks && suspect >= 0) {
        beat->places[suspect] = beat->peer_place;
        beat->places[suspect].state = COMM_SILENT;
        beat->places[suspect].since_s += clock_now() - beat->heard_s;
    }
    return asks;
}

static int picture(const struct comm_beat *beat,
                   char lines[COMM_PLACE_LINES][COMM_TEXT_BYTES])
{
    const struct comm *words = beat->words;
    return comm_place_lines(beat->places, words->size, words->hosts, lines);
}

static void show(char lines[COMM_PLACE_LINES][COMM_TEXT_BYTES], int count)
{
    for (int i = 0; i < count; i++)
        log_error("%s", lines[i]);
}

/* The rank before this one. */
static void judge_peer(struct comm_beat *beat)
{
    const struct comm *words = beat->words;
    char text[COMM_TEXT_BYTES], process[COMM_TEXT_BYTES / 4];
    char lines[COMM_PLACE_LINES][COMM_TEXT_BYTES];
    int peer = comm_peer(words, -1);
    double heard_s = beat->heard_s;
    if (beat->left || beat->tick_s - heard_s < beat->lost_s)
        return;
    bool places = gather(beat, peer);
    if (beat->heard_s != heard_s)
        return;
    if (places)
        show(lines, picture(beat, lines));
    comm_place_process(comm_same_host(words, peer, words->rank) ? beat->peer_pid
                                                                : 0,
                       process, sizeof process);
    snprintf(text, sizeof text,
             "no answer for %.3g s from rank %d (%s), whatever it is at%s; "
             "look there for a dead or stopped process, or a node off the "
             "network",
             beat->lost_s, peer, words->hosts[peer], process);
    tell(beat, text);
}

static void judge_work(struct comm_beat *beat)
{
    const struct comm *words = beat->words;
    char text[COMM_TEXT_BYTES], lines[COMM_PLACE_LINES][COMM_TEXT_BYTES];
    double limit_s = atomic_load(&beat->limit_s);
    double since_s = atomic_load(&beat->since_s);
    double work_s = beat->tick_s - since_s;
    if (limit_s <= 0.0 || atomic_load(&beat->waits) > 0 || work_s < limit_s)
        return;
    bool places = gather(beat, -1);
    if (atomic_load(&beat->since_s) != since_s)
        return;
    if (places)
        show(lines, picture(beat, lines));
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
    unsigned moves = atomic_load(&beat->here.moves);
    if (moves != beat->moves || gap_s > STOPPED_S)
        beat->moved_s = now;
    beat->moves = moves;
    if (now - beat->said_s >= SAY_S) {
        beat->said_s = now;
        words->place = own_place(beat, 1e18 /* none */);
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
    comm_place_stack(beat->main);
    for (int i = 0; i < (int)(LEAVE_S / TICK_S); i++) {
        if (atomic_load(&beat->known) || atomic_load(&beat->ends))
            return NULL;
        clock_sleep(TICK_S);
    }
    log_error("%s", beat->text);
    comm_left(beat->words->parent, err_set(ERR_COMM, "%s", beat->text));
    _Exit(err_exit_code(ERR_COMM));
}

static void *beat_main(void *arg)
{
    struct comm_beat *beat = arg;
    while (!atomic_load(&beat->ends)) {
        if (beat->words->transport->held(beat->lost_s) != ERR_OK)
            return leave(beat);
        pthread_mutex_lock(&beat->turn);
        tick(beat);
        pthread_mutex_unlock(&beat->turn);
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
    struct comm_request *in, *out;
    int pid = (int)getpid();
    TRY(comm_start_recv(comm, &beat->peer_pid, sizeof pid, comm_peer(comm, -1),
                        0, &in));
    TRY(comm_start_send(comm, &pid, sizeof pid, comm_peer(comm, 1), 0, &out));
    TRY(comm_wait(in, 0.0));
    TRY(comm_wait(out, 0.0));
    beat->main = pthread_self();
    timeline_here = &beat->here;
    comm_place_stack_begin();
    beat->heard_s = beat->tick_s = beat->moved_s = clock_now();
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
    pthread_mutex_init(&beat->turn, NULL);
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
    timeline_here = NULL;
    /* a thread that does not come back stays until the process ends */
    if (beat->runs && beat->words->transport->held(beat->lost_s) != ERR_OK)
        return;
    if (beat->runs)
        pthread_join(beat->thread, NULL);
    comm_destroy(beat->words);
    pthread_mutex_destroy(&beat->turn);
    pthread_mutex_destroy(&beat->mutex);
    free(beat->places);
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
    if (step != atomic_load(&beat->step))
        timeline_leave(0);
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

void comm_beat_began(const struct comm_request *request, uint64_t size)
{
    struct comm_beat *beat = request->comm->beat;
    if (beat == NULL || !beat->runs)
        return;
    unsigned at = atomic_load(&beat->begun);
    atomic_store(&beat->begun, at + 1);
    atomic_store(&beat->ops[at % COMM_PLACE_OPS], comm_place_op(request, size));
}

/* Called with the turn: how many ranks are odd. */
static int find_odd(const struct comm_request *request, char *names,
                    size_t bytes)
{
    const struct comm *comm = request->comm;
    if (!request->collective)
        return 0;
    return comm_place_odd(comm->beat->places, comm->size, comm->hosts,
                          comm_place_op(request, 0), names, bytes);
}

/* Who is odd is known when most have begun the operation: others may be late. */
static bool find_difference(const struct comm_request *request, int *odd,
                            char *names, size_t bytes)
{
    struct comm_beat *beat = request->comm->beat;
    double end_s = clock_now() + beat->lost_s;
    bool there;
    do {
        pthread_mutex_lock(&beat->turn);
        there = gather(beat, -1);
        *odd = there ? find_odd(request, names, bytes) : 0;
        pthread_mutex_unlock(&beat->turn);
        clock_sleep(TICK_S);
    } while (*odd == 0 && !atomic_load(&beat->sealed) && clock_now() < end_s);
    return there;
}

void comm_beat_ask(struct comm *comm)
{
    struct comm_beat *beat = comm->beat;
    if (beat == NULL || !beat->runs)
        return;
    pthread_mutex_lock(&beat->turn);
    (void)ask(beat, -1);
    pthread_mutex_unlock(&beat->turn);
}

enum err comm_beat_places(const struct comm_request *request, enum err rc)
{
    struct comm *comm = request->comm;
    struct comm_beat *beat = comm->beat;
    struct err_kept kept = { 0 };
    char names[COMM_TEXT_BYTES / 2];
    char lines[COMM_PLACE_LINES][COMM_TEXT_BYTES];
    bool there = false;
    int odd = 0, count = 0;
    if (beat == NULL || !beat->runs)
        return rc;
    err_keep(&kept, rc);
    comm_beat_waits(comm, true);
    if (request->differs)
        there = find_difference(request, &odd, names, sizeof names);
    pthread_mutex_lock(&beat->turn);
    if (!request->differs && beat->gathers) {
        there = true;
        odd = find_odd(request, names, sizeof names);
    }
    beat->gathers = false;
    if (there)
        count = picture(beat, lines);
    pthread_mutex_unlock(&beat->turn);
    comm_beat_waits(comm, false);
    show(lines, count);
    if (comm_told(comm))
        return err_set(ERR_COMM, "%s", comm->failure);
    if (odd == 0)
        return err_again(&kept);
    return err_set(ERR_COMM,
                   "%s: another operation, or one of another size, has been "
                   "begun in its place by %s; look there for another version "
                   "of the program, or other settings",
                   request->what, names);
}
