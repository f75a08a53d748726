/* The way from a bad verdict to a drained node, one state for each thing that is
 * waited for. drain.h has the idea and the picture.
 *
 * Two rules hold the limits. What is counted is counted under the lock, and the
 * lock is given back only when Slurm has answered: an update without an answer
 * may still come, and until then, at most for the lock's minute, nobody else
 * counts. And the mark of a drain is made before the drain, so that one whose
 * mark fails does not happen, and none happens unseen. */
#include "src/control/drain.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/rng.h"

/* A pause between tries, s; and time that a decision may take at its end. */
#define PAUSE_S 2.0
#define LEAST_S 6.0
/* Slurm gives a lock up after a minute. No drain is begun under one that is
 * older than this, since what Slurm did not answer in time it may do half a
 * minute later; nor is such a lock given back, which may be another's by now. */
#define LOCK_S 25.0

/* `outcome`: of a decision, else NULL. */
__attribute__((format(printf, 5, 6))) static struct drain_action
make(struct drain *d, enum drain_state state, enum drain_what what,
     const char *outcome, const char *format, ...)
{
    struct drain_action action = { .what = what, .outcome = outcome };
    va_list args;
    va_start(args, format);
    vsnprintf(action.text, sizeof action.text, format, args);
    va_end(args);
    d->state = state;
    return action;
}

#define act(d, state, what, ...) make(d, state, what, NULL, __VA_ARGS__)
/* A decision; what is left afterwards is to give the lock back. */
#define say(d, outcome, ...)                                                   \
    make(d, DRAIN_AT_SAID, DRAIN_SAY, outcome, __VA_ARGS__)

/* A reason is printed, cut and without quotes: it comes from a check's words. */
void drain_begin(struct drain *d, const struct drain_request *request)
{
    assert(request->percent >= 1 && request->percent <= 100);
    assert(request->storm_nodes >= 0 && request->storm_s >= 0);
    *d = (struct drain){ .request = *request };
    const char *text = request->reason;
    size_t ours = strlen(CLUSTER_OURS), n = ours;
    if (strncmp(text, CLUSTER_OURS, ours) == 0)
        text += ours;
    memcpy(d->reason, CLUSTER_OURS, ours);
    for (; *text != '\0' && n < 150; text++)
        if (isprint((unsigned char)*text) && strchr("\"'", *text) == NULL)
            d->reason[n++] = *text;
    d->reason[n] = '\0';
    n = 0;
    for (text = d->reason + ours; *text != '\0' && *text != ' '; text++)
        if ((isalnum((unsigned char)*text) || *text == '_') &&
            n < sizeof d->code - 1)
            d->code[n++] = *text;
}

/* Where nothing is left but the lock. Who comes next need not wait for its end. */
static struct drain_action leave(struct drain *d,
                                 const struct drain_event *event)
{
    if (d->locked && d->unlock && event->now_s <= d->lock_s + LOCK_S) {
        d->locked = false;
        return act(d, DRAIN_AT_UNLOCK, DRAIN_REMOVE, CLUSTER_LOCK);
    }
    return act(d, DRAIN_AT_END, DRAIN_END, "%s", "");
}

static struct drain_action refuse(struct drain *d, const char *outcome,
                                  const char *why)
{
    return say(d, outcome, "not drained: %s: %s", why, d->reason);
}

static struct drain_action
no_answer(struct drain *d, const struct drain_event *event, const char *about)
{
    return refuse(d, "no-answer", event->said != NULL ? event->said : about);
}

static struct drain_action take_lock(struct drain *d,
                                     const struct drain_event *event)
{
    d->lock_s = event->now_s;
    return act(d, DRAIN_AT_LOCK, DRAIN_LOCK, CLUSTER_LOCK);
}

static struct drain_action at_node(struct drain *d,
                                   const struct drain_event *event)
{
    if (event->node == NULL)
        return say(d, "no-answer", "state unknown, not drained: %s: %.120s",
                   d->reason, event->said != NULL ? event->said : "no answer");
    d->node = *event->node;
    if (d->node.out) {
        d->out = d->request.enforce; /* a dry run refuses no job */
        return say(d, "already", "is %s already (%s), left so: %s",
                   d->node.state, d->node.reason, d->reason);
    }
    if (!d->request.enforce)
        return say(d, "would-drain", "dry run, would drain: %s", d->reason);
    return take_lock(d, event);
}

