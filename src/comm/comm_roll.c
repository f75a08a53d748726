/* Finds who is missing when a collective has come to a deadline, and tells all ranks.
 *
 * In a tree a rank hears from few others, and whose message does not come may itself
 * wait for one that is dead. So at a deadline a rank asks every other one directly. Who
 * waits, for whatever, answers (a wait looks for words now and then), and says whether
 * it has begun the operation; who is dead, hangs, or computes does not. Those are named,
 * and the verdict goes to all ranks, whose waits on this communicator end with it: so
 * all have the same, though their deadlines differ, and nobody blames one that has
 * already left.
 *
 * One call is enough: a rank with a higher number leaves others time to begin, and who
 * has been asked waits for the verdict before it asks itself. */
#include "src/comm/comm_impl.h"

#include <math.h>
#include <stdio.h>

#include "src/base/clean.h"
#include "src/base/clock.h"

/* Answers are waited for this share of the deadline that has passed, or so long. */
#define ROLL_SHARE 0.25
#define ROLL_LEAST_S 1.0
/* Rank r calls so many times bits(r) later: a word is heard sooner. */
#define STAGGER_S 0.02
/* The call of another rank is waited for this many times as long. */
#define ROLL_OTHERS 1.5
#define NAMED_MAX 4

static void hear_word(struct comm *comm, int peer, enum comm_word word,
                      int number, const char *text)
{
    int ahead =
        (number - comm->sequence % COMM_NUMBERS + COMM_NUMBERS) % COMM_NUMBERS;
    switch (word) {
    case COMM_CALLED:
        comm->called_s = clock_now();
        comm->transport->say(comm, peer,
                             ahead < COMM_NUMBERS / 2 ? COMM_BEHIND : COMM_HERE,
                             number);
        break;
    case COMM_VERDICT:
        if (!comm->broken)
            snprintf(comm->failure, sizeof comm->failure, "%s", text);
        comm->told_s = clock_now();
        comm->broken = comm->told = true;
        comm_beat_seal(comm);
        break;
    case COMM_HERE:
    case COMM_BEHIND:
    case COMM_WHERE:
    case COMM_PLACE:
    default:
        if (number == comm->roll_number)
            comm->roll[peer] = word;
    }
}

void comm_roll_hear(struct comm *comm)
{
    enum comm_word word;
    char text[COMM_TEXT_BYTES];
    int peer, number;
    while (comm->size > 1 &&
           comm->transport->hear(comm, &peer, &word, &number, text))
        hear_word(comm, peer, word, number, text);
}

void comm_roll_tell(struct comm *comm)
{
    if (comm->told)
        return;
    comm->told = true;
    comm->told_s = clock_now();
    comm_beat_seal(comm);
    for (int i = 1; i < comm->size; i++)
        comm->transport->say(comm, comm_peer(comm, i), COMM_VERDICT, 0);
}

/* Waits longer; true when the request is over, for good or ill. */
static bool wait_more(struct comm_request *request, double seconds)
{
    struct comm_patience patience = { .timeout_s = seconds };
    bool done = false;
    while (!done && comm_patience_left(&patience)) {
        comm_request_progress(request->comm);
        done = comm_request_poll(request);
    }
    return done;
}

/* What this rank waits for may be one that another communicator of its has been told
 * about meanwhile, and those who told may have left. */
static bool told_elsewhere(struct comm_request *request, double begin_s)
{
    struct comm *comm = request->comm, *other = comm->next;
    while (other != comm && !(other->told && other->told_s >= begin_s))
        other = other->next;
    if (other == comm)
        return false;
    request->rc = err_set(ERR_COMM, "%s", other->failure);
    comm_request_fail(request);
    request->done = true;
    return true;
}

static void ask(struct comm *comm, int number)
{
    comm->roll_number = number % COMM_NUMBERS;
    for (int i = 0; i < comm->size; i++) {
        int peer = comm_peer(comm, i);
        comm->roll[peer] = i == 0 ? COMM_HERE : COMM_CALLED;
        if (i > 0)
            comm->transport->say(comm, peer, COMM_CALLED, comm->roll_number);
    }
}

