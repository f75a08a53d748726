/* The model part of the settings; for train_settings.c only. */
#ifndef TESSERA_TRAIN_TRAIN_SETTINGS_MODEL_H
#define TESSERA_TRAIN_TRAIN_SETTINGS_MODEL_H

#include "src/train/train_settings.h"

/* Model settings that were not given, or given as 0 where 0 says so, become the
 * preset's. */
enum err train_settings_preset(struct train_settings *settings,
                               const struct settings_origin *origins);

#endif
