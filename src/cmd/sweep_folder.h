/* Whose a run's folder is: the settings that it was made with, by their SHA-256
 * in a file of it. */
#pragma once

#include <stdbool.h>

#include "src/cmd/sweep_plan.h"

/* The file in a run's folder. */
#define SWEEP_FOLDER_DIGEST "settings.sha256"

/* Whether the folder has a run of other settings than run `number` has now; all
 * count that are not as by default, but run.dir and the hooks. Settings that
 * cannot be, and folders that tell nothing, count as the same. */
enum err sweep_folder_other(const struct sweep *sweep, int64_t number,
                            bool *other);
/* ERR_USAGE: it has. */
enum err sweep_folder_check(const struct sweep *sweep, int64_t number);
/* The same, and the folder becomes that of run `number`. */
enum err sweep_folder_take(const struct sweep *sweep, int64_t number);
