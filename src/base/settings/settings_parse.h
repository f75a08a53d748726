/* Reads libconfig files, safely and with clear errors; for those that are no
 * settings, too. */
#pragma once

#include <libconfig.h>

#include "src/base/err.h"
#include "src/base/settings/settings.h"

/* Into `config`, which the caller initialises and destroys. `folder` becomes
 * that of the file, absolute, where what @include names is looked for.
 * ERR_USAGE names file and line. */
enum err settings_parse(const char *path, char folder[SETTINGS_TEXT_BYTES],
                        config_t *config);

/* The path of the file that libconfig names as `source`: as the @include line
 * does, or NULL for `path` itself. */
enum err settings_parse_source(const char *path, const char *folder,
                               const char *source,
                               char out[SETTINGS_TEXT_BYTES]);