bool comm_roll_call(struct comm_request *request, double begin_s,
                    double timeout_s)
{
    struct comm *comm = request->comm;
    double roll_s = fmax(ROLL_SHARE * timeout_s, ROLL_LEAST_S);
    if (comm->broken)
        return false;
    comm_request_progress(comm);
    if (told_elsewhere(request, begin_s))
        return true;
    if (!request->collective && comm->beat == NULL)
        return false;
    if (wait_more(request, STAGGER_S * comm_bits(comm->rank)))
        return true;
    if (clock_now() - comm->called_s < ROLL_OTHERS * roll_s &&
        wait_more(request, ROLL_OTHERS * roll_s))
        return true;
    ask(comm, request->collective ? request->tag : comm->sequence);
    comm_beat_ask(comm);
    return wait_more(request, roll_s);
}

/* Whether this rank itself waits for `rank`: its message is open, in a tree any
 * member's. */
static bool waits_for(const struct comm_request *request, int rank)
{
    bool receives = false, found = false;
    if (request->tree && request->members == NULL)
        return rank != request->comm->rank;
    for (int i = 0; request->tree && i < request->member_count; i++)
        found |= request->members[i] == rank;
    /* A send ends only when its receiver takes part; it is the better witness
     * only where nothing is to be received. */
    for (int pass = 0; !request->tree && pass < 2 && !receives; pass++)
        for (int i = 0; i < request->transfer_count; i++) {
            const struct comm_transfer *t = &request->transfers[i];
            if (t->complete || t->receive != (pass == 0))
                continue;
            receives |= t->receive;
            found |= t->peer == rank;
        }
    return found && rank != request->comm->rank;
}

/* The higher, the more likely this rank is the cause; 0: it is not. */
static int suspicion(const struct comm_request *request, int rank)
{
    const struct comm *comm = request->comm;
    bool waits = waits_for(request, rank);
    if (!request->collective && comm->beat == NULL)
        return waits;
    switch (comm->roll[rank]) {
    case COMM_CALLED:
        return waits ? 4 : 3;
    case COMM_BEHIND:
        return waits && request->collective ? 2 : waits;
    default:
        return waits && !request->tree;
    }
}

int comm_roll_missing(const struct comm_request *request, char *text,
                      size_t bytes)
{
    const struct comm *comm = request->comm;
    int most = 1, missing = 0;
    text[0] = '\0';
    for (int r = 0; r < comm->size; r++) {
        int found = suspicion(request, r);
        most = found > most ? found : most;
    }
    for (int r = 0; r < comm->size; r++) {
        if (suspicion(request, r) < most)
            continue;
        if (++missing <= NAMED_MAX)
            clean_join(text, bytes, ", ", "rank %d (%s)", r, comm->hosts[r]);
    }
    if (missing > NAMED_MAX)
        clean_join(text, bytes, "", " and %d more", missing - NAMED_MAX);
    if (missing == 0)
        snprintf(text, bytes, "anybody, though all ranks are there");
    return missing;
}

/* Waits until all have answered, or a verdict came. */
static void hear_all(struct comm *comm, double seconds)
{
    struct comm_patience patience = { .timeout_s = seconds };
    int rank = 0;
    while (!comm->broken && rank < comm->size &&
           comm_patience_left(&patience)) {
        comm_roll_hear(comm);
        comm_request_progress(comm);
        while (rank < comm->size && comm->roll[rank] != COMM_CALLED)
            rank++;
    }
}

enum err comm_roll_blame(struct comm *comm, enum err rc, double timeout_s)
{
    struct comm_request all = { .comm = comm, .collective = true };
    char text[COMM_TEXT_BYTES], names[COMM_TEXT_BYTES / 2];
    double roll_s = fmax(ROLL_SHARE * timeout_s, ROLL_LEAST_S);
    snprintf(text, sizeof text, "%s", err_text());
    comm->roll[comm->rank] = COMM_CALLED; /* waits for a verdict alone */
    hear_all(comm, STAGGER_S * comm_bits(comm->rank));
    if (!comm->broken) {
        ask(comm, comm->sequence);
        hear_all(comm, roll_s);
    }
    if (comm->broken)
        return err_set(ERR_COMM, "%s", comm->failure);
    if (comm_roll_missing(&all, names, sizeof names) > 0)
        rc = err_set(ERR_COMM,
                     "%s: no answer from %s; look there for a dead or hanging "
                     "process",
                     text, names);
    else
        rc = err_set(rc, "rank %d (%s): %s; all ranks are there", comm->rank,
                     comm->hosts[comm->rank], text);
    comm_request_break(comm);
    comm_roll_tell(comm);
    return rc;
}
