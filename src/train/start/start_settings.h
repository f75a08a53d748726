/* From what is written to the settings of a run: whether they go together, each
 * of which is within its limits, and what the model completes. Errors name the
 * settings and begin with where they were set.
 *
 * Reading opens no file of the model: where a run is can be asked without its
 * weights. Only a run whose shape nobody has given (model.weights without
 * model.preset) takes it from them, and there one rank looks for all. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"
#include "src/comm/comm.h"
#include "src/train/settings/train_settings.h"

/* train_settings_read(), and judged as far as that asks no model: folders, data
 * sets, permissions, batch, durations. */
enum err start_settings_read(const char *path, char *const *overrides,
                             int override_count, bool partial,
                             struct train_settings *out);
/* Whether the shape of the model is in a file. */
bool start_settings_asks(const struct train_settings *settings);
/* The model, data.seq_len and the automatic microbatch, and what could not be
 * judged before. Opens the file. They depend on other settings only, never on
 * the machine or the number of ranks. */
enum err start_settings_complete(struct train_settings *settings);
/* The same on all ranks, by a file that rank 0 alone has opened. Collective. */
enum err start_settings_share(struct comm *comm,
                              struct train_settings *settings);
/* Read and completed. */
enum err start_settings_load(const char *path, char *const *overrides,
                             int override_count, struct train_settings *out);
