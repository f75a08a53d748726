/* A plug-in (tessera_plugin.h) from our side: what it gets of the run (struct
 * tessera_host), what its functions' results mean, and its file. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "src/base/err.h"
#include "src/train/extend/tessera_plugin.h"

struct tracking_list;
struct run;
struct train_settings;

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

/* The same of `store`, whose text, which is released, becomes state[part]. */
enum err plugin_host_store(struct plugin_host *host, const char *part,
                           int result, char *text, json_t *state);

/* A part of a name: letters, digits and '_'. */
bool plugin_host_is_name(const char *name);

/* --- its file (plugin_file.c) --- */

/* Loads just the file that was looked at, whatever stands at its path meanwhile;
 * it stays in memory. hex: its SHA-256. ERR_USAGE where it is no plug-in, one of
 * another ABI, or a file that others could have changed. */
enum err plugin_file_open(const char *path, char hex[65],
                          const struct tessera_plugin **out);

/* Its algorithms; NULL where it has none, or is older than these. */
const struct tessera_algorithm *const *
plugin_file_algorithms(const struct tessera_plugin *plugin);

/* SHA-256 over those of all of a run's plug-ins, in order; "" where there are
 * none. */
enum err plugin_file_all(const struct train_settings *settings, char hex[65]);
