/* What a user's job has said of the node, as far as root listens to it. The text is
 * the user's own, so it is scanned for patterns and parsed by nothing; all that
 * leaves this file is a code of our letters and names of our own list. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define NODE_CODE_BYTES 33

struct node_verdict {
    bool bad;
    char code[NODE_CODE_BYTES]; /* of A-Z, 0-9 and _; "" */
    char probes[64];            /* ours that found it bad, with commas */
};

/* From the last line of the file that calls a node bad. False: there is one, and
 * it is none of this node's. */
bool node_verdict_read(const char *text, const char *name,
                       struct node_verdict *out);

/* The check in a drain's reason, "tessera: CODE CHECK ...", where it is one of these
 * probes; false: it is none. */
bool node_verdict_probe(const char *reason, char *probe, size_t size);
