/* Whether settings go together, each of which is within its limits. */
#ifndef TESSERA_TRAIN_TRAIN_SETTINGS_CHECK_H
#define TESSERA_TRAIN_TRAIN_SETTINGS_CHECK_H

#include <stdbool.h>

#include "src/base/err.h"
#include "src/train/train_settings.h"

/* Completed settings. partial: what is missing is not checked. The error names
 * the settings and not where they were set. */
enum err train_settings_check(const struct train_settings *s, bool partial);

#endif
