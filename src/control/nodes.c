/* From the verdicts of a job's nodes to those that train: nodes.h has the picture.
 * Everything is one walk over the nodes, whose cost grows as they do. */
#include "src/control/nodes.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define TRIES_MAX 3
#define AGAIN_MAX 2

const char *const nodes_verdict_names[] = { "unknown", "ok", "warn", "bad",
                                            NULL };
const char *const nodes_what_names[] = { "check", "restart", "again",
                                         "pairs", "go",      NULL };

int nodes_count(const struct nodes *nodes, enum nodes_place place)
{
    int count = 0;
    for (int i = 0; i < nodes->count; i++)
        count += nodes->list[i].allocated && nodes->list[i].place == place;
    return count;
}

/* 0: nothing is known against it; 1: a warning; 2: it was slow lately; 3: it was bad,
 * and that one check passed is no proof. */
static int doubt(const struct nodes_node *node)
{
    return node->excluded || node->was_bad ? 3 : node->slow ? 2 : node->warned;
}

int nodes_order(const struct nodes *nodes, int *order)
{
    int count = 0;
    for (int rank = 0; rank <= 7; rank++)
        for (int i = 0; i < nodes->count; i++) {
            const struct nodes_node *node = &nodes->list[i];
            bool has = node->trained && !node->lost;
            if (node->allocated && node->place == NODES_GOOD &&
                2 * doubt(node) + !has == rank)
                order[count++] = i;
        }
    return count;
}

int nodes_spare(const struct nodes *nodes)
{
    int count = -nodes->wanted;
    for (int i = 0; i < nodes->count; i++)
        count += nodes->list[i].allocated &&
                 nodes->list[i].place == NODES_GOOD &&
                 doubt(&nodes->list[i]) < 2;
    return count > 0 ? count : 0;
}

bool nodes_elsewhere(const struct nodes *nodes)
{
    bool bad = false;
    for (int i = 0; i < nodes->count; i++) {
        if (nodes->list[i].was_bad && nodes->list[i].excluded)
            return false;
        bad = bad || nodes->list[i].was_bad;
    }
    return bad;
}

/* --- what is said --- */

const char *nodes_event(const struct nodes_node *node)
{
    if (!node->judged || node->place == NODES_UNKNOWN ||
        node->verdict == NODES_OK)
        return NULL;
    return node->place == NODES_BAD ? "exclude" : "node-warning";
}

void nodes_say(const struct nodes_node *node, char *out, size_t size)
{
    const char *format =
        node->place == NODES_UNKNOWN ? "no verdict on node %s: %s: %s"
        : node->place == NODES_BAD   ? "node %s is bad and left out: %s: %s"
                                     : "node %s, a warning: %s: %s";
    out[0] = '\0';
    if (node->judged && node->verdict != NODES_OK)
        snprintf(out, size, format, node->name, node->code, node->reason);
}

/* --- what is decided --- */

static void tell_silence(struct nodes *nodes)
{
    char *out = nodes->silence;
    size_t size = sizeof nodes->silence;
    if (nodes->at == NODES_AT_PAIRS)
        snprintf(out, size, "no verdict of the pair check");
    else if (nodes->late)
        snprintf(out, size, "no verdict within %d s", nodes->seconds);
    else
        snprintf(out, size,
                 "no verdict, the check ended with code %d after %d s: %s",
                 nodes->code, nodes->seconds,
                 nodes->log != NULL ? nodes->log : "");
}

static void judge(struct nodes *nodes)
{
    static const enum nodes_place places[] = { NODES_UNKNOWN, NODES_GOOD,
                                               NODES_GOOD, NODES_BAD };
    tell_silence(nodes);
    for (int i = 0; i < nodes->count; i++) {
        struct nodes_node *node = &nodes->list[i];
        node->judged = node->asked;
        if (!node->asked)
            continue;
        if (node->code == NULL) {
            node->verdict = NODES_UNSURE;
            node->code = "NO_VERDICT";
            node->reason = nodes->silence;
        }
        node->place = places[node->verdict];
        node->suspect = node->verdict == NODES_UNSURE;
        node->warned = node->warned || node->verdict == NODES_WARN;
        node->was_bad = node->was_bad || node->verdict == NODES_SICK;
    }
}

