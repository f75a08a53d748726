/* Whether settings go together, each of which is within its limits. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"
#include "src/train/settings/train_settings.h"

/* Completed settings. partial: what is missing is not checked. The error names
 * the settings and not where they were set. */
enum err start_settings(const struct train_settings *s, bool partial);