/* The outcome of what others have decided a moment ago; NULL: nothing about us. */
static const char *decided(struct drain *d, const struct cluster_marks *marks,
                           char *why, size_t size)
{
    for (int i = 0; i < marks->latched_count; i++)
        if (strcmp(marks->latched[i], d->code) == 0) {
            snprintf(why, size,
                     "too many nodes were drained for the same, so none is "
                     "until an administrator deletes the reservation %s%s",
                     CLUSTER_LATCHED, d->code);
            return "latched";
        }
    for (int i = 0; i < marks->refused_count; i++) {
        bool here = strcmp(marks->refused[i], CLUSTER_EVERYWHERE) == 0;
        for (int p = 0; p < d->node.partition_count && !here; p++)
            here = strcmp(marks->refused[i], d->node.partitions[p]) == 0;
        if (here) {
            snprintf(
                why, size, "as many nodes as may be are out of service%s%s",
                strcmp(marks->refused[i], CLUSTER_EVERYWHERE) == 0 ? ""
                                                                   : " in ",
                strcmp(marks->refused[i], CLUSTER_EVERYWHERE) == 0
                    ? ""
                    : marks->refused[i]);
            return "floor";
        }
    }
    return NULL;
}

/* A reservation is not made since there is one of its name. */
static bool is_there(const struct drain_event *event)
{
    return event->said != NULL && strcasestr(event->said, "duplicate") != NULL;
}

static struct drain_action at_lock(struct drain *d,
                                   const struct drain_event *event)
{
    enum drain_state next = DRAIN_AT_OTHERS_MARKS;
    if (event->answered && event->done) {
        d->locked = d->unlock = true;
        next = DRAIN_AT_MARKS;
    }
    d->no_lock[0] = '\0';
    if (event->answered && !event->done && event->said != NULL &&
        !is_there(event))
        snprintf(d->no_lock, sizeof d->no_lock, "no lock: %.100s", event->said);
    d->tries++;
    return act(d, next, DRAIN_MARKS, "%s", "");
}

/* Without the lock: is there anything to wait for? */
static struct drain_action at_others_marks(struct drain *d,
                                           const struct drain_event *event)
{
    char why[256];
    if (event->marks == NULL)
        return no_answer(d, event, "no answer about reservations");
    const char *outcome = decided(d, event->marks, why, sizeof why);
    if (outcome != NULL)
        return refuse(d, outcome, why);
    if (!event->marks->locked && d->no_lock[0] != '\0')
        return refuse(d, "failed", d->no_lock);
    double left_s = d->request.end_s - event->now_s - LEAST_S;
    double pause_s = PAUSE_S * (0.25 + 1.5 * rng_uniform(d->request.seed, 0,
                                                         (uint64_t)d->tries));
    if (pause_s > left_s)
        return refuse(d, "locked",
                      event->marks->locked
                          ? "other nodes are being drained just now"
                          : "the lock cannot be made");
    struct drain_action action = act(d, DRAIN_AT_PAUSE, DRAIN_PAUSE, "%s", "");
    action.seconds = pause_s;
    return action;
}

/* Nodes drained for the code within the window; lists marks beyond it. */
static int same_within(struct drain *d, const struct cluster_marks *marks)
{
    int same = 0;
    for (int i = 0; i < marks->drained_count; i++) {
        const struct cluster_drained *drained = &marks->drained[i];
        if (drained->time < d->time - d->request.storm_s) {
            if (d->old_count < (int)(sizeof d->old / sizeof d->old[0]))
                memcpy(d->old[d->old_count++], drained->mark, sizeof d->old[0]);
        } else if (strcmp(drained->code, d->code) == 0) {
            same++;
        }
    }
    return same;
}

static struct drain_action at_marks(struct drain *d,
                                    const struct drain_event *event)
{
    char why[256];
    if (event->marks == NULL || event->marks->lock_time <= 0)
        return no_answer(d, event, "no answer about reservations");
    d->time = event->marks->lock_time;
    const char *outcome = decided(d, event->marks, why, sizeof why);
    if (outcome != NULL)
        return refuse(d, outcome, why);
    int same = same_within(d, event->marks);
    if (d->request.storm_nodes > 0 && same >= d->request.storm_nodes)
        return act(d, DRAIN_AT_LATCH, DRAIN_MARK, "%s%s", CLUSTER_LATCHED,
                   d->code);
    return act(d, DRAIN_AT_SHARES, DRAIN_SHARES, "%s", "");
}

/* The latch may have failed: the next node finds the same and tries again. */
static struct drain_action at_latch(struct drain *d,
                                    const struct drain_event *event)
{
    return say(d, "latched",
               "not drained: %d nodes were drained for the same within %.0f s: "
               "look at what they share%s%s: %s",
               d->request.storm_nodes, d->request.storm_s,
               event->done ? ", then delete the reservation " CLUSTER_LATCHED
                           : "",
               event->done ? d->code : "", d->reason);
}

