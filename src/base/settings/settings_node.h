/* What the parts of the settings reader that know libconfig's nodes share. */
#pragma once

#include <libconfig.h>

#include "src/base/settings/settings_private.h"

/* The node's value, checked; `place` begins error texts, paths are relative to
 * `folder`. */
enum err settings_node_value(const struct setting *setting,
                             const config_setting_t *node, const char *folder,
                             const char *place, struct settings_value *value);

/* The same of a list of groups (settings_list.h). */
enum err settings_list_node(const struct setting *setting,
                            const config_setting_t *node, const char *folder,
                            const char *place, struct settings_value *value);
