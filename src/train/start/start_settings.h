/* From what is written to the settings of a run: whether they go together, each
 * of which is within its limits, and what the model completes. Errors name the
 * settings and begin with where they were set.
 *
 * Reading opens no file of the model: where a run is can be asked without its
 * weights. Only a run whose shape nobody has given (model.weights without
 * model.preset) takes it from them, and there one rank looks for all. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "src/base/err.h"
#include "src/comm/comm.h"
#include "src/train/settings/train_settings.h"
#include "src/train/settings/trainer_schedule.h"

/* train_settings_read(), and judged as far as that asks no model: folders, data
 * sets, permissions, batch, durations. */
enum err start_settings_read(const char *path, char *const *overrides,
                             int override_count, bool partial,
                             struct train_settings *out);
/* Whether the shape of the model is in a file. */
bool start_settings_asks(const struct train_settings *settings);
/* The model, data.seq_len and the automatic microbatch, and what could not be
 * judged before. Opens the file; ERR_USAGE where it is at an address, which the run
 * alone fetches. They depend on other settings only, never on the machine or the
 * number of ranks. */
enum err start_settings_complete(struct train_settings *settings);
/* The same on all ranks, by a file that rank 0 alone has opened. Collective. */
enum err start_settings_share(struct comm *comm,
                              struct train_settings *settings);
/* Read and completed. */
enum err start_settings_load(const char *path, char *const *overrides,
                             int override_count, struct train_settings *out);

/* Settings that were read, by keys with commas between, a line each. The model's
 * file is opened for what only that says: where a run is can be asked without its
 * weights. `keys` is cut up. */
enum err start_settings_print(char *keys, struct train_settings *settings,
                              FILE *out);
/* ERR_USAGE: what trackers write is something that is read; path: the file of
 * settings. */
enum err start_settings_outputs(const char *path,
                                const struct train_settings *settings);

/* Settings that were given and have no effect, by what else the settings say:
 * told once, so that nobody believes in what is not there. What is dangerous is
 * an error instead (start_settings.c). What a setting needs is a row of the
 * tables in start_idle.c. */
struct start_idle {
    const struct train_settings *settings;
    /* Those of the attempt before, whose equal values were told then; NULL:
     * none. */
    const struct train_settings *before;
    const struct trainer_schedule *plan; /* NULL: data are not known, no run
                                            begins */
};

typedef void (*start_idle_tell)(void *arg, const char *text);

/* Call `tell` with a line for each: "KEY is given, but changes nothing: WHY".
 * NULL: a warning in the log. */
void start_idle(const struct start_idle *run, start_idle_tell tell, void *arg);
