/* The file of a plug-in (tessera_plugin.h): whether it may be loaded, what
 * identifies it, and the structure that it defines. */
#pragma once

#include "src/base/err.h"
#include "src/train/extend/tessera_plugin.h"

struct train_settings;

/* The same, and load just the file that was looked at, whatever stands at its
 * path meanwhile; it stays in memory. ERR_USAGE where it is no plug-in, or one
 * of another ABI. */
enum err plugin_file_open(const char *path, char hex[65],
                          const struct tessera_plugin **out);

/* Its algorithms; NULL where it has none, or is older than these. */
const struct tessera_algorithm *const *
plugin_file_algorithms(const struct tessera_plugin *plugin);

/* SHA-256 over those of all of a run's plug-ins, in order; "" where there are
 * none. */
enum err plugin_file_all(const struct train_settings *settings, char hex[65]);
