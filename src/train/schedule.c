/* The learning rate's multiplier as a function of the step alone. Durations
 * become steps in trainer_schedule.c. */
#include "src/train/schedule.h"

#include <assert.h>

#include "src/base/real.h"

double schedule_multiplier(const struct schedule *schedule, int64_t step)
{
    const double pi = 3.14159265358979323846;
    assert(step >= 0);
    if (step < schedule->warmup)
        return (double)step / (double)schedule->warmup;
    double tau = 0.0;
    if (schedule->t_max > schedule->warmup)
        tau = (double)(step - schedule->warmup) /
              (double)(schedule->t_max - schedule->warmup);
    if (tau > 1.0)
        tau = 1.0;
    double af = schedule->alpha_final;
    switch (schedule->kind) {
    case SCHEDULE_COSINE:
        return af + (1.0 - af) * (1.0 + real_cos(pi * tau)) / 2.0;
    case SCHEDULE_LINEAR:
        return 1.0 + tau * (af - 1.0);
    case SCHEDULE_CONSTANT:
        break;
    }
    return 1.0;
}
