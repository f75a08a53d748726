/* What programs read of a node: a line of JSON for each prolog or epilog whose
 * looks found something, and for each decision (schema "tessera-event/1"), and the
 * last look as Prometheus reads it. docs/events.md has both, and the words for
 * outcomes. Pure functions; what users say is in neither. */
#pragma once

#include <stddef.h>

#include "src/node/node_known.h"

#define NODE_EVENT_BYTES 2048

extern const char *const node_state_names[]; /* by enum node_state */

/* One line, with its '\n'. `outcome` NULL: what the looks found; else a decision
 * about `reason`, in the words `text`. time_s since the epoch. */
void node_event_line(const struct node *node, double time_s,
                     const char *outcome, const char *reason, const char *text,
                     char line[NODE_EVENT_BYTES]);
/* The exposition format's text, whole. */
void node_event_metrics(const struct node *node, double time_s, double look_s,
                        char *text, size_t size);