/* Nodes of a share that may be out of service. Rounded down, but never none: a
 * partition of four has a right to be rid of its one sick node. */
static int most_out(const struct drain *d, const struct cluster_share *share)
{
    int most = (int)((double)share->nodes * d->request.percent / 100);
    return most > 1 ? most : 1;
}

static struct drain_action at_shares(struct drain *d,
                                     const struct drain_event *event)
{
    assert(d->locked && d->time > 0); /* what is counted is counted under it */
    if (event->shares == NULL)
        return no_answer(d, event, "sinfo does not answer");
    /* an administrator may have come while others had the lock */
    if (event->shares->here_out) {
        d->out = true;
        return say(d, "already", "is out of service already, left so: %s",
                   d->reason);
    }
    for (int i = 0; i < event->shares->count; i++) {
        const struct cluster_share *share = &event->shares->list[i];
        if (share->out >= most_out(d, share)) {
            memcpy(d->refused, share->name, sizeof d->refused);
            struct drain_action action =
                say(d, "floor",
                    "not drained: %d of %d nodes%s%s are out of service, "
                    "the limit is %d: %s",
                    share->out, share->nodes, i > 0 ? " of " : "",
                    i > 0 ? share->name : "", most_out(d, share), d->reason);
            d->state = DRAIN_AT_REFUSAL;
            return action;
        }
    }
    return act(d, DRAIN_AT_MARK, DRAIN_MARK, "%s%.0f.%s.%s", CLUSTER_DRAINED,
               d->time, d->code, d->request.node);
}

static struct drain_action at_update(struct drain *d,
                                     const struct drain_event *event)
{
    assert(d->locked && !d->out);
    if (!event->answered) {
        d->unlock = false; /* it may still come: the lock stays its minute */
        return say(d, "no-answer", "no answer, perhaps drained: %s", d->reason);
    }
    d->out = event->done;
    if (event->done)
        return say(d, "drained", "drained: %s", d->reason);
    return say(d, "failed", "scontrol failed, not drained: %s: %.120s",
               d->reason, event->said != NULL ? event->said : "");
}

/* Old marks go where there is time: whoever counts sees them, so one is enough to
 * do it, and what is left stays for the next. */
static struct drain_action at_said(struct drain *d,
                                   const struct drain_event *event)
{
    if (d->old_count > 0 && d->locked && d->unlock &&
        event->now_s + LEAST_S < d->request.end_s)
        return act(d, DRAIN_AT_OLD, DRAIN_REMOVE, "%s", d->old[--d->old_count]);
    return leave(d, event);
}

struct drain_action drain_next(struct drain *d, const struct drain_event *event)
{
    switch (d->state) {
    case DRAIN_AT_BEGIN:
        if (d->request.wrong != NULL)
            return say(d, "settings",
                       "not drained, because of wrong settings:%.100s %s",
                       d->request.wrong, d->reason);
        return act(d, DRAIN_AT_NODE, DRAIN_NODE, "%s", "");
    case DRAIN_AT_NODE:
        return at_node(d, event);
    case DRAIN_AT_LOCK:
        return at_lock(d, event);
    case DRAIN_AT_OTHERS_MARKS:
        return at_others_marks(d, event);
    case DRAIN_AT_PAUSE:
        return take_lock(d, event);
    case DRAIN_AT_MARKS:
        return at_marks(d, event);
    case DRAIN_AT_SHARES:
        return at_shares(d, event);
    case DRAIN_AT_LATCH:
        return at_latch(d, event);
    case DRAIN_AT_REFUSAL:
        return act(d, DRAIN_AT_SAID, DRAIN_MARK_NOW, "%s%s", CLUSTER_REFUSED,
                   d->refused);
    case DRAIN_AT_MARK:
        /* of the same node in the same second it serves as well */
        if (!event->answered || (!event->done && !is_there(event)))
            return refuse(d, "failed", "its mark cannot be made");
        if (event->now_s > d->lock_s + LOCK_S)
            return refuse(d, "no-answer", "Slurm answers too slowly");
        return act(d, DRAIN_AT_UPDATE, DRAIN_UPDATE, "%s", d->reason);
    case DRAIN_AT_UPDATE:
        return at_update(d, event);
    case DRAIN_AT_SAID:
    case DRAIN_AT_OLD:
        return at_said(d, event);
    case DRAIN_AT_UNLOCK:
    case DRAIN_AT_END:
        break;
    }
    return leave(d, event);
}