/* How many of those that were asked have told anything. */
static int answers(const struct nodes *nodes, bool sure)
{
    int count = 0;
    for (int i = 0; i < nodes->count; i++)
        count += nodes->list[i].asked && nodes->list[i].code != NULL &&
                 !(sure && nodes->list[i].verdict == NODES_UNSURE);
    return count;
}

static void ask(struct nodes *nodes, enum nodes_place place)
{
    for (int i = 0; i < nodes->count; i++)
        nodes->list[i].asked =
            nodes->list[i].allocated && nodes->list[i].place == place;
}

/* Unless the others are too few: then earlier ones, which may have come back, but not
 * who has just been lost; if need be all. */
static void spare_suspects(struct nodes *nodes)
{
    int sure = 0, rest = 0;
    for (int i = 0; i < nodes->count; i++) {
        sure += nodes->list[i].asked && !nodes->list[i].suspect;
        rest += nodes->list[i].asked && !nodes->list[i].lost;
    }
    for (int i = 0; i < nodes->count; i++) {
        struct nodes_node *node = &nodes->list[i];
        bool spare = sure >= nodes->wanted
                         ? node->suspect || node->lost
                         : rest >= nodes->wanted && node->lost;
        node->asked = node->asked && !spare;
    }
}

/* Some that could be used were not asked yet. */
static bool spared(const struct nodes *nodes)
{
    bool any = false;
    for (int i = 0; i < nodes->count; i++)
        any = any || (nodes->list[i].place == NODES_UNKNOWN &&
                      nodes->list[i].allocated && !nodes->list[i].asked);
    return any;
}

static enum nodes_what begin(struct nodes *nodes)
{
    for (int i = 0; i < nodes->count; i++)
        nodes->list[i].place =
            nodes->list[i].usable ? NODES_UNKNOWN : NODES_AWAY;
    nodes->tries = 1;
    nodes->again = 0;
    nodes->at = NODES_AT_CHECK;
    ask(nodes, NODES_UNKNOWN);
    if (nodes->quick)
        spare_suspects(nodes);
    return NODES_CHECK;
}

/* Not the node of the launch script, which stays to the end of the job, nor any
 * where the job goes back into the queue: while one that has been shrunk ends,
 * slurmctld changes nothing of it. */
static enum nodes_what go(struct nodes *nodes)
{
    bool on = nodes_count(nodes, NODES_GOOD) >= nodes->wanted_min;
    for (int i = 0; i < nodes->count; i++) {
        struct nodes_node *node = &nodes->list[i];
        node->given =
            on && node->allocated && node->place == NODES_BAD &&
            (nodes->host == NULL || strcmp(node->name, nodes->host) != 0);
        node->kept = node->allocated && !node->given;
    }
    return NODES_GO;
}

static enum nodes_what checked(struct nodes *nodes)
{
    bool begun = nodes->late || nodes->code == 0 || answers(nodes, true) > 0;
    judge(nodes);
    if (!begun && nodes->tries < TRIES_MAX) {
        nodes->tries++;
        return NODES_RESTART;
    }
    int good = nodes_count(nodes, NODES_GOOD);
    bool waits = nodes->quick ? good < nodes->wanted_min && spared(nodes)
                              : good < nodes->wanted;
    if (waits && nodes->again < AGAIN_MAX &&
        nodes_count(nodes, NODES_UNKNOWN) > 0) {
        nodes->again++;
        nodes->tries = 1;
        ask(nodes, NODES_UNKNOWN);
        return NODES_AGAIN;
    }
    if (nodes->quick || good < 2)
        return go(nodes);
    nodes->at = NODES_AT_PAIRS;
    ask(nodes, NODES_GOOD);
    return NODES_PAIRS;
}

enum nodes_what nodes_next(struct nodes *nodes)
{
    assert(nodes->wanted > 0 && nodes->wanted_min > 0);
    for (int i = 0; i < nodes->count; i++)
        nodes->list[i].judged = false;
    if (nodes->at == NODES_AT_BEGIN)
        return begin(nodes);
    if (nodes->at == NODES_AT_CHECK)
        return checked(nodes);
    /* without any answer nobody is blamed: the training has its own deadlines */
    if (answers(nodes, false) > 0)
        judge(nodes);
    return go(nodes);
}
