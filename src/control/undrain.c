/* Each action is followed by one other; what was answered may end the way, with a
 * word on why. */
#include "src/control/undrain.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static struct drain_action act(struct undrain *u, enum drain_what what)
{
    struct drain_action action = { .what = what,
                                   .seconds = u->request.pause_s };
    snprintf(action.text, sizeof action.text, "%s", u->node.reason);
    u->last = what;
    return action;
}

__attribute__((format(printf, 3, 4))) static struct drain_action
say(struct undrain *u, const char *outcome, const char *format, ...)
{
    struct drain_action action = act(u, DRAIN_SAY);
    va_list args;
    assert(!u->said);
    u->said = true;
    action.outcome = outcome;
    va_start(args, format);
    vsnprintf(action.text, sizeof action.text, format, args);
    va_end(args);
    return action;
}

void undrain_begin(struct undrain *u, const struct undrain_request *request)
{
    assert(request->pause_s >= 0);
    *u = (struct undrain){ .request = *request, .last = DRAIN_END };
}

static struct drain_action at_node(struct undrain *u,
                                   const struct drain_event *event)
{
    const struct cluster_node *node = event->node;
    if (node == NULL)
        return say(u, "no-answer", "state unknown, left as it is: %.120s",
                   event->said != NULL ? event->said : "no answer");
    if (strncmp(node->state, "drain", 5) != 0)
        return say(u, "kept", "is %s, not drained: nothing to undrain",
                   node->state);
    if (strncmp(node->reason, CLUSTER_OURS, strlen(CLUSTER_OURS)) != 0)
        return say(u, "kept", "drained by somebody else (%s), left so",
                   node->reason);
    if (u->looks == 0) {
        u->node = *node;
        return act(u, DRAIN_LOOK);
    }
    if (strcmp(node->reason, u->node.reason) != 0)
        return say(u, "kept",
                   "drained for another reason meanwhile (%s), "
                   "left so",
                   node->reason);
    if (!u->request.enforce)
        return say(u, "would-undrain", "sound at %d looks, would undrain: %s",
                   u->looks, node->reason);
    return act(u, DRAIN_RESUME);
}

struct drain_action undrain_next(struct undrain *u,
                                 const struct drain_event *event)
{
    switch (u->last) {
    case DRAIN_NODE:
        return at_node(u, event);
    case DRAIN_LOOK:
        if (!event->sound)
            return say(u, "kept", "not sound, stays drained: %s",
                       u->node.reason);
        return act(u, ++u->looks < UNDRAIN_LOOKS ? DRAIN_PAUSE : DRAIN_NODE);
    case DRAIN_PAUSE:
        return act(u, DRAIN_LOOK);
    case DRAIN_RESUME:
        u->back = event->answered && event->done;
        if (u->back)
            return say(u, "undrained", "undrained, sound at %d looks; was: %s",
                       u->looks, u->node.reason);
        return say(u, event->answered ? "failed" : "no-answer",
                   "scontrol did not undrain: %.120s",
                   event->said != NULL ? event->said : "no answer");
    default:
        break;
    }
    return act(u, u->said ? DRAIN_END : DRAIN_NODE);
}
