/* The durations of the settings in steps, once the size of the data set is
 * known. */
#ifndef TESSERA_TRAIN_TRAINER_SCHEDULE_H
#define TESSERA_TRAIN_TRAINER_SCHEDULE_H

#include <stdint.h>

#include "src/base/err.h"
#include "src/base/units.h"
#include "src/train/schedule.h"
#include "src/train/train_settings.h"

struct trainer_schedule {
    struct unit_rates rates;
    struct schedule schedule;
    int64_t max_steps; /* -1: train.max_duration is in seconds */
};

enum err trainer_schedule(const struct train_settings *s,
                          int64_t samples_per_epoch,
                          struct trainer_schedule *out);

/* A decay that would end before the warm-up is ERR_USAGE, a warm-up longer than
 * the run a warning. */
enum err trainer_schedule_check(const struct train_settings *s,
                                const struct trainer_schedule *plan);

#endif
