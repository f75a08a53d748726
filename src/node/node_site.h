/* The site's settings, PREFIX/etc/tessera.conf: lines of NAME=VALUE and comments,
 * read as words and by nobody executed, since this is root. A line that is wrong
 * is never taken for permission: it is told, and nothing is drained.
 * jobs/tessera.conf says what each of them is for. Pure functions. */
#pragma once

#include <stddef.h>

#define NODE_SITE_TEXT 512

struct node_site {
    char spool[NODE_SITE_TEXT], log[NODE_SITE_TEXT], slurm_bin[NODE_SITE_TEXT];
    char probes[NODE_SITE_TEXT], library_path[NODE_SITE_TEXT];
    char events[NODE_SITE_TEXT], metrics[NODE_SITE_TEXT];
    char notify[NODE_SITE_TEXT];
    char clean[NODE_SITE_TEXT]; /* folders, with a blank between */
    int enforce, trust_users, stress;
    int drain_percent, storm_nodes, storm_s;
    int prolog_s, epilog_s, again_s, stress_s;
};

/* The defaults; `here` is the folder of our programs. */
void node_site_defaults(struct node_site *site, const char *here);
/* Takes what is right, and says in `wrong` what is not; "" if all is. */
void node_site_parse(const char *text, struct node_site *site, char *wrong,
                     size_t size);
