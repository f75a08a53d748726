/* Whether settings go together, each of which is within its limits. */
#ifndef TESSERA_TRAIN_TRAIN_SETTINGS_CHECK_H
#define TESSERA_TRAIN_TRAIN_SETTINGS_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/train/schedule.h"
#include "src/train/train_settings.h"

/* Completed settings. partial: what is missing is not checked. The error names
 * the settings and not where they were set. */
enum err train_settings_check(const struct train_settings *s, bool partial);

/* The same of the schedule, whose steps are known when the data set is open;
 * max_steps is -1 for a run in seconds. A decay that would end before the
 * warm-up is an error, a warm-up longer than the run a warning. */
enum err train_settings_check_schedule(const struct train_settings *s,
                                       const struct schedule *schedule,
                                       int64_t max_steps);

#endif
