/* What prolog and epilog say: a line each, on stderr, in TESSERA_LOG and in
 * syslog. The log begins anew at a size, but so that who fills it does not push
 * out what others need to see. It has time of its own, since the last words are
 * the most needed; one that did not answer once is not written to again.
 *
 * What became of a node is also told to programs (node_events.h): as a line of
 * TESSERA_EVENTS/NODE.jsonl, to TESSERA_NOTIFY, and in TESSERA_METRICS. */
#pragma once

#include "src/node/node_known.h"

void node_say(struct node *node, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* For what becomes of the node: there is time for it whatever was said before.
 * `outcome` is a word of docs/events.md, `reason` a verdict's, "CODE ...". */
void node_decide(struct node *node, const char *outcome, const char *reason,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));
/* What the looks of this prolog or epilog came to, in node->state; once, when they
 * are over. Sound ones have a line only after others. */
void node_result(struct node *node);
