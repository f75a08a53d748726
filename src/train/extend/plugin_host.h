/* What a plug-in gets of the run (struct tessera_host), and what its functions'
 * results mean. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"
#include "src/train/extend/tessera_plugin.h"

struct tracking_list;
struct run;

struct plugin_host {
    struct tessera_host host;      /* the first member, as callbacks get it */
    const char *name;              /* the plug-in's */
    struct tracking_list *scalars; /* lent; NULL: not rank 0 */
    char failure[256];
};

/* *out is lent to the plug-in: it stays where it is. */
void plugin_host_make(const struct run *run, const char *name,
                      struct plugin_host *out);

/* A function `what` of the plug-in's part has returned `result`. */
enum err plugin_host_judge(struct plugin_host *host, const char *part,
                           const char *what, int result);

/* A part of a name: letters, digits and '_'. */
bool plugin_host_is_name(const char *name);
