/* What listeners ask of a record. */
#include "src/train/run/step_record.h"

#include "src/base/clock.h"

bool step_record_logs(const struct step_record *step)
{
    return step->step % step->log_interval == 0 || step->finished ||
           step->stop_signal != 0;
}

bool step_record_seconds_due(struct duration interval, double *since)
{
    if (interval.unit != UNIT_SEC || interval.value <= 0 ||
        clock_now() - *since < interval.value)
        return false;
    *since = clock_now();
    return true;
}
