/* The settings of the schedule: checked, and their durations in steps once the
 * size of the data set is known. scheduler.scale multiplies train.max_duration
 * and all durations but the warm-up; what is counted whole (ba, tok, sp) is
 * rounded down, as Composer does. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"
#include "src/base/units.h"
#include "src/train/settings/schedule.h"
#include "src/train/settings/train_settings.h"

struct trainer_schedule {
    struct unit_rates rates;
    struct schedule schedule;
    int64_t max_steps; /* -1: train.max_duration is in seconds */
};

/* train.max_duration by scheduler.scale. */
struct duration trainer_schedule_max_duration(const struct train_settings *s);

/* What can be told without the data set: settings that the schedule lacks,
 * contradictions, durations without a number of steps. */
enum err trainer_schedule_settings(const struct train_settings *s);

enum err trainer_schedule(const struct train_settings *s,
                          int64_t samples_per_epoch,
                          struct trainer_schedule *out);

/* A decay that would end before the warm-up is ERR_USAGE. */
enum err trainer_schedule_check(const struct train_settings *s,
                                const struct trainer_schedule *plan);

/* " scheduler.t_max=24ba scheduler.gamma=0.5": what gives the curve of `old`
 * again, in a run that has `new`. */
void trainer_schedule_again(const struct train_settings *old,
                            const struct trainer_schedule *old_plan,
                            const struct train_settings *new,
                            const struct trainer_schedule *new_plan, char *text,
                            size_t bytes);
