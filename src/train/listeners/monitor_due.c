/* Counts steps from the run's first one, seconds from the attempt's. */
#include "src/train/listeners/monitor_due.h"

#include <assert.h>

#include "src/train/run/run.h"

enum err monitor_due_create(const struct run *run, const char *key,
                            struct duration interval, bool seconds,
                            struct monitor_due *out)
{
    assert(run->settings.log.interval > 0);
    *out = (struct monitor_due){ .log_interval = run->settings.log.interval };
    if (interval.value <= 0.0)
        return ERR_OK;
    if (interval.unit == UNIT_SEC && seconds) {
        out->seconds = interval.value;
        return ERR_OK;
    }
    return run_steps(run, key, interval, &out->steps);
}

bool monitor_due_ever(const struct monitor_due *due)
{
    return due->steps > 0 || due->seconds > 0.0;
}

bool monitor_due_step(const struct monitor_due *due, int64_t step)
{
    assert(step > 0 && due->log_interval > 0);
    return due->steps > 0 && step % due->log_interval == 0 &&
           step / due->steps > (step - due->log_interval) / due->steps;
}

bool monitor_due_now(struct monitor_due *due, const struct step_record *step)
{
    const struct step_rank *first = &step->of_rank[0];
    if (due->seconds <= 0.0)
        return monitor_due_step(due, step->step);
    if (!due->begun) {
        due->begun = true;
        due->last_s = first->elapsed_s - first->step_s;
    }
    if (!step_record_logs(step) ||
        first->elapsed_s - due->last_s < due->seconds)
        return false;
    due->last_s = first->elapsed_s;
    return true;
}
