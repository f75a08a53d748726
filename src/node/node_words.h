/* What prolog and epilog say: a line each, on stderr, in TESSERA_LOG and in
 * syslog. The log begins anew at a size, but so that who fills it does not push
 * out what others need to see. It has time of its own, since the last words are
 * the most needed; one that did not answer once is not written to again. */
#pragma once

#include "src/node/node_known.h"

void node_say(struct node *node, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* For what becomes of the node: there is time for it whatever was said before. */
void node_decide(struct node *node, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
