/* The settings of a plug-in, as the items of the list `plugins` have them. */
#pragma once

#include "src/base/settings/settings_list.h"

#define PLUGIN_SETTINGS(S)                                                     \
    S(plugin, PATH, path, NULL, 0, "the shared object")                        \
    S(plugin, STRING, options, "", 0,                                          \
      "for the plug-in, which says what it "                                   \
      "takes")

struct plugin_settings {
    PLUGIN_SETTINGS(SETTINGS_FIELD)
};

extern const struct settings_kind plugin_kinds[];
