/* The facts of nodes.h as lines "KEY VALUE...", which the launch script keeps: it
 * hands them over with each call, and takes back those that have changed. A list
 * of nodes has blanks or commas between them. */
#pragma once

#include <stdio.h>

#include "src/base/err.h"
#include "src/base/map.h"
#include "src/control/nodes.h"

struct nodes_facts {
    struct nodes nodes;
    int total; /* seconds since the check began */
    struct map names;
    size_t room;
};

/* Adds what the lines say to *facts, zeros at first; the text is cut up and must
 * outlive them. ERR_USAGE: no such fact, or not such a value. */
enum err nodes_words_read(char *text, struct nodes_facts *facts);
void nodes_words_free(struct nodes_facts *facts);
/* The node of that name, or of a host's with its domain; NULL: none. */
struct nodes_node *nodes_words_find(const struct nodes_facts *facts,
                                    const char *name);
/* What nodes_next() has said: "say TEXT" about all nodes together, the facts that
 * have changed, and "do WHAT". `order` is nodes_order()'s, of `good` nodes. */
void nodes_words_write(const struct nodes_facts *facts, enum nodes_what what,
                       const int *order, int good, FILE *out);
/* The names of these. */
void nodes_words_good(const struct nodes *nodes, const int *order, int count,
                      char between, FILE *out);
