/* Settings that were given and have no effect, by what else the settings say:
 * told once, so that nobody believes in what is not there. What is dangerous is
 * an error instead (start_settings.c). What a setting needs is a row of the
 * tables in start_idle.c. */
#pragma once

#include "src/train/settings/train_settings.h"
#include "src/train/settings/trainer_schedule.h"

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
